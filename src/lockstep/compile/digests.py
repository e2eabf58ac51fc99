"""Fingerprints of an epoch's output that do not depend on the order of its rows or partitions.

Each row gets two independent 64-bit hashes, computed by Spark in generated code; an epoch's digest is the number of rows
and the two sums modulo 2^64. Addition commutes, so order does not matter; repeating or losing a row changes both sums.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as spark_functions
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from lockstep.errors import ConnectError

HASHES = ("__hash_1", "__hash_2")
_MASK = (1 << 64) - 1


def hash_columns(schema: StructType, sink: str) -> list[SparkColumn]:
    """The two hash columns over all of ``schema``'s columns."""
    parts: list[SparkColumn] = []
    for field in schema.fields:
        column = spark_functions.col(f"`{field.name}`")
        _refuse_nested_maps(field.dataType, field.name, sink, top=True)
        if isinstance(field.dataType, MapType):
            column = spark_functions.array_sort(spark_functions.map_entries(column))
        # xxhash64 passes over nulls, so (null, 1) and (1, null) would hash alike without the flags.
        parts += [column, spark_functions.isnull(column)]
    return [
        spark_functions.xxhash64(spark_functions.lit(salt), *parts).alias(name)
        for salt, name in zip((1, 2), HASHES, strict=True)
    ]


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
