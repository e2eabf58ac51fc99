"""Fingerprints of an epoch's output that do not depend on the order of its rows or partitions.

Each row gets two independent 64-bit hashes, computed by Spark in generated code; an epoch's digest is the number of
rows and the two sums modulo 2^64. Addition commutes, so order does not matter; repeating or losing a row changes both.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from lockstep.errors import ConnectError

HASHES = ("__hash_1", "__hash_2")
_MASK = (1 << 64) - 1


def hash_columns(schema: StructType, sink: str) -> list[SparkColumn]:
    """The two hash columns over all of ``schema``'s columns."""
    parts: list[SparkColumn] = []
    for field in schema.fields:
        _refuse_nested_maps(field.dataType, field.name, sink, top=True)
        parts += _flagged(sf.col(f"`{field.name}`"), field.dataType)
    return [sf.xxhash64(sf.lit(salt), *parts).alias(name) for salt, name in zip((1, 2), HASHES, strict=True)]


def _flagged(column: SparkColumn, kind: DataType) -> list[SparkColumn]:
    """What to hash for a value, at every depth: itself, whether it is null, and how long it is.

    xxhash64 passes over nulls and knows no bounds, so (null, 1) and (1, null), or [[1], [2]] and [[1, 2]], would hash
    alike without.
    """
    null = sf.isnull(column)
    if isinstance(kind, StructType):
        inner = [part for field in kind.fields for part in _flagged(column.getField(field.name), field.dataType)]
        return [null, *inner]
    if isinstance(kind, MapType):
        entry = StructType([StructField("key", kind.keyType, False), StructField("value", kind.valueType)])
        return _flagged(sf.array_sort(sf.map_entries(column)), ArrayType(entry, False))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return [null, sf.size(column), sf.transform(column, lambda item: sf.struct(*_flagged(item, element)))]
    return [column, null]


def _refuse_nested_maps(data_type: DataType, name: str, sink: str, *, top: bool) -> None:
    inner: list[DataType] = []
    if isinstance(data_type, MapType):
        if not top:
            raise ConnectError(
                "LS0520",
                f'column "{name}" of sink "{sink}" has a map inside another type',
                why="the entries of a map have no order, so two replicas cannot compare it.",
                hint="turn it into an array of structs first: F.array_sort(F.map_entries(...)).",
            )
        inner = [data_type.keyType, data_type.valueType]
    elif isinstance(data_type, ArrayType):
        inner = [data_type.elementType]
    elif isinstance(data_type, StructType):
        inner = [field.dataType for field in data_type.fields]
    for part in inner:
        _refuse_nested_maps(part, name, sink, top=False)


def hash_sums(batch: pa.RecordBatch | pa.Table) -> tuple[int, int]:
    """The two sums of a batch's hash columns, modulo 2^64."""
    sums = [int(pc.sum(batch.column(name)).as_py() or 0) & _MASK for name in HASHES]
    return sums[0], sums[1]


def digest_text(rows: int, sums: tuple[int, int]) -> str:
    """A digest as it is stored and compared.

    >>> digest_text(2, (1, 255))
    '2-000000000000000100000000000000ff'
    """
    return f"{rows}-{sums[0] & _MASK:016x}{sums[1] & _MASK:016x}"


def add_sums(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
    """The sums of two parts of one epoch together.

    >>> add_sums((2**64 - 1, 1), (1, 1))
    (0, 2)
    """
    return (left[0] + right[0]) & _MASK, (left[1] + right[1]) & _MASK
