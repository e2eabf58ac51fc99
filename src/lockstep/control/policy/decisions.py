"""The record of a decision: what was decided, why, from which figures, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from lockstep.clock import US_PER_S

DECISIONS_MAX = 200
"""The newest are kept: at a few a day those of a month and more."""
FACT = "decisions"
"""Under which they are kept in the store, newest last."""
EVENT = "decision"
"""The kind of the event that tells of each."""


@dataclass(frozen=True)
class Rescale:
    """Change how many partitions, replicas or spares a job has; what is None stays as it is."""

    partitions: int | None = None
    replicas: int | None = None
    spares: int | None = None


@dataclass(frozen=True)
class Replace:
    """Start a replica anew, on another host where there is one."""

    replica: str
    avoid_host: str = ""


@dataclass(frozen=True)
class Advise:
    """Say something to people; nothing is done."""

    text: str


Operation = Rescale | Replace | Advise
_OPERATIONS: dict[str, type[Rescale | Replace | Advise]] = {
    "rescale": Rescale,
    "replace": Replace,
    "advise": Advise,
}


@dataclass(frozen=True)
class Decision:
    """One decision. ``inputs`` are the figures that it was made from, as plain data."""

    kind: str
    at_us: int
    what: str
    """In a few words, as an order: "4 partitions instead of 2"."""
    why: str
    """A sentence for people."""
    operation: Operation
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outcome: str = ""
    """What came of it, once that is known."""

    @property
    def is_advice(self) -> bool:
        """Whether nothing was done."""
        return isinstance(self.operation, Advise)

    @property
    def sentence(self) -> str:
        """What an event says.

        >>> Decision("scale-up", 0, "4 partitions instead of 2", "load is 90 % of capacity", Rescale(4)).sentence
        '4 partitions instead of 2: load is 90 % of capacity'
        """
        return f"{'advice: ' if self.is_advice else ''}{self.what}: {self.why}"

    def to_json(self) -> dict[str, Any]:
        """As plain data.

        >>> one = Decision("slow-replica", 5, "replace r1", "it is slow", Replace("r1"), {"epoch_s": 3.0})
        >>> Decision.from_json(json.loads(json.dumps(one.to_json()))) == one
        True
        """
        name = next(name for name, kind in _OPERATIONS.items() if isinstance(self.operation, kind))
        return {**asdict(self), "operation": {"name": name, **asdict(self.operation)}}

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Decision:
        """As it was kept."""
        operation = dict(kept["operation"])
        made = _OPERATIONS[operation.pop("name")](**operation)
        return Decision(**{**kept, "operation": made})


def encode(decisions: Sequence[Decision]) -> str:
    """The text of the fact: the newest of them."""
    return json.dumps([one.to_json() for one in decisions[-DECISIONS_MAX:]])


def decode(text: str | None) -> list[Decision]:
    """What the fact says; empty if there is none.

    >>> decode(encode([Decision("own-fault", 5, "mend the job", "it fails", Advise("mend the job"))]))[0].kind
    'own-fault'
    """
    return [Decision.from_json(one) for one in json.loads(text or "[]")]


def explain(decisions: Sequence[Decision]) -> str:
    """What was decided, why and with what outcome, newest first: the text of `lockstep why`.

    >>> one = Decision("scale-up", 60_000_000, "4 partitions instead of 2", "load is 90 % of capacity", Rescale(4),
    ...     {"rate_per_s": 900.0, "partitions": 2}, "capacity grew 1.8 times")
    >>> print(explain([one]))
    1970-01-01 00:01:00Z  4 partitions instead of 2
        why:      load is 90 % of capacity
        from:     rate_per_s 900, partitions 2
        outcome:  capacity grew 1.8 times
    """
    return "\n\n".join(_paragraph(one) for one in sorted(decisions, key=lambda one: one.at_us, reverse=True))


def _paragraph(one: Decision) -> str:
    at = datetime.fromtimestamp(one.at_us // US_PER_S, UTC)
    lines = [f"{at:%Y-%m-%d %H:%M:%S}Z  {'advice: ' if one.is_advice else ''}{one.what}", f"    why:      {one.why}"]
    if one.inputs:
        lines.append(f"    from:     {', '.join(f'{name} {figure(value)}' for name, value in one.inputs.items())}")
    if one.outcome:
        lines.append(f"    outcome:  {one.outcome}")
    return "\n".join(lines)


def figure(value: object) -> str:
    """A figure for people.

    >>> figure(1234.5678), figure(0.01234), figure({"h1": 2.0}), figure("r0"), figure(None)
    ('1,235', '0.0123', 'h1 2', 'r0', 'unknown')
    """
    if isinstance(value, Mapping):
        return " ".join(f"{name} {figure(one)}" for name, one in value.items()) or "none"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
    return "unknown" if value is None else str(value)
