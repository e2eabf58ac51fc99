"""A job as it is, but for its sources and sinks: they are replaced by ones that a test fills and reads."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from lockstep.api.job import Job
from lockstep.api.loading import is_user_module
from lockstep.connect.specs import FilesSink, JournalSource
from lockstep.plan.expression import Expression
from lockstep.plan.graph import Graph
from lockstep.plan.specs import SinkSpec, SourceSpec, StageJournal
from lockstep.plan.steps import Sink, Source, Step

Spec = SourceSpec | SinkSpec


class JobInMemory(Job):
    """A job whose sources are journals that a test fills, and whose sinks are folders that a test reads."""

    def __init__(self, job: Job) -> None:
        self.name = job.name
        self.options = job.options
        self._registry = job._registry
        graph = job.graph()
        self._graph = with_specs(graph, {**_journals(graph), **_folders(graph)})

    def graph(self) -> Graph:
        """The same steps between other ends."""
        return self._graph


@dataclass(frozen=True)
class FolderInstead(FilesSink):
    """A folder in the place of a sink: it appends, but takes its rows in the order that the sink's key asks for.

    Of changes it keeps those rows too that are taken back, with the column that says so.
    """

    key: tuple[str, ...] = ()  # type: ignore[misc]
    deletes: ClassVar[bool] = True

    def to_json(self) -> dict[str, Any]:
        """As any other folder."""
        return FilesSink(self.path, self.format).to_json()


def with_specs(graph: Graph, specs: Mapping[str, Spec]) -> Graph:
    """The graph with other specs for these sources and sinks; the given one stays as it is."""
    copies: dict[int, Step] = {}
    everything = {id(step): step for step in (*graph.declared, *graph.steps, *graph.sinks)}
    for step in sorted(everything.values(), key=lambda step: step.order):
        copies[id(step)] = _copied(step, copies, specs.get(step.id))
    sinks = tuple(sink for sink in (copies[id(each)] for each in graph.sinks) if isinstance(sink, Sink))
    return replace(graph, sinks=sinks, declared=tuple(copies[id(step)] for step in graph.declared))


def in_memory_sinks(graph: Graph) -> tuple[Sink, ...]:
    """The sinks that a test can read: all but the journals inside the job."""
    return tuple(sink for sink in graph.sinks if not isinstance(sink.spec, StageJournal))


def user_modules(graph: Graph) -> tuple[str, ...]:
    """The modules of the functions and classes that the job calls, and their neighbours: workers cannot import them."""
    folders = {Path(file).resolve().parent for step in graph.steps for file in _files(step)}
    return tuple(sorted(name for name, module in list(sys.modules.items()) if _is_in(module, folders)))


def _journals(graph: Graph) -> dict[str, Spec]:
    return {step.id: JournalSource(step.id, step.spec.schema) for step in graph.sources}


def _folders(graph: Graph) -> dict[str, Spec]:
    return {sink.id: FolderInstead(f"sinks/{sink.id}", key=sink.spec.key) for sink in in_memory_sinks(graph)}


def _copied(step: Step, copies: Mapping[int, Step], spec: Spec | None) -> Step:
    """Copied, not made anew: checks have been passed, and the order of creation stays."""
    made = copy.copy(step)
    for field in fields(step):
        value = getattr(step, field.name)
        object.__setattr__(made, field.name, _mapped(value, copies))
    if spec is not None and isinstance(made, Source | Sink):
        object.__setattr__(made, "spec", spec)
    return made


def _mapped(value: Any, copies: Mapping[int, Step]) -> Any:
    if isinstance(value, Step):
        return copies[id(value)]
    if isinstance(value, tuple) and any(isinstance(each, Step) for each in value):
        return tuple(_mapped(each, copies) for each in value)
    return value


def _files(step: Step) -> list[str]:
    """The files in which what a step runs was written, if they are the user's."""
    values = [getattr(step, field.name) for field in fields(step)]
    modules = [
        inspect.getmodule(each if inspect.isroutine(each) or isinstance(each, type) else type(each))
        for value in values
        for each in _parts(value)
    ]
    return [str(module.__file__) for module in modules if module is not None and is_user_module(module)]


def _parts(value: Any) -> Iterator[Any]:
    """A value and what it is made of: a window's function lies in a description of what the window computes."""
    if isinstance(value, Step | Expression):
        return
    yield value
    if isinstance(value, tuple | list):
        inside = list(value)
    elif is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, field.name) for field in fields(value)]
    else:
        inside = []
    for each in inside:
        yield from _parts(each)


def _is_in(module: Any, folders: set[Path]) -> bool:
    return is_user_module(module) and Path(module.__file__).resolve().parent in folders
