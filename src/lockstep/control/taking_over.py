"""Taking a job over from a dead supervisor: nobody it left behind acts any more, and what they left is cleared away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

from lockstep.connect.protocols import SinkSide
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.store.protocols import Progress, Store

LEASE = "supervisor"
LEASE_S = 10.0
END, WRITE, SWEEP = "end", "write", "sweep"
_PATIENCE_S = 5.0
"""Replicas whose supervisor died notice it, finish their epoch and end by themselves."""
_POLL_S = 0.1


class Leftovers(Protocol):
    """The processes that an earlier run may have left: those of this machine, or of a simulation."""

    def is_there(self, said: Progress) -> bool:
        """Whether the process that said this still runs."""

    def blocks(self, said: Progress) -> bool:
        """Whether it is stopped inside a transaction: nothing can be written until it is ended."""

    def kill(self, said: Progress) -> None:
        """End it at once."""


def take_over(
    store: Store, identity: str, leftovers: Leftovers, elapsed_s: Callable[[], float] = time.monotonic
) -> Steps[None]:
    """Take the lease, and end whoever is left."""
    left = [said for said in store.progress() if leftovers.is_there(said)]
    for said in left:
        if leftovers.blocks(said):
            yield Step(END, partial(leftovers.kill, said))
    yield Step(WRITE, partial(_take_lease, store, identity))
    for said in store.progress():
        yield Step(WRITE, partial(store.retire, said.replica))
    deadline_s = elapsed_s() + _PATIENCE_S
    while any(leftovers.is_there(said) for said in left) and elapsed_s() < deadline_s:
        yield Pause(_POLL_S)
    for said in left:
        if leftovers.is_there(said):
            yield Step(END, partial(leftovers.kill, said))
        text = f"pid {said.pid} of an earlier run"
        yield Step(WRITE, partial(store.add_event, "leftover-ended", text, said.replica))


def sweep(store: Store, sinks: Iterable[SinkSide]) -> Steps[None]:
    """Remove what the replicas of earlier runs left half-written."""
    dead = [f"{said.replica}.{said.incarnation}" for said in store.progress()]
    for sink in sinks:
        yield Step(SWEEP, partial(sink.sweep, dead))


def _take_lease(store: Store, identity: str) -> None:
    holder = store.holder(LEASE)
    if holder not in (None, identity):
        # Whoever holds the file lock is the supervisor; the lease only tells others who that is. (Where hosts share
        # the store, the lease itself was taken before.)
        store.release(LEASE, holder)
    store.acquire(LEASE, identity, LEASE_S)
