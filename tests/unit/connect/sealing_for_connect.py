"""One replica's dealings with a source, without Spark: advance, seal, read."""

from __future__ import annotations

from typing import Any

from lockstep.connect.protocols import Advance, Place, SourceSide
from lockstep.connect.registry import source_side
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store

SOURCE = "numbers"
EPOCHS_MAX = 50


class Sealing:
    """One replica's part of the life of an epoch: advance, seal, read."""

    def __init__(self, place: Place, spec: Any, replica: str = "r0") -> None:
        self.place = place
        self.store: Store = open_store(place.home, place.job)
        self.side: SourceSide = source_side(spec, place, SOURCE)
        self._holder = self.store.begin(replica, pid=1)

    def position(self) -> dict[str, int]:
        head = self.store.head()
        return dict(head.cut[SOURCE]) if head else dict(self.side.start())

    def seal(self, now_us: int, records_max: int = 1000) -> Advance:
        """Seal the next epoch as of ``now_us``."""
        head = self.store.head()
        advance = self.side.advance(self.position(), records_max, now_us)
        entry = Entry(head.epoch + 1 if head else 0, now_us, {SOURCE: advance.positions}, records=advance.records)
        self.store.seal(entry, self._holder, advance.items)
        return advance

    def read(self, epoch: int, side: SourceSide | None = None) -> list[dict[str, Any]]:
        """The records of one sealed epoch, as any replica would read them."""
        entry = self.store.entry(epoch)
        assert entry is not None
        before = self.store.entry(epoch - 1)
        side = side or self.side
        start = before.cut[SOURCE] if before else side.start()
        batches = [batch for piece in side.slices(start, entry.cut[SOURCE]) for batch in side.read(piece)]
        return [record for batch in batches for record in batch.to_pylist()]

    def drain(self, now_us: int, records_max: int = 1000) -> list[list[dict[str, Any]]]:
        """Seal and read epochs until nothing is new."""
        epochs: list[list[dict[str, Any]]] = []
        for _ in range(EPOCHS_MAX):
            before = self.position()
            advance = self.seal(now_us, records_max)
            if dict(advance.positions) == before:
                return epochs
            head = self.store.head()
            assert head is not None
            epochs.append(self.read(head.epoch))
        raise AssertionError(f"still new records after {EPOCHS_MAX} epochs")

    def close(self) -> None:
        self.side.close()
        self.store.close()
