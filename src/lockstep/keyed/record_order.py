"""The order of the records of an epoch: by event time, then by position, then by content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lockstep.keyed.codec import pack
from lockstep.keyed.columns import rows_of
from lockstep.keyed.operator import Position

POSITION_COLUMNS = 5
"""The last columns of a batch: event time (microseconds), source, partition, offset, part."""
_BEFORE_ALL = np.iinfo(np.int64).min


def sorted_order(batches: Sequence[pa.RecordBatch], inputs: Sequence[int]) -> list[int] | None:
    """The places of the records in order; None if they stand in order already.

    Batches may have different columns, but all end with the position.
    """
    levels = [_level([batch.column(batch.num_columns - POSITION_COLUMNS + i) for batch in batches]) for i in range(5)]
    rows = len(levels[0])
    if rows < 2:
        return None
    order = None if _is_sorted(levels) else np.lexsort(levels[::-1])
    placed = levels if order is None else [level[order] for level in levels]
    same = np.ones(rows - 1, dtype=bool)
    for level in placed:
        same &= level[1:] == level[:-1]
    if same.any():
        return _by_content(order if order is not None else np.arange(rows), same, batches, inputs)
    return None if order is None else order.tolist()


def positions_of(columns: Sequence[pa.Array]) -> list[Position]:
    """The positions of a batch's records; they compare as :func:`sorted_order` compares them."""
    source, partition, offset, part = (column.to_pylist() for column in columns[1 - POSITION_COLUMNS :])
    # A record that is no part of another one comes before those that are: the shorter tuple does.
    return [
        (one[0] or "", one[1] or "", one[2], *(() if one[3] is None else one[3:]))
        for one in zip(source, partition, offset, part, strict=True)
    ]


def _level(columns: Sequence[pa.Array]) -> Any:
    """One sort key over all batches as numbers: texts as their rank among the few there are."""
    column = pa.chunked_array(columns) if len(columns) > 1 else columns[0]
    if pa.types.is_string(column.type):
        return _ranks(column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column)
    if column.null_count:
        column = pc.fill_null(column, int(_BEFORE_ALL))
    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else column.to_numpy(zero_copy_only=False)


def _ranks(column: pa.Array) -> Any:
    coded = column.dictionary_encode()
    known = coded.dictionary.to_pylist()
    rank = {text: place for place, text in enumerate(sorted(known))}
    # The last place is for nulls, which come first.
    ranks = np.array([*(rank[text] for text in known), -1], dtype=np.int64)
    return ranks[coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)]


def _is_sorted(levels: Sequence[Any]) -> bool:
    """Whether each record is at or after the one before it."""
    undecided = np.ones(len(levels[0]) - 1, dtype=bool)
    for level in levels:
        before, after = level[:-1], level[1:]
        if (undecided & (after < before)).any():
            return False
        undecided &= after == before
        if not undecided.any():
            return True
    return True


def _by_content(order: Any, same: Any, batches: Sequence[pa.RecordBatch], inputs: Sequence[int]) -> list[int]:
    """Put records of one position (a stream united with itself) into the order of what they say."""
    places: list[int] = order.tolist()
    tied = np.append(same, False) | np.append(False, same)
    said = _contents(sorted(order[tied].tolist()), batches, inputs)
    start = 0
    for end in [*(np.flatnonzero(~same) + 1).tolist(), len(places)]:
        if end - start > 1:
            places[start:end] = sorted(places[start:end], key=lambda place: said[place])
        start = end
    return places


def _contents(places: list[int], batches: Sequence[pa.RecordBatch], inputs: Sequence[int]) -> dict[int, bytes]:
    """What the records at these places say, as bytes that can be compared."""
    said: dict[int, bytes] = {}
    first = 0
    for number, batch in zip(inputs, batches, strict=True):
        mine = [place for place in places if first <= place < first + batch.num_rows]
        found = batch.take(pa.array([place - first for place in mine], pa.int64()))
        rows = rows_of(found.columns[: batch.num_columns - POSITION_COLUMNS], len(mine))
        said.update({place: pack([number, *row]) for place, row in zip(mine, rows, strict=True)})
        first += batch.num_rows
    return said
