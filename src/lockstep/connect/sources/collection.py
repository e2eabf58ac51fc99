"""Records that are in the job itself: all of them are there at once, or one list per epoch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import pyarrow as pa

from lockstep.connect.protocols import Advance, Place, Slice
from lockstep.connect.sources.ranges import BATCH_ROWS, split_range
from lockstep.connect.specs import CollectionSource
from lockstep.store.arrow import arrow_schema, batch_from_json_lines
from lockstep.store.protocols import Positions


class CollectionSide:
    """The working side of :func:`lockstep.connect.specs.collection`. The position is an index into the records."""

    def __init__(self, spec: CollectionSource, place: Place, source: str) -> None:
        del place, source  # everything is in the spec
        self._spec = spec
        self._schema = arrow_schema(spec.schema)

    def start(self) -> Positions:
        """The first record."""
        return {"0": 0}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """The rest of the list that ``since`` is in, or of all records."""
        del now_us
        start = since.get("0", 0)
        ends = self._spec.epoch_ends
        next_end = bisect_right(ends, start)
        bound = ends[next_end] if next_end < len(ends) else len(self._spec.lines)
        end = min(bound, start + max(1, records_max))
        return Advance({"0": end}, end - start, finished=end == len(self._spec.lines))

    def stop_here(self, now_us: int) -> None:
        """It has an end of its own."""

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """The range in pieces."""
        return split_range("0", start.get("0", 0), end.get("0", 0))

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Parse the records of one piece."""
        for first in range(piece.start, piece.end, BATCH_ROWS):
            lines = self._spec.lines[first : min(piece.end, first + BATCH_ROWS)]
            yield batch_from_json_lines(list(lines), self._schema, first + 1)

    def trim(self, positions: Positions) -> None:
        """The records stay: they are in the job."""

    def close(self) -> None:
        """Nothing is open."""
