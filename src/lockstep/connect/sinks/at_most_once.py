"""At most once, for any sink without a fence of its own: an epoch is noted as taken before it is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.protocols import Output, Place, Publication, SinkSide, Stager
from lockstep.connect.sinks.publication_memory import PublicationMemory, comparable
from lockstep.store.protocols import Holder


class AtMostOnceSide:
    """A sink's working side behind notes in the job's store: who notes an epoch first writes it, once, or never."""

    def __init__(self, side: SinkSide, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._side = side
        self._taken = PublicationMemory(f"taken:{sink_id}", place)
        self._clock = clock

    def open(self, schema: pa.Schema) -> None:
        """Prepare the sink itself."""
        self._side.open(schema)

    def last_published(self) -> int | None:
        """The newest epoch that was taken, written or not."""
        return self._taken.last()

    def publication(self, epoch: int) -> Publication | None:
        """The note of ``epoch``. Of one taken long ago only that is known: its digest is empty."""
        return self._taken.find(epoch)

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """Where the sink itself stages."""
        return self._side.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Note the epoch, then write it; if it is noted already, write nothing."""
        held, is_ours = self._taken.put(wanted, self._clock)
        if is_ours:
            self._side.publish(wanted, output, holder)
            return held
        for file in output.files:
            Path(file.path).unlink(missing_ok=True)
        return comparable(held, wanted)

    def rows(self, epoch: int) -> pa.Table | None:
        """What the sink itself can say."""
        return self._side.rows(epoch)

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._side.sweep(dead)

    def close(self) -> None:
        """Close the sink, and the store if it was opened."""
        self._side.close()
        self._taken.close()
