"""The operators of rolling results and of ``distinct``, made from their steps."""

from __future__ import annotations

import pyarrow as pa

from lockstep.compile.keyed import operator_of
from lockstep.compile.sketches import bias_for
from lockstep.keyed.accumulators import Totals, check_ordered
from lockstep.keyed.distinct import DistinctOperator, LastOperator
from lockstep.keyed.operator import Operator
from lockstep.keyed.reducing import Folder, Reducer
from lockstep.keyed.rolling import AggregateOperator, ExtremeOperator, FoldOperator, ReduceOperator
from lockstep.plan.changes import AggregateOfChanges
from lockstep.plan.distinct import Distinct
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.store.types import arrow_schema

Schemas = tuple[pa.Schema, ...]
RollingStep = RollingReduce | RollingExtreme | RollingFold | RollingAggregate


@operator_of.register
def _reduce(step: RollingReduce, schemas: Schemas) -> Operator:
    record = _record(step, schemas[0])
    output, kept = _whole_record(step, schemas[0])
    return ReduceOperator(Reducer(step.id, step.function, record), kept, output, per_record=step.per_record)


@operator_of.register
def _extreme(step: RollingExtreme, schemas: Schemas) -> Operator:
    check_ordered(f"{step.where} compares records by {step.by}", schemas[0].field(len(schemas[0]) - 1).type)
    output, kept = _whole_record(step, schemas[0])
    return ExtremeOperator(kept, output, largest=step.largest, per_record=step.per_record)


@operator_of.register
def _fold(step: RollingFold, schemas: Schemas) -> Operator:
    schema = arrow_schema(step.schema)
    folder = Folder(step.id, step.function, step.initial, schema, step.record_columns)
    return FoldOperator(folder, pa.schema([*_keys(step, schemas[0]), *schema]), per_record=step.per_record)


@operator_of.register
def _aggregate(step: RollingAggregate, schemas: Schemas) -> Operator:
    totals = Totals(step.accumulated, schemas[0], step.layout, bias_for(step.accumulated))
    return AggregateOperator(totals, pa.schema([*_keys(step, schemas[0]), *totals.schema]), per_record=step.per_record)


@operator_of.register
def _distinct(step: Distinct, schemas: Schemas) -> Operator:
    kind = DistinctOperator if step.keep == "first" else LastOperator
    return kind(_record(step, schemas[0]), step.within_us, by_event_time=step.by_event_time)


def _record(step: RollingStep | Distinct, schema: pa.Schema) -> pa.Schema:
    """The stream's own columns."""
    columns = step.streams[0].columns
    return pa.schema([(name, schema.field(place).type) for place, name in enumerate(columns)])


def _whole_record(step: RollingStep, schema: pa.Schema) -> tuple[pa.Schema, list[int]]:
    """The schema of keys and other columns, and where these others stand in a record."""
    kept = [place for place, name in enumerate(step.record_columns) if name not in step.key_names]
    record = _record(step, schema)
    return pa.schema([*_keys(step, schema), *(record.field(place) for place in kept)]), kept


def _keys(step: RollingStep | AggregateOfChanges, schema: pa.Schema) -> list[pa.Field]:
    """The keys as columns of a result."""
    places = zip(step.key_names, step.key_places(), strict=True)
    return [pa.field(name, schema.field(place).type) for name, place in places]
