"""The plan as plain data: for `--json`, for comparing versions of a job, and for checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import singledispatch
from typing import Any

from lockstep.plan.joins import CoGroup, IntervalJoin, TableJoin, WindowJoin
from lockstep.plan.keyed import SideOutput
from lockstep.plan.loops import LoopHead
from lockstep.plan.processes import ProcessStep
from lockstep.plan.schema import schema_json
from lockstep.plan.steps import (
    Aggregate,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Named,
    Rename,
    Select,
    Sink,
    Source,
    Step,
    Union,
    WithColumns,
)
from lockstep.plan.windows import window_json


def step_json(step: Step) -> dict[str, Any]:
    """A step as plain data: what it is, what it reads, and its own settings."""
    return {
        "id": step.id,
        "step": type(step).__name__,
        "inputs": [before.id for before in step.inputs],
        "columns": list(step.columns),
        **details(step),
    }


def canonical(data: Any) -> str:
    """Plain data as text that is equal for equal data.

    >>> canonical({"b": 1, "a": [2]})
    '{"a":[2],"b":1}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def function_name(function: Callable[..., Any]) -> str:
    """What a Python function is called, without where its file lies.

    >>> function_name(canonical)
    'canonical'
    """
    return str(getattr(function, "__qualname__", type(function).__qualname__))


@singledispatch
def details(step: Step) -> dict[str, Any]:
    """What is particular to a kind of step."""
    raise NotImplementedError(f"{type(step).__name__} has no JSON form")


@details.register
def _(step: Source) -> dict[str, Any]:
    return {"spec": {"kind": step.spec.kind, **step.spec.to_json()}, "schema": schema_json(step.spec.schema)}


@details.register
def _(step: Filter) -> dict[str, Any]:
    return {"condition": step.condition.to_json()}


@details.register
def _(step: Select) -> dict[str, Any]:
    return {"selection": named_json(step.selection)}


@details.register
def _(step: WithColumns) -> dict[str, Any]:
    return {"additions": named_json(step.additions)}


@details.register
def _(step: Drop) -> dict[str, Any]:
    return {"names": list(step.names)}


@details.register
def _(step: Rename) -> dict[str, Any]:
    return {"renames": [list(pair) for pair in step.renames]}


@details.register
def _(step: Union) -> dict[str, Any]:  # noqa: ARG001  (its inputs say it all)
    return {}


@details.register
def _(step: EventTime) -> dict[str, Any]:
    return {
        "time": step.time.to_json(),
        "out_of_order_us": step.out_of_order_us,
        "idle_after_us": step.idle_after_us,
    }


@details.register
def _(step: Aggregate) -> dict[str, Any]:
    return {
        "keys": named_json(step.keys),
        "window": window_json(step.window),
        "aggregates": named_json(step.aggregates),
        "exact_floats": step.exact_floats,
        **({"updates": True} if step.updates else {}),
    }


@details.register(Map)
@details.register(FlatMap)
@details.register(MapBatches)
def _(step: Map | FlatMap | MapBatches) -> dict[str, Any]:
    return {
        "function": function_name(step.function),
        "schema": schema_json(step.schema),
        "on_error": step.on_error,
    }


@details.register
def _(step: LoopHead) -> dict[str, Any]:
    return {"rounds_max": step.rounds_max}


@details.register
def _(step: IntervalJoin) -> dict[str, Any]:
    return {**_join_json(step), "lower_us": step.lower_us, "upper_us": step.upper_us}


@details.register
def _(step: WindowJoin) -> dict[str, Any]:
    return {**_join_json(step), "window": window_json(step.window)}


@details.register
def _(step: TableJoin) -> dict[str, Any]:
    return {**_join_json(step), "table": {"kind": step.table.kind, **step.table.to_json()}}


@details.register
def _(step: CoGroup) -> dict[str, Any]:
    return {
        "keys": [named_json(keys or ()) for keys in step.keys],
        "window": window_json(step.window),
        # Whole records are kept until their window closes.
        "records": [list(stream.columns) for stream in step.streams],
        "function": function_name(step.function),
        "schema": schema_json(step.schema),
    }


def _join_json(step: IntervalJoin | WindowJoin | TableJoin) -> dict[str, Any]:
    names = [[one.side, one.column, one.name] for one in step.joined]
    return {"on": [list(pair) for pair in step.on], "how": step.how, "joined": names}


@details.register
def _(step: ProcessStep) -> dict[str, Any]:
    return {
        "keys": [None if keys is None else named_json(keys) for keys in step.keys],
        "kinds": list(step.kinds),
        "states": dict(step.states),
        "ordered": step.ordered,
        "results": {
            "process": function_name(step.function),
            "schema": schema_json(step.schema),
            "side_outputs": {name: schema_json(schema) for name, schema in step.sides},
        },
    }


@details.register
def _(step: SideOutput) -> dict[str, Any]:
    return {"output": step.output}


@details.register
def _(step: Sink) -> dict[str, Any]:
    return {"spec": {"kind": step.spec.kind, **step.spec.to_json()}, "guarantee": step.guarantee}


def named_json(named: Named) -> list[dict[str, Any]]:
    """Named expressions as plain data, in order."""
    return [{"name": name, "expression": expression.to_json()} for name, expression in named]
