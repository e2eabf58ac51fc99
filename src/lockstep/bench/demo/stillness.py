"""Whether what the demo waits for is slow or does not move at all: only the second is a reason to fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from lockstep.store.protocols import Progress

HANG_LIMIT_S = 120.0
"""So long without any sign of life. On a machine that runs ten times what it has cores for, a boot still gets a second
of processor time in this long, which is a sign; and a replica that turns in circles is ended by its supervisor."""


@dataclass(frozen=True)
class Signs:
    """Everything in which that which is awaited could move."""

    said: tuple[tuple[str, str, int, int, int, int], ...]
    """Of each awaited replica: name, state, incarnation, newest epoch, epoch under way, tasks done in it."""
    processor_s: int
    """What their processes have used, in whole seconds."""
    rows: int
    """What came out."""


@dataclass(frozen=True)
class Stillness:
    """The newest signs, and since when they are the same.

    >>> first = Stillness(Signs((), 5, 0), since_s=10.0)
    >>> first.after(Signs((), 5, 0), now_s=30.0).still_s(now_s=30.0), first.after(Signs((), 6, 0), 30.0).still_s(30.0)
    (20.0, 0.0)
    """

    signs: Signs
    since_s: float

    def after(self, signs: Signs, now_s: float) -> Stillness:
        """With what is seen now."""
        return self if signs == self.signs else replace(self, signs=signs, since_s=now_s)

    def still_s(self, now_s: float) -> float:
        """For how long nothing has moved."""
        return now_s - self.since_s


def signs(progress: Mapping[str, Progress], awaited: Sequence[str], processor_s: float, rows: int) -> Signs:
    """What is to be seen of those who are awaited."""
    said = [progress[name] for name in awaited if name in progress]
    words = [(one.replica, one.state, one.incarnation, one.epoch, one.working_on, one.tasks_done) for one in said]
    return Signs(tuple(words), int(processor_s), rows)


def state_text(name: str, said: Progress | None, head: int) -> str:
    """One replica for people.

    >>> state_text("r1", None, 7), state_text("r1", Progress("r1", 2, 77, "catching-up", 4), 7)
    ('r1 not started', 'r1 catching-up, 3 behind')
    """
    if said is None:
        return f"{name} not started"
    behind = f", {head - said.epoch} behind" if said.state == "catching-up" else ""
    return f"{name} {said.state}{behind}"
