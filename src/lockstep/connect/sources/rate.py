"""Making records at a steady pace: record i is the same in every replica, because their clock's origin was sealed."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import pyarrow as pa

from lockstep.clock import US_PER_S
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.protocols import Advance, Place, Slice
from lockstep.connect.sources.ranges import BATCH_ROWS, split_range
from lockstep.connect.specs import RateSource
from lockstep.store.arrow import arrow_schema
from lockstep.store.protocols import Item, Positions

_DENOMINATOR_MAX = 1000
"""Keeps i * us_per_record within 64 bits for the first 9 * 10**9 records of a fractional rate."""


class RateSide:
    """The working side of :func:`lockstep.connect.specs.rate`. The position is the next ``seq``."""

    def __init__(self, spec: RateSource, place: Place, source: str) -> None:
        self._spec = spec
        self._source = source
        self._schema = arrow_schema(spec.schema)
        self._store = LazyStore(place)
        self._origin_us: int | None = None
        self._stop_at_us: int | None = None
        pace = Fraction(US_PER_S) / Fraction(str(spec.per_second)).limit_denominator(_DENOMINATOR_MAX)
        self._over, self._under = pace.numerator, pace.denominator

    def start(self) -> Positions:
        """The first record."""
        return {"0": 0}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """The records that are due by now. The first call proposes when time begins, sealed with the first records."""
        until_us = now_us if self._stop_at_us is None else min(now_us, self._stop_at_us)
        origin_us = self._sealed_origin()
        items = () if origin_us is not None else (Item(self._source, 0, {"origin_us": until_us}),)
        origin_us = until_us if origin_us is None else origin_us
        start = since.get("0", 0)
        due = self._due(until_us - origin_us)
        if self._spec.limit is not None:
            due = min(due, self._spec.limit)
        end = max(start, min(due, start + max(1, records_max)))
        finished = end == self._spec.limit or (self._stop_at_us is not None and end >= due)
        if end == start:
            return Advance({"0": start}, 0, finished=finished)
        oldest_us, newest_us = self._at_us(origin_us, start), self._at_us(origin_us, end - 1)
        return Advance({"0": end}, end - start, items, oldest_us, newest_us, finished)

    def stop_here(self, now_us: int) -> None:
        """The records that are due now are all."""
        self._stop_at_us = now_us

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range in pieces; each carries the origin, so that workers need no store."""
        first, last = start.get("0", 0), end.get("0", 0)
        if first >= last:
            return []
        origin_us = self._sealed_origin()
        assert origin_us is not None, "the origin is sealed with the first records"
        return split_range("0", first, last, {"origin_us": origin_us})

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Compute the records of one piece."""
        origin_us = int(piece.detail["origin_us"])
        for first in range(piece.start, piece.end, BATCH_ROWS):
            seq = np.arange(first, min(piece.end, first + BATCH_ROWS), dtype=np.int64)
            at_us = origin_us + seq * self._over // self._under
            columns = [pa.array(seq), pa.array(at_us).cast(self._schema.field("at").type)]
            yield pa.record_batch(columns, schema=self._schema)

    def trim(self, positions: Positions) -> None:
        """Nothing is kept but the origin, which is needed for ever."""

    def close(self) -> None:
        """Close the store if it was opened."""
        self._store.close()

    def _sealed_origin(self) -> int | None:
        if self._origin_us is None:
            sealed = self._store.get().items(self._source, 0, 1)
            self._origin_us = int(sealed[0].body["origin_us"]) if sealed else None
        return self._origin_us

    def _at_us(self, origin_us: int, seq: int) -> int:
        return origin_us + seq * self._over // self._under

    def _due(self, elapsed_us: int) -> int:
        """How many records have ``at`` not after ``elapsed_us``: those with seq * over / under < elapsed + 1."""
        return max(0, -(-(elapsed_us + 1) * self._under // self._over))
