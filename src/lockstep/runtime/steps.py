"""Step machines: what is done in which order, apart from what doing it means.

A machine is a generator. It reads and decides by itself, and yields whatever changes the world or takes time: a
:class:`Step` to be done, whose answer is sent back to it, or a :class:`Pause`. Production drives it with :func:`run`;
the simulator puts each step on its timeline, where a fault may strike before, in the midst of and after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from lockstep.store.patience import patience

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Step:
    """One thing to be done. What its call returns, or raises, comes back to the machine."""

    name: str
    """As traces, and the crash windows of an epoch, name it."""
    act: Callable[[], Any]
    patience_s: float | None = None
    """How long it is willing to wait for the store, None: as long as whoever drives it."""


@dataclass(frozen=True)
class Pause:
    """Nothing to do for a while."""

    seconds: float
    epoch: int | None = None
    """If given, the pause is over as soon as this epoch is sealed; whether it is (its entry) is the answer."""


Steps = Generator[Step | Pause, Any, Answer]


def _sleep(pause: Pause) -> None:
    time.sleep(pause.seconds)


def run(
    steps: Steps[Answer],
    pause: Callable[[Pause], object] = _sleep,
    before: Callable[[str], None] = lambda step: None,  # noqa: ARG005
) -> Answer:
    """Do the steps of a machine here and now, and return what it returns; ``before`` hears of each step.

    >>> def machine():
    ...     found = yield Step("look", lambda: 7)
    ...     yield Pause(0.001)
    ...     return found + 1
    >>> run(machine(), before=print)
    look
    8
    """
    go_on: Callable[[], Step | Pause] = partial(next, steps)
    while True:
        try:
            wanted = go_on()
        except StopIteration as ended:
            answer: Answer = ended.value
            return answer
        if isinstance(wanted, Pause):
            go_on = answered(steps, partial(pause, wanted))
        else:
            before(wanted.name)
            go_on = answered(steps, wanted.act, wanted.patience_s)


def answered(
    steps: Steps[Answer], act: Callable[[], object], patience_s: float | None = None
) -> Callable[[], Step | Pause]:
    """Do something for a machine; calling what comes back goes on with the answer, or with the error that it raised."""
    try:
        with patience(patience_s) if patience_s is not None else nullcontext():
            answer = act()
    except Exception as error:
        return partial(steps.throw, error)
    return partial(steps.send, answer)
