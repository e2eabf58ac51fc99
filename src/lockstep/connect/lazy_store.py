"""The job's store as connectors use it: opened when it is first needed, which for most of them is never."""

from __future__ import annotations

from lockstep.connect.protocols import Place
from lockstep.store.opening import open_store
from lockstep.store.protocols import Store


class LazyStore:
    """The store of ``place``, opened at the first :meth:`get`."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._store: Store | None = None

    def get(self) -> Store:
        """The open store."""
        if self._store is None:
            self._store = open_store(self._place.store, self._place.job)
        return self._store

    def close(self) -> None:
        """Close it if it was opened."""
        if self._store is not None:
            self._store.close()
            self._store = None
