"""What may be forgotten: everything below the lowest epoch that any replica or savepoint still needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from lockstep.config import RunSettings
from lockstep.connect.protocols import SourceSide
from lockstep.store.protocols import COMPUTING, Progress, Store

PINS = "savepoint-pins"
"""Fact: name -> the epoch of each savepoint that holds retention back, and the host it is on."""


def floor_epoch(progress: Sequence[Progress], given_up: Sequence[str], settings: RunSettings) -> int:
    """The lowest epoch to keep.

    >>> floor_epoch([], [], RunSettings())
    0
    """
    if not any(one.state in COMPUTING for one in progress):
        # Whether a checkpoint is whole shows when somebody starts from it: what a dead replica said does not count.
        return 0
    needed = [one.epoch for one in progress if one.replica not in given_up]
    return max(0, min(needed) - settings.retention_epochs_min) if needed else 0


def pinned_epochs(store: Store) -> dict[str, int]:
    """The savepoints that hold retention back, and the epochs from which on they need everything."""
    pins = json.loads(store.fact(PINS) or "{}")
    return {str(name): int(pin["epoch"]) for name, pin in pins.items()}


def with_pins(floor: int, pinned: Mapping[str, int]) -> int:
    """The floor with what savepoints need: the entry of their epoch, and all that comes after it.

    >>> with_pins(500, {}), with_pins(500, {"before-upgrade": 120})
    (500, 120)
    """
    return min([floor, *pinned.values()])


def forget(store: Store, sources: Mapping[str, SourceSide], floor: int) -> None:
    """Forget what lies below ``floor`` in the ledger, the record and the sources (which know who else reads them)."""
    entry = store.entry(floor - 1) if floor > store.floor() else None
    if entry is None:
        return
    # The ledger first: if only that succeeds, records stay that nobody needs. The other way round a replica that starts
    # from the first epoch of the ledger would find its records gone.
    store.trim(floor)
    for name, side in sources.items():
        if (positions := entry.cut.get(name)) is not None:
            side.trim(positions)
