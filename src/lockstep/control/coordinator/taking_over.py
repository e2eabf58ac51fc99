"""Taking a job over: the lease and a term of its own, and what nobody will go on with is cleared away."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from functools import partial

from lockstep.connect.protocols import SinkSide
from lockstep.errors import RunError
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.steps import Step, Steps
from lockstep.store.protocols import Store

LEASE_S = 10.0
TERM = "term"
"""A fact of the store: how often somebody has begun to supervise. Whoever has the newest term is obeyed."""
END, WRITE, SWEEP = "end", "write", "sweep"


def take_over(store: Store, identity: str, end_blocker: Callable[[], object], *, is_shared: bool = False) -> Steps[int]:
    """Take the lease; the term of this supervisor, newer than all before it.

    Where hosts share the store (``is_shared``), the lease was taken before. If it was lost since, whoever has it now
    keeps it: LS0610.
    """
    # Before anything is written: a replica that is stopped inside a transaction would keep this from going on.
    yield Step(END, end_blocker)
    yield Step(WRITE, partial(_keep_lease if is_shared else _take_lease, store, identity))
    term = yield Step(WRITE, partial(_new_term, store))
    return int(term)


def retire(store: Store, adopted: Collection[str]) -> Steps[None]:
    """Nobody acts any more for the replicas that were not adopted."""
    for said in store.progress():
        if said.replica not in adopted:
            yield Step(WRITE, partial(store.retire, said.replica))


def sweep(store: Store, sinks: Iterable[SinkSide], adopted: Collection[str] = ()) -> Steps[None]:
    """Remove what the replicas of earlier runs left half-written."""
    dead = [f"{said.replica}.{said.incarnation}" for said in store.progress() if said.replica not in adopted]
    for sink in sinks:
        yield Step(SWEEP, partial(sink.sweep, dead))


def _take_lease(store: Store, identity: str) -> None:
    holder = store.holder(LEASE)
    if holder not in (None, identity):
        # Whoever holds the file lock, or was told to take over, is the supervisor; the lease tells the others.
        store.release(LEASE, holder)
    store.acquire(LEASE, identity, LEASE_S)


def _keep_lease(store: Store, identity: str) -> None:
    if not store.acquire(LEASE, identity, LEASE_S):
        raise RunError(
            "LS0610",
            "the job is supervised by another process now",
            why=f"this one stood still after it took the lease, and {store.holder(LEASE) or 'another one'} has it.",
            hint="nothing to do: the other one goes on. See `lockstep status`.",
        )


def _new_term(store: Store) -> int:
    while True:
        before = store.fact(TERM)
        term = int(before or 0) + 1
        if store.swap_fact(TERM, before, str(term)):
            return term
