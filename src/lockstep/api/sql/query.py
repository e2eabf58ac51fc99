"""From a text in SQL and a job to a stream of that job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lockstep.api.registry import Registry
from lockstep.api.sql.locations import QueryText
from lockstep.api.sql.parse import parse
from lockstep.api.sql.translate import Translator
from lockstep.api.stream import Stream
from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.specs import TableSpec
from lockstep.plan.steps import EventTime, Source, Step


def sql_stream(registry: Registry, text: Any, name: str | None, given: Mapping[str, Any]) -> Stream:
    """The stream of a query over the job's streams and those ``given`` by name; a failed query leaves no steps."""
    if not isinstance(text, str):
        raise ExpressionError("LS0238", f"job.sql(...) was given a {type(text).__name__}, not a text in SQL")
    for key, value in given.items():
        _check_given(registry, key, value)
    streams = {**_known(registry), **{key: value for key, value in given.items() if isinstance(value, Stream)}}
    tables = {key: value for key, value in given.items() if not isinstance(value, Stream)}
    query, steps_before = QueryText(text), len(registry.steps)
    try:
        made = Translator(query, streams, tables).stream(parse(query))
        called = made if name is None else _called(made, name, fresh=len(registry.steps) > steps_before)
    except Exception:
        del registry.steps[steps_before:]
        raise
    registry.queried.update(dict.fromkeys(step.id for step in registry.steps[steps_before:]))
    return called


def _known(registry: Registry) -> dict[str, Stream]:
    """The job's streams by the names of their last steps; a source with its event time, if that is declared once."""
    streams: dict[str, Stream] = {}
    for step in registry.steps:
        timed = [other for other in registry.steps if isinstance(other, EventTime) and other.input is step]
        meant: Step = timed[0] if isinstance(step, Source) and len(timed) == 1 else step
        streams[step.id] = Stream(registry, meant)
    return streams


def _called(stream: Stream, name: str, *, fresh: bool) -> Stream:
    """The stream with its last step called ``name``: a step of the query itself, or a new one that changes nothing."""
    registry = stream._registry
    if not fresh or registry.steps[-1] is not stream._step:
        return stream.select("*", name=name)
    registry.steps.pop()
    return stream._then(replace(stream._step, id=registry.new_id("sql", name)))


def _check_given(registry: Registry, name: str, value: Any) -> None:
    if isinstance(value, Stream):
        if value._registry is not registry:
            raise PlanError(
                "LS0136",
                f'the stream "{name}" belongs to another job: "{value._registry.job}", not "{registry.job}"',
                hint="make both from the same Job.",
            )
        return
    if not isinstance(value, type) and isinstance(value, TableSpec):
        return
    raise ExpressionError(
        "LS0238",
        f"job.sql(..., {name}=...) was given a {type(value).__name__}, neither a stream nor a table",
        hint=f'job.sql(..., {name}=job.source("{name}", ...)), or {name}=ls.table(...).',
    )
