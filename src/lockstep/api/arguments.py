"""From what a user passes to a method to what a step wants, with an explanation where it does not fit."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from lockstep.errors import PlanError
from lockstep.plan.columns import value_of
from lockstep.plan.expression import Alias, Column, Expression, call, unaliased
from lockstep.plan.schema import Schema, parse_schema, unknown_column
from lockstep.plan.specs import SinkSpec, SourceSpec
from lockstep.plan.steps import Named
from lockstep.plan.typo_hints import real_column


class UnknownMethod(PlanError, AttributeError):
    """LS0133 as an AttributeError, so that ``hasattr`` and tools that look around behave."""


def named_values(values: Mapping[str, Any], columns: Sequence[str]) -> Named:
    """``total="a + b"`` and the like: the keyword is the column's name."""
    return tuple((name, unaliased(value_of(value, columns))) for name, value in values.items())


def listed_values(values: Sequence[Any], columns: Sequence[str], method: str) -> Named:
    """Names of columns, ``"*"`` for all of them, and expressions that carry a name."""
    made: list[tuple[str, Expression]] = []
    for value in values:
        if isinstance(value, str) and value == "*":
            made += [(name, Column(name)) for name in columns]
        else:
            made.append(_listed_value(value, columns, method))
    return tuple(made)


def _listed_value(value: Any, columns: Sequence[str], method: str) -> tuple[str, Expression]:
    match value:
        case str() if value in columns:
            return value, Column(value)
        case str() if value.isidentifier():
            raise unknown_column(value, columns, f".{method}(...)")
        case Alias():
            return value.name, value.of
        case Column():
            return value.name.split(".")[-1].strip("`"), value
    if (error := real_column(value)) is not None:
        raise error
    example = "total=F.sum(...)" if method == "agg" else 'who="lower(user)"'
    raise PlanError(
        "LS0132",
        f"a column of .{method}(...) has no name",
        why=f"it was given: {value}.",
        hint=f'.{method}({example}), or add .alias("name") to an expression.',
    )


def one_function(function: str, listed: tuple[Any, ...], named: Mapping[str, Any], columns: Sequence[str]) -> Named:
    """``sum("ms", total="a + b")``: the function of each; a result has its column's name."""
    made = [(_result_name(value, function), value_of(value, columns)) for value in listed]
    made += [(name, value_of(value, columns)) for name, value in named.items()]
    if not made:
        raise PlanError(
            "LS0132", f".{function}() was given nothing", hint=f'.{function}("ms"), .{function}(total="a + b")'
        )
    return tuple((name, call(function, unaliased(value))) for name, value in made)


def _result_name(value: Any, function: str) -> str:
    match value:
        case str() if value.isidentifier():
            return value
        case Alias():
            return value.name
        case Column():
            return value.name
    raise PlanError(
        "LS0132",
        f"a column of .{function}(...) has no name",
        why=f"it was given: {value if isinstance(value, str | Expression) else repr(value)}.",
        hint=f'.{function}(total="a + b")',
    )


def step_name(name: Any, columns: Sequence[str], method: str) -> str | None:
    """The ``name=`` of a step, where a column called "name" might have been meant instead (LS0134)."""
    if name is None or (isinstance(name, str) and name not in columns):
        return name
    raise name_is_the_step(name, method)


def name_is_the_step(name: Any, method: str) -> PlanError:
    """The error for ``name=`` where a column called "name" seems to be meant."""
    column_way = '{"name": ...}' if method == "rename" else 'an expression with .alias("name")'
    return PlanError(
        "LS0134",
        f".{method}(name=...) names the step, not a column",
        why=f"it was given {name!r}, which looks as if a column was meant.",
        hint=f"for a column called name: .{method}({column_way}); for the step's name choose one that is no column.",
    )


def source_spec(name: str, spec: Any) -> SourceSpec:
    """``spec`` if it is a source's, else why it is not (LS0108, LS0109)."""
    if not isinstance(spec, type) and isinstance(spec, SourceSpec) and isinstance(spec.schema, Schema):
        return spec
    if isinstance(spec, SinkSpec) and not isinstance(spec, type):
        raise PlanError(
            "LS0109",
            f'the source "{name}" has no schema',
            why=f"{spec.describe()} was made without one, and so it is a sink.",
            hint=f'ls.{spec.kind}(..., schema="user string, at timestamp"), where this kind can be read at all.',
        )
    raise PlanError(
        "LS0108",
        f'the source "{name}" is a {_kind(spec)}, not a source',
        why=f"it was given {spec!r}.",
        hint='job.source("logins", ls.journal("logins", schema="user string, at timestamp"))',
    )


def sink_spec(spec: Any) -> SinkSpec:
    """``spec`` if it is a sink's, else why it is not (LS0108)."""
    if isinstance(spec, SinkSpec) and not isinstance(spec, type):
        return spec
    why, hint = (
        f"it was given {spec!r}.",
        '.to(ls.files("out/alerts")), .to(ls.sqlite(...)), ls.postgres(...), ls.delta(...) or ls.console()',
    )
    if isinstance(spec, SourceSpec) and not isinstance(spec, type):
        why = f"{spec.describe()} is a source: it was made with a schema."
        hint = f"without schema= it is a sink: .to(ls.{spec.kind}(...)), where this kind can be written at all."
    elif isinstance(spec, str):
        hint = f'.to(ls.files("{spec}"))'
    raise PlanError("LS0108", f".to(...) was given a {_kind(spec)}, not a sink", why=why, hint=hint)


def python_schema(schema: Any, method: str) -> Schema:
    """The declared schema of what a Python function returns; LS0131 if it was forgotten."""
    if schema is None:
        raise PlanError(
            "LS0131",
            f".{method}(...) needs schema=",
            why="nobody can tell from a Python function which columns it returns.",
            hint=f'.{method}(function, schema="user string, total bigint")',
        )
    return parse_schema(schema)


def explain_missing(owner: object, asked: str, explanations: Mapping[str, str]) -> NoReturn:
    """The error for a method that is not there, with what to write instead (LS0133)."""
    if asked.startswith("_"):
        raise AttributeError(asked)
    cls = type(owner)
    methods = [name for name, _ in inspect.getmembers(cls, inspect.isfunction) if not name.startswith("_")]
    hint = explanations.get(asked, explanations.get("", "")) or f"it has: {', '.join(methods)}."
    raise UnknownMethod("LS0133", f"a {cls.__name__} has no .{asked}", hint=hint)


def _kind(value: object) -> str:
    return value.__name__ if isinstance(value, type) else type(value).__name__
