"""Records as people have them in Python, as an Arrow table of a journal's schema.

Dicts, dataclasses and named tuples go one after the other through the checks that JSON lines go through. Columns of
Arrow, pandas and Polars are taken as they are where their type is the schema's, or can be widened to it without loss;
the values of any other column take the slow way, which knows which record does not fit, and why.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.errors import StoreError
from lockstep.store.arrow import batch_from_pylist, refused
from lockstep.store.types import schema_text, spark_type
from lockstep.store.values import TIMESTAMP_US_MAX, TIMESTAMP_US_MIN, Unfit, converter

if TYPE_CHECKING:
    import pandas as pd

_US_PER_DAY = 86_400_000_000


@runtime_checkable
class ArrowStream(Protocol):
    """Columns that Arrow can take over: its own tables and batches, Polars' frames, DuckDB's results."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Arrow's own way from one library to another."""


Records = Iterable[object] | ArrowStream
"""Dicts, dataclasses or named tuples, one for each record; or a table of pandas, Polars or Arrow."""


def table_from_records(records: Records, schema: pa.Schema) -> pa.Table:
    """The records as a table of this schema; missing fields are null. LS0403 names the first that does not fit.

    >>> schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
    >>> table_from_records([{"user": "ann", "n": 1}, {"user": "bob"}], schema).to_pylist()
    [{'user': 'ann', 'n': 1}, {'user': 'bob', 'n': None}]
    >>> table_from_records(pa.table({"n": ["1", "two"]}), schema)
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.StoreError: LS0403 record 1: field "n" should be bigint, but "1" (string) came
      why:  whole numbers have no quotes, no fraction and no exponent.
      try:  mend the record; nothing of this call was kept. The schema is: user string, n bigint.
    """
    if isinstance(records, Mapping | str | bytes):
        raise _one_record(records)
    if _is_pandas(records):
        return _from_pandas(records, schema)
    if isinstance(records, ArrowStream):
        return _fitting(pa.table(records), schema)
    return pa.Table.from_batches([batch_from_pylist([_fields(record) for record in records], schema)])


def _is_pandas(records: object) -> TypeGuard[pd.DataFrame]:
    """Whether it is a frame of pandas, which is not loaded for this question: it takes a third of a second."""
    kind = type(records)
    return kind.__name__ == "DataFrame" and kind.__module__.partition(".")[0] == "pandas"


def _fields(record: Any) -> Any:
    """A record's fields by name; what is no record stays as it is, and is refused with its number."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.asdict(record)
    return record._asdict() if isinstance(record, tuple) and hasattr(record, "_asdict") else record


def _from_pandas(frame: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    try:
        table = pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError):
        # A column of several kinds of values: its records are looked at one by one.
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        return pa.Table.from_batches([batch_from_pylist(rows, schema)])
    return _fitting(_with_whole_numbers(table, schema), schema)


def _with_whole_numbers(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """pandas makes floats of whole numbers as soon as one is missing: they are whole numbers again."""
    for at, field in enumerate(table.schema):
        wanted = schema.field(field.name).type if field.name in schema.names else field.type
        column = table.column(at)
        if pa.types.is_integer(wanted) and pa.types.is_floating(field.type) and column.null_count:
            whole = _cast(column, wanted)
            table = table if whole is None else table.set_column(at, field.name, whole)
    return table


def _fitting(table: pa.Table, schema: pa.Schema) -> pa.Table:
    names = table.column_names
    for name in names:
        if name not in schema.names or names.count(name) > 1:
            raise _unknown_column(name, schema)
    columns = [
        _column(table.column(field.name), field, schema)
        if field.name in names
        else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    fitting = pa.Table.from_arrays(columns, schema=schema)
    try:
        fitting.validate(full=True)
    except pa.ArrowInvalid as error:
        raise _damaged(error) from None
    return fitting


def _column(column: pa.ChunkedArray, field: pa.Field, schema: pa.Schema) -> pa.ChunkedArray | pa.Array:
    """A column in the type of its field: as it is, widened, or value by value."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if column.type == field.type or _widens(column.type, field.type):
        cast = _cast(column, field.type)
        if cast is not None and _in_range(cast, field.type):
            return cast
    convert, values = converter(field.type), []
    for number, value in enumerate(column, 1):
        try:
            values.append(convert(_plain(value, field.type)))
        except Unfit as unfit:
            raise refused("record", number, unfit.inside(field.name), schema) from None
    return pa.array(values, field.type)


def _plain(value: pa.Scalar, wanted: pa.DataType) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError) as error:
        raise Unfit(f"should be {spark_type(wanted)}", f"{error}.") from None


def _widens(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether Arrow's cast, which refuses what would not fit, takes what the slow way takes, and nothing else."""
    types = pa.types
    if types.is_null(given):
        return True
    if types.is_timestamp(wanted):
        return types.is_timestamp(given) and (given.tz is None or wanted.tz is not None)
    if types.is_integer(wanted):
        return bool(types.is_integer(given))
    if types.is_floating(wanted):
        return bool(types.is_floating(given) and given.bit_width <= wanted.bit_width)
    if types.is_string(wanted):
        return bool(types.is_large_string(given) or types.is_string_view(given))
    return bool(types.is_binary(wanted) and (types.is_large_binary(given) or types.is_binary_view(given)))


def _cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray | None:
    try:
        return column.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _in_range(column: pa.ChunkedArray, kind: pa.DataType) -> bool:
    """Whether times are in the years 1 to 9999; others are named on the slow way."""
    if pa.types.is_timestamp(kind):
        unit_us, numbers = 1, column.cast(pa.int64())
    elif pa.types.is_date32(kind):
        unit_us, numbers = _US_PER_DAY, column.cast(pa.int32())
    else:
        return True
    found = pc.min_max(numbers).as_py()
    if found["min"] is None:
        return True
    return bool(found["min"] * unit_us >= TIMESTAMP_US_MIN and found["max"] * unit_us <= TIMESTAMP_US_MAX)


def _one_record(records: object) -> StoreError:
    return StoreError(
        "LS0403",
        f"records came as one {type(records).__name__}",
        why="they come as several: a list of dicts, dataclasses or named tuples, or a table.",
        hint='put([{"user": "ann"}]) writes one record; JSON lines are for `lockstep put`.',
    )


def _unknown_column(name: str, schema: pa.Schema) -> StoreError:
    is_there = name in schema.names
    return StoreError(
        "LS0403",
        f'column "{name}" is there twice' if is_there else f'column "{name}" is not in the schema',
        why="which of the two is meant cannot be known." if is_there else f"it has: {schema_text(schema)}.",
        hint="take away or rename the column; nothing of this call was kept.",
    )


def _damaged(error: pa.ArrowInvalid) -> StoreError:
    return StoreError(
        "LS0403",
        "a table is not what it says it is",
        why=f"Arrow says: {error}.",
        hint="see how it was made; nothing of this call was kept.",
    )
