"""Rows that replace each other: the operators of such steps, and how changes end."""

from __future__ import annotations

import pyarrow as pa

from lockstep.compile.keyed import operator_of
from lockstep.compile.rolling import _keys
from lockstep.compile.sketches import bias_for
from lockstep.compile.steps import Context, Lowered, _lower, begun
from lockstep.keyed.changes import AggregateOfChangesOperator, LatestOperator
from lockstep.keyed.operator import Operator
from lockstep.keyed.signed import SignedTotals
from lockstep.plan.changes import AggregateOfChanges, AsEvents, Latest

Schemas = tuple[pa.Schema, ...]


@operator_of.register
def _latest(step: Latest, schemas: Schemas) -> Operator:  # noqa: ARG001
    return LatestOperator(schemas[0])


@operator_of.register
def _aggregate(step: AggregateOfChanges, schemas: Schemas) -> Operator:
    totals = SignedTotals(step.accumulated, schemas[0], step.layout, bias_for(step.accumulated))
    return AggregateOfChangesOperator(totals, pa.schema([*_keys(step, schemas[0]), *totals.schema]))


@_lower.register
def _as_events(step: AsEvents, inputs: tuple[Lowered, ...], context: Context) -> Lowered:  # noqa: ARG001
    return begun(inputs[0])
