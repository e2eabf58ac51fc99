"""What a job can be made of, read off the plan's classes, and what of it the jobs of the matrix have.

Every kind of step; every value of a step's field that is a choice (true or false, or a list of words); every source and
sink with its formats; every window, computation, trigger, state and input of a process function.
"""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import lockstep.compile
import lockstep.plan
from lockstep.connect.kafka.specs import KafkaSink, KafkaSource
from lockstep.connect.specs import AnySink, AnySource
from lockstep.connect.tables import Table
from lockstep.keyed.process import InputKind
from lockstep.keyed.states import State
from lockstep.plan.graph import Graph
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.specs import StageSource
from lockstep.plan.steps import Step
from lockstep.plan.triggers import Firing, Trigger
from lockstep.plan.windowed import Computation
from lockstep.plan.windows import Window

NOT_WANTED = {
    "TableJoin.how = right": "refused: a table's rows have no time at which they would have found no partner",
    "TableJoin.how = full": "refused, as above",
    "FilesSource.on_bad_record = stop": "ends the job: a life goes on",
    "RollingAggregate.per_record = False": "Spark has an aggregation of its own for that",
    "RateSource.limit = None": "never ends: a life does, and its output is compared then",
    "PostgresSink": "needs a server: tests/cluster",
    "DeltaSink": "needs an extra: tests/unit/connect/test_connect_delta.py",
    "Table.copy = given": "made by a running job",
    **{
        f"{kind}.guarantee = {one}": "inside a job all is exactly once"
        for kind in ("LoopEnd", "StageSink")
        for one in ("at-least-once", "at-most-once")
    },
}
"""Choices that no job can live with, and why."""
NEEDS_A_SERVER = (KafkaSource, KafkaSink)
"""Ends that a life of the matrix cannot have; tests/cluster puts jobs with them through theirs."""
ENDS = tuple(kind for kind in (*get_args(AnySource), *get_args(AnySink)) if kind not in NEEDS_A_SERVER)
PLAIN_DATA: tuple[type, ...] = (*ENDS, *get_args(Window), Trigger, Firing, Table)
"""Classes inside a step whose fields are choices too."""


def wanted() -> set[str]:
    """Everything that there is."""
    kinds = _step_kinds()
    found = {kind.__name__ for kind in (*kinds, *PLAIN_DATA, *get_args(Computation))}
    found |= {choice for kind in (*kinds, *PLAIN_DATA) for choice in _choices(kind)}
    found |= {f"state: {kind}" for kind in _state_kinds()} | {"state: with a time to live"}
    found |= {f"input: {kind}" for kind in get_args(InputKind)}
    return found - NOT_WANTED.keys()


def covered(graphs: Iterable[Graph]) -> set[str]:
    """Everything that these jobs have."""
    found: set[str] = set()
    for graph in graphs:
        for step in {*graph.steps, *(sink for stage in graph.stages for sink in stage.sinks)}:
            found |= set(_of_step(step))
        # What reads a journal inside the job is made when it is compiled.
        found |= {StageSource.__name__} if graph.boundaries or graph.loops else set()
    return found


def _of_step(step: Step) -> Iterator[str]:
    yield type(step).__name__
    yield from _values(step)
    process = getattr(step, "process", None)
    if process is not None and hasattr(process, "states"):
        for state in process.states().values():
            yield f"state: {state.kind}"
            if state.ttl_us is not None:
                yield "state: with a time to live"
    for kind in getattr(step, "kinds", ()):
        yield f"input: {kind}"


def _values(holder: Any) -> Iterator[str]:
    """The choices that were made in an object, and in the plain data below it."""
    choices = set(_choices(type(holder)))
    for field in dataclasses.fields(holder):
        value = getattr(holder, field.name)
        yield from {_words(owner, field.name, value) for owner in type(holder).__mro__} & choices
        if isinstance(value, (*PLAIN_DATA, *get_args(Computation))):
            yield type(value).__name__
            yield from _values(value)


def _choices(kind: type) -> Iterator[str]:
    """``Class.field = value`` for every value of every field that is a choice; optional ones are given or not."""
    if not dataclasses.is_dataclass(kind):
        return
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        for value in _values_of(hints[field.name]):
            yield _words(kind, field.name, value)


def _values_of(hint: Any) -> tuple[Any, ...]:
    if hint is bool:
        return (True, False)
    if get_origin(hint) is Literal:
        return get_args(hint)
    if get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint):
        return (None, GIVEN)
    return ()


GIVEN = "given"


def _words(kind: type, field: str, value: Any) -> str:
    known = value if value is None or isinstance(value, bool | str) else GIVEN
    return f"{kind.__name__}.{field} = {known}"


def _step_kinds() -> list[type[Step]]:
    for package in (lockstep.plan, lockstep.compile):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    return [kind for kind in _below(Step) if not kind.__name__.startswith("_") and kind is not KeyedStep]


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for one in kind.__subclasses__():
        if one.__module__.startswith("lockstep."):
            yield one
            yield from _below(one)


def _state_kinds() -> set[str]:
    return {kind.kind for kind in _below(State)}
