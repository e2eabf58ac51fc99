"""Rows in the order that decides which of a key is the newest: sorted in memory, or merged from sorted files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.connect.protocols import ORDER


def in_order(rows: pa.Table) -> pa.Table:
    """The rows sorted by their hidden order, without it.

    >>> in_order(pa.table({"n": [9, 12], ORDER: ["b", "a"]})).column("n").to_pylist()
    [12, 9]
    """
    sorted_rows = rows if rows.num_rows < 2 else rows.take(pc.sort_indices(rows.column(ORDER)))
    return sorted_rows.drop_columns([ORDER])


def merged(runs: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of several sorted runs in one order, without it; one batch of each run is in memory at a time.

    >>> left, right = ([pa.record_batch({"n": numbers, ORDER: order})] for numbers, order in (
    ...     ([1, 3], ["a", "c"]), ([2, 4], ["b", "d"])))
    >>> [n for batch in merged([iter(left), iter(right)]) for n in batch.column("n").to_pylist()]
    [1, 2, 3, 4]
    """
    heads = [(head, run) for run in runs if (head := _next(run)) is not None]
    while heads:
        # Everything up to the earliest end of a batch is here: what follows in any run comes later.
        bound = min(head.column(ORDER)[-1].as_py() for head, _ in heads)
        taken, left = [], []
        for head, run in heads:
            rows = pc.sum(pc.less_equal(head.column(ORDER), bound)).as_py()
            taken.append(head.slice(0, rows))
            rest = head.slice(rows) if rows < head.num_rows else _next(run)
            if rest is not None:
                left.append((rest, run))
        yield from in_order(pa.Table.from_batches(taken)).to_batches()
        heads = left


def _next(run: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    return next((batch for batch in run if batch.num_rows), None)
