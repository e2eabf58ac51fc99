"""At most once, for any sink without a fence of its own: an epoch is noted as taken before it is written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Output, Place, Publication, SinkSide, Stager
from lockstep.store.protocols import Holder

_REMEMBERED = 32
"""Notes kept for replicas that come second: more than the lead that one of them may have (20 epochs)."""


class AtMostOnceSide:
    """A sink's working side behind notes in the job's store: who notes an epoch first writes it, once, or never.

    The note is put by a compare-and-swap, not under a lease: a replica that stood still for longer than a lease lasts
    would write a second time when it goes on.
    """

    def __init__(self, side: SinkSide, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._side = side
        self._key = f"taken:{sink_id}"
        self._store = LazyStore(place)
        self._clock = clock

    def open(self, schema: pa.Schema) -> None:
        """Prepare the sink itself."""
        self._side.open(schema)

    def last_published(self) -> int | None:
        """The newest epoch that was taken, written or not."""
        _, taken = self._taken()
        return taken[-1].epoch if taken else None

    def publication(self, epoch: int) -> Publication | None:
        """The note of ``epoch``. Of one taken long ago only that is known: its digest is empty."""
        return _found(self._taken()[1], epoch)

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """Where the sink itself stages."""
        return self._side.stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Note the epoch, then write it; if it is noted already, write nothing."""
        while True:
            before, taken = self._taken()
            held = _found(taken, wanted.epoch)
            if held is not None:
                for file in output.files:
                    Path(file.path).unlink(missing_ok=True)
                # Of an epoch taken long ago there is no digest to compare with.
                return held if held.digest else replace(held, digest=wanted.digest, rows=wanted.rows)
            note = replace(wanted, published_us=self._clock())
            after = json.dumps([asdict(each) for each in (*taken, note)][-_REMEMBERED:])
            if self._store.get().swap_fact(self._key, before, after):
                self._side.publish(wanted, output, holder)
                return note

    def rows(self, epoch: int) -> pa.Table | None:
        """What the sink itself can say."""
        return self._side.rows(epoch)

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        return self._side.sweep(dead)

    def close(self) -> None:
        """Close the sink, and the store if it was opened."""
        self._side.close()
        self._store.close()

    def _taken(self) -> tuple[str | None, list[Publication]]:
        fact = self._store.get().fact(self._key)
        return fact, [Publication(**each) for each in json.loads(fact)] if fact else []


def _found(taken: Sequence[Publication], epoch: int) -> Publication | None:
    if not taken or epoch > taken[-1].epoch:
        return None
    known = next((each for each in taken if each.epoch == epoch), None)
    return known or Publication(epoch, "", 0, "", "")
