"""Rows on their way to a keyed sink that are taken back: the last column :data:`CHANGED` says which they are."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.connect.protocols import CHANGED


def own_columns(schema: pa.Schema) -> pa.Schema:
    """The columns that a table has: without the one that says what to do with a row.

    >>> own_columns(pa.schema([("user", pa.string()), (CHANGED, pa.int32())])).names
    ['user']
    """
    return pa.schema([field for field in schema if field.name != CHANGED])


def parted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The rows that are taken back and those that begin to hold, without the column that tells them apart.

    Those that are taken back go first: a key's old row stands before the new one.
    """
    columns = own_columns(batch.schema).names
    if CHANGED not in batch.schema.names:
        return batch.slice(0, 0), batch
    gone = pc.less(batch.column(CHANGED), 0)
    return batch.filter(gone).select(columns), batch.filter(pc.invert(gone)).select(columns)
