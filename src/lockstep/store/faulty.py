"""A store whose operations fail and take their time on order; see :mod:`lockstep.faults`. The real one is behind it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, cast

from lockstep.faults.operations import Interference
from lockstep.faults.orders import Orders
from lockstep.faults.switch import switch
from lockstep.store.protocols import Holder, Store


def with_faults(store: Store, folder: Path) -> Store:
    """``store``, disturbed as the orders in ``folder`` say."""
    # Every operation goes through __getattr__, so one that is added to the protocol is disturbed like the others.
    return cast("Store", FaultyStore(store, Interference(Orders(folder))))


class FaultyStore:
    """Passes every operation of :class:`~lockstep.store.protocols.Store` through the orders for faults."""

    def __init__(self, store: Store, interference: Interference) -> None:
        self._store = store
        self._interference = interference

    def __getattr__(self, operation: str) -> Any:
        return partial(self._interference.around, operation, getattr(self._store, operation))

    def begin(self, replica: str, pid: int) -> Holder:
        """Register a start, as the store does; and have everybody told that this one obeys orders."""
        switch.who = replica
        holder = self._interference.around("begin", self._store.begin, replica, pid)
        assert isinstance(holder, Holder)
        self._store.add_event("faults-on", switch.announcement(), replica)
        return holder

    def close(self) -> None:
        """Give the file back; no fault hinders that."""
        self._store.close()
