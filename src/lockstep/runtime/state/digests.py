"""A fingerprint of the state in a checkpoint at one batch, for each operator: equal in all replicas that are right.

Two replicas' files differ byte by byte (RocksDB compacts when it likes) and so do their partitions. So rows are hashed:
each key with its value, as Spark's own reader of state gives them, and the hashes added up as those of an output are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from lockstep.compile.digests import HASHES, add_sums, digest_text, hash_columns
from lockstep.connect.remote.paths import AnyPath, RemotePath
from lockstep.runtime.state.state_metadata import StateOperator, state_operators

_INDEX = "index"
_INDEXED = "-keyWithIndexToValue"
_AGGREGATES = frozenset({"stateStoreSave", "sessionWindowStateStoreSaveExec"})
_HALF = (1 << 32) - 1


def state_digest(spark: SparkSession, checkpoint: AnyPath, batch: int, *, exact_floats: bool = True) -> dict[str, str]:
    """Operator ("0 symmetricHashJoin") -> digest of its rows after ``batch``; empty for a query without state.

    The query may be running: a committed version does not change, and is there as long as Spark keeps it. Without
    ``exact_floats`` floats are left out, and bytes that may hold some: they depend on the order of addition.

    A small Spark job for each store, one after the other: between two of them an epoch has its turn, even where there
    is only one core.
    """
    digests: dict[str, str] = {}
    with _plain_name(checkpoint) as folder:
        for operator in state_operators(checkpoint, batch):
            rows, sums = 0, (0, 0)
            for options in _readings(operator):
                frame = _hashed(spark, folder, batch, operator, options, exact_floats=exact_floats)
                more, added = _added_up(frame)
                rows, sums = rows + more, add_sums(sums, added)
            digests[f"{operator.number} {operator.name}"] = digest_text(rows, sums)
    return digests


def _added_up(frame: DataFrame) -> tuple[int, tuple[int, int]]:
    """How many rows there are, and the sums of their hashes: added up in halves, since whole ones would overflow."""
    sums = [sf.sum(sf.col(name).bitwiseAND(sf.lit(_HALF))) for name in HASHES]
    sums += [sf.sum(sf.shiftrightunsigned(sf.col(name), 32)) for name in HASHES]
    (row,) = frame.agg(sf.count("*"), *sums).collect()
    low, high = (row[1] or 0, row[2] or 0), (row[3] or 0, row[4] or 0)
    return row[0], (low[0] + (high[0] << 32), low[1] + (high[1] << 32))


@contextmanager
def _plain_name(checkpoint: AnyPath) -> Iterator[AnyPath]:
    """The same folder under a name without a space: Spark's reader of state looks for ``my%20jobs`` instead."""
    if isinstance(checkpoint, RemotePath) or quote(str(checkpoint)) == str(checkpoint):
        yield checkpoint
        return
    with tempfile.TemporaryDirectory(prefix="lockstep-state-") as folder:
        link = Path(folder) / "checkpoint"
        link.symlink_to(checkpoint.resolve())
        yield link


def _readings(operator: StateOperator) -> Iterator[dict[str, str]]:
    """How Spark's reader is asked for everything that an operator keeps."""
    if operator.variables:
        yield from ({"stateVarName": variable} for variable in operator.variables)
    else:
        yield from ({"storeName": store.name} for store in operator.stores)


def _hashed(
    spark: SparkSession,
    checkpoint: AnyPath,
    batch: int,
    operator: StateOperator,
    options: dict[str, str],
    *,
    exact_floats: bool,
) -> DataFrame:
    """Two hashes for every row that one reading gives."""
    reader = spark.read.format("statestore").option("operatorId", operator.number).option("batchId", batch)
    frame = reader.options(**options).load(str(checkpoint))
    (what,) = options.values()
    columns = [
        # By number: two sums of one step are two fields of one name.
        sf.col(part.name).cast(_numbered(part.dataType))[str(number)].alias(f"{part.name}.{number}")
        for part in frame.schema.fields
        if isinstance(part.dataType, StructType)
        for number, field in enumerate(part.dataType.fields)
        # The records of one key are numbered as they came, which depends on partitions; the numbers mean nothing.
        if not (what.endswith(_INDEXED) and part.name == "key" and field.name == _INDEX)
        and _is_comparable(field.dataType, operator, exact_floats=exact_floats)
    ]
    flat = frame.select(sf.lit(what).alias("store"), *columns)
    return flat.select(*hash_columns(flat.schema, "state"))


def _numbered(kind: StructType) -> StructType:
    return StructType([StructField(str(number), field.dataType) for number, field in enumerate(kind.fields)])


def _is_comparable(kind: DataType, operator: StateOperator, *, exact_floats: bool, top: bool = True) -> bool:
    """Whether equal state has equal values of this type.

    Some aggregates (a set, a percentile) keep what they collect as bytes, in the order in which it came.
    """
    if isinstance(kind, VariantType) or (isinstance(kind, MapType) and not top):
        return False
    if isinstance(kind, BinaryType) and (operator.name in _AGGREGATES or not exact_floats):
        return False
    if isinstance(kind, FloatType | DoubleType) and not exact_floats:
        return False
    return all(_is_comparable(one, operator, exact_floats=exact_floats, top=False) for one in _inner(kind))


def _inner(kind: DataType) -> list[DataType]:
    if isinstance(kind, StructType):
        return [field.dataType for field in kind.fields]
    if isinstance(kind, MapType):
        return [kind.keyType, kind.valueType]
    return [kind.elementType] if isinstance(kind, ArrayType) else []
