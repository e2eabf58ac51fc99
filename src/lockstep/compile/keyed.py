"""Keyed steps in Spark: records in packets to their buckets, an engine per bucket over state in pages, and out again.

    input 0 ──pack──┐                                  ┌──unpack── output 0
    input 1 ──pack──┴─ group by bucket: engine, pages ─┴──unpack── output 1 ...

A packet holds all records of one task that belong to one bucket, as Arrow; a tick tells a bucket the time. So the cost
per key is Python's alone, and Spark sees a few rows in every epoch, however many keys there are. Why it is done this
way, with measurements: docs/decisions/0009-state-in-pages.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce, singledispatch

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    VariantType,
)

from lockstep.compile.aggregates import one_zero
from lockstep.compile.hidden_columns import (
    EPOCH_TIME,
    EVENT_TIME,
    MARK,
    OFFSET,
    PART,
    PARTITION,
    SOURCE,
    TYPES,
    WATERMARK,
)
from lockstep.compile.packets import COUNTED, RESULTS, KeyedProcessor, Packer, Unpacker
from lockstep.compile.stages import spark_schema_text
from lockstep.compile.steps import Context, Lowered, _column, _lower
from lockstep.compile.tasks import together
from lockstep.errors import PlanError
from lockstep.keyed.engine import Layout
from lockstep.keyed.loads import LOAD_PREFIX, LOADS
from lockstep.keyed.operator import Operator
from lockstep.plan.expression import Column
from lockstep.plan.keyed import KeyedStep, SideOutput
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema


@singledispatch
def operator_of(step: KeyedStep, inputs: tuple[pa.Schema, ...]) -> Operator:  # noqa: ARG001
    """The operator of a keyed step over inputs of these schemas: an input's columns, then its computed values."""
    raise AssertionError(f"no operator for {type(step).__name__}")


def operator_kinds() -> frozenset[type]:
    """The keyed steps that have an operator."""
    return frozenset(operator_of.registry) - {object, KeyedStep}


@_lower.register
def _keyed(step: KeyedStep, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    prepared = [_prepared(step, number, given, context.buckets) for number, given in enumerate(inputs)]
    schemas = tuple(_values_schema(step, number, inputs[number], frame) for number, (frame, _) in enumerate(prepared))
    operator = operator_of(step, schemas)
    timed = step.keeps_times and any(_is_timed(given) for given in inputs)
    # Without event times results are in order of their numbers, which they have anyway.
    ordered = timed and id(step) in context.above_ordered
    packets = [
        frame.mapInArrow(Packer(number, context.buckets, _packed_schema(frame), layout.keys, _is_timed(given)), COUNTED)
        for number, ((frame, layout), given) in enumerate(zip(prepared, inputs, strict=True))
    ]
    processor = KeyedProcessor(
        step.id,
        operator,
        [layout for _, layout in prepared],
        [_packed_schema(frame) for frame, _ in prepared],
        buckets=context.buckets,
        ordered=ordered,
    )
    packed = together(_observed(step, reduce(DataFrame.union, packets)), one_task=context.one_task)
    results = packed.groupBy("bucket").transformWithState(
        processor, StructType.fromDDL(RESULTS), context.output_mode, "None"
    )
    unpackers = [Unpacker(step.id, schema, timed=timed, ordered=ordered) for schema in operator.outputs]
    outputs = [_output(results, number, unpacker) for number, unpacker in enumerate(unpackers)]
    sides = dict(zip(step.side_outputs, outputs[1:], strict=True))
    # The sign of a change comes after the columns, where the hidden ones begin.
    sign = tuple((name, TYPES[name]) for name in outputs[0].columns[len(step.columns) :])
    return Lowered(outputs[0].frame, step.columns, (*sign, *outputs[0].hidden), sides)


def _observed(step: KeyedStep, packets: DataFrame) -> DataFrame:
    """The packets; Spark's report on the epoch gets what tasks counted. A set: what was computed twice counts once."""
    loads = sf.sort_array(sf.collect_set(sf.col("load"))).alias(LOADS)
    return packets.observe(f"{LOAD_PREFIX}{step.id}", loads).drop("load")


@_lower.register
def _side_output(step: SideOutput, inputs: tuple[Lowered, ...], context: Context) -> Lowered:  # noqa: ARG001
    return inputs[0].sides[step.output]


def _prepared(step: KeyedStep, number: int, given: Lowered, buckets: int) -> tuple[DataFrame, Layout]:
    """What a packer reads: values, keys that are no columns, hash, position; then bucket, mark, watermark, time."""
    assert given.marked and WATERMARK in given.hidden_names, "a source above a keyed step sends ticks"
    keys = step.keys[number]
    computed = [(name, _unmarked(_column(value, given, step))) for name, value in step.computed(number)]
    values = [*(sf.col(f"`{name}`") for name in given.columns), *(value for _, value in computed)]
    places: list[int] = []
    extra: list[SparkColumn] = []
    parts: list[SparkColumn] = []
    for name, expression in keys or ():
        column = _column(expression, given, step)
        kind = given.frame.select(column).schema.fields[0].dataType
        _check_key(step, name, kind)
        column = one_zero(column, kind)
        parts.append(column)
        if isinstance(expression, Column) and expression.name in given.columns and not _is_float(kind):
            places.append(given.columns.index(expression.name))
        else:
            places.append(len(values) + len(extra))
            extra.append(_unmarked(column))
    key_hash = _hash(step, parts, broadcast=keys is None)
    bucket = sf.pmod(key_hash, sf.lit(buckets)).cast("int")
    tail = [key_hash, *_position(given), bucket, sf.col(MARK), sf.unix_micros(sf.col(WATERMARK)), _epoch_time_us()]
    named = [column.alias(f"c{place}") for place, column in enumerate([*values, *extra, *tail])]
    return given.frame.select(*named), Layout(len(values), None if keys is None else tuple(places))


def _hash(step: KeyedStep, keys: Sequence[SparkColumn], *, broadcast: bool) -> SparkColumn:
    if broadcast:
        return sf.lit(0).cast("bigint")
    if not keys and step.spread:
        return sf.xxhash64(sf.col(SOURCE), sf.col(PARTITION), sf.col(OFFSET))
    return sf.when(sf.col(MARK).isNull(), sf.xxhash64(sf.lit(0), *keys))


def _position(given: Lowered) -> list[SparkColumn]:
    time = sf.unix_micros(sf.col(EVENT_TIME)) if _is_timed(given) else sf.lit(None).cast("bigint")
    part = sf.col(PART) if PART in given.hidden_names else sf.lit(None).cast(TYPES[PART])
    return [time, sf.col(SOURCE), sf.col(PARTITION), sf.col(OFFSET), part]


def _epoch_time_us() -> SparkColumn:
    return sf.unix_micros(sf.col(EPOCH_TIME))


def _unmarked(column: SparkColumn) -> SparkColumn:
    """Expressions are not evaluated on mark rows."""
    return sf.when(sf.col(MARK).isNull(), column)


def _is_timed(given: Lowered) -> bool:
    return EVENT_TIME in given.hidden_names


def _is_float(kind: DataType) -> bool:
    return isinstance(kind, FloatType | DoubleType)


def _check_key(step: KeyedStep, name: str, kind: DataType) -> None:
    if isinstance(kind, ArrayType | MapType | StructType | VariantType):
        how = {
            ArrayType: f'F.concat_ws(",", "{name}")',
            MapType: f'F.to_json("{name}"), or the entry that matters: F.col("{name}")["id"]',
            StructType: f'its fields: .key_by(id="{name}.id")',
        }.get(type(kind), f'F.to_json("{name}")')
        raise PlanError(
            "LS0150",
            f'"{name}" of {step.where} cannot be a key: it is {kind.simpleString()}',
            why="a key is one plain value, which every replica compares and hashes in the same way.",
            hint=f"key by a text or a number made from it: {how}.",
        )


def _packed_schema(frame: DataFrame) -> pa.Schema:
    """The Arrow schema of a packet: all columns but those that only the packer reads."""
    return to_arrow_schema(StructType(frame.schema.fields[: -Packer.own_columns]), timezone="UTC")


def _values_schema(step: KeyedStep, number: int, given: Lowered, frame: DataFrame) -> pa.Schema:
    """What the operator sees of an input: its columns, then the computed values, under their names."""
    names = [*given.columns, *(name for name, _ in step.computed(number))]
    # Names of computed values begin as hidden ones do, which a schema's own check would refuse.
    types = arrow_schema(parse_schema(spark_schema_text(StructType(frame.schema.fields[: len(names)]))))
    return pa.schema([(name, field.type) for name, field in zip(names, types, strict=True)])


def _output(results: DataFrame, number: int, unpacker: Unpacker) -> Lowered:
    schema = unpacker.full_schema()
    columns, hidden = unpacker.schema.names, schema.names[len(unpacker.schema) :]
    frame = results.filter(sf.col("output") == number).mapInArrow(
        unpacker, from_arrow_schema(schema, prefer_timestamp_ntz=True)
    )
    return Lowered(frame, tuple(columns), tuple((name, TYPES.get(name, "timestamp")) for name in hidden))
