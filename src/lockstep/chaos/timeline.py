"""The timeline: one line per action and per consequence, printed as it happens and kept for the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from lockstep.clock import US_PER_S, wall_us

Kind = Literal["action", "over", "consequence", "phase", "check"]
SIGNS: dict[Kind, str] = {"action": ">>", "over": "<<", "consequence": "  ", "phase": "--", "check": "=="}


@dataclass(frozen=True)
class Line:
    """One thing that happened."""

    at_s: float
    """Seconds after the beginning of the chaos; what comes before is negative."""
    kind: Kind
    text: str


@dataclass
class Timeline:
    """All lines so far; the zero is set when the chaos begins."""

    print_line: Callable[[str], None]
    zero_us: int = field(default_factory=wall_us)
    lines: list[Line] = field(default_factory=list)
    begun: bool = False
    """Whether there is something to check: the chaos has begun."""

    def begin(self) -> None:
        """The chaos begins now."""
        self.zero_us, self.begun = wall_us(), True

    def add(self, kind: Kind, text: str, at_us: int | None = None) -> None:
        """Keep a line and print it."""
        at_s = ((wall_us() if at_us is None else at_us) - self.zero_us) / US_PER_S
        for number, part in enumerate(text.splitlines() or [""]):
            line = Line(round(at_s, 2), kind, part)
            self.lines.append(line)
            self.print_line(f"{at_s:7.1f} s {SIGNS[kind]} {part}" if number == 0 else f"{'':13}{part}")
