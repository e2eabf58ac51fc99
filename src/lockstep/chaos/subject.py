"""The job that is hurt: loaded, copied into a folder of its own, and what chaos has to know of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from lockstep.api.loading import LoadedJob, load_job, save_code
from lockstep.chaos.builtin import expected
from lockstep.chaos.feeding import Fed
from lockstep.chaos.records import Maker, Making
from lockstep.config import CONFIG_FILE
from lockstep.connect.specs import FilesSource, JournalSource
from lockstep.connect.tables import Table
from lockstep.errors import RunError
from lockstep.plan.graph import Graph
from lockstep.plan.joins import TableJoin
from lockstep.plan.steps import Sink, Source, upstream
from lockstep.store.types import arrow_schema

BUILTIN = Path(expected.__file__).with_name("monitor.py")
_DRIVING = frozenset({"files", "rate", "collection"})
"""Sources that bring records by themselves."""

Rows = list[dict[str, Any]]
Reference = Callable[[Mapping[str, Sequence[Mapping[str, Any]]]], Mapping[str, Rows]]
"""From the records of each source, in order, to the rows that each sink has to hold, in any order."""


@dataclass(frozen=True)
class Subject:
    """A job that can be run under chaos."""

    loaded: LoadedJob
    graph: Graph
    feds: Mapping[str, Fed]
    """The journals that chaos feeds, by the source that reads them."""
    reference: Reference | None
    told_by: str
    """Who says what the output has to be, in words for the report."""

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """The sinks that can be compared: those that hold each epoch once and can be read."""
        return tuple(sink for sink in self.graph.sinks if _comparable(sink))


def load_subject(job: str | None, reference: Path | None) -> Subject:
    """The job in a file (without one, the built-in), refused if chaos could not drive it or read its output."""
    loaded = load_job(job if job is not None else str(BUILTIN))
    graph = loaded.job.graph()
    subject = Subject(loaded, graph, _feds(graph, builtin=job is None), *_answer(job, reference))
    _refuse(subject)
    return subject


def copy_project(subject: Subject, project: Path, folder: Path) -> str:
    """Copy the code and the files that the job names into ``folder``; the job there, as `lockstep run` takes it."""
    file = save_code(subject.loaded, folder)
    for name in [CONFIG_FILE, *_inputs(subject.graph).values()]:
        _copy(project / name, folder / name)
    return f"{file}:{subject.loaded.variable}"


def _inputs(graph: Graph) -> dict[str, str]:
    """The paths of files that the job reads, by what they are."""
    found = {f'source "{step.id}"': step.spec.path for step in graph.sources if isinstance(step.spec, FilesSource)}
    tables = [step.table for step in graph.steps if isinstance(step, TableJoin) and isinstance(step.table, Table)]
    return found | {f'table "{table.path}"': table.path for table in tables}


def _copy(source: Path, target: Path) -> None:
    if not source.exists():
        return  # a folder of files may not be there yet
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy2(source, target)


def _answer(job: str | None, reference: Path | None) -> tuple[Reference | None, str]:
    if reference is not None:
        return load_reference(reference), f"the function reference() in {reference.name}"
    if job is None:
        return expected.reference, "a computation in plain Python over what was fed, without Spark and without Lockstep"
    return None, "an undisturbed run of one replica over the same epochs"


def load_reference(path: Path) -> Reference:
    """The function ``reference`` of a user's file."""
    spec = spec_from_file_location("lockstep_chaos_reference", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        raise RunError("LS0654", f"{path} is not a Python file", hint=_REFERENCE_HINT)
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise RunError("LS0654", f"{path.name} failed while it was loaded", why=why, hint=_REFERENCE_HINT) from error
    function = getattr(module, "reference", None)
    if not callable(function):
        raise RunError("LS0654", f"{path.name} has no function called reference", hint=_REFERENCE_HINT)
    found: Reference = function
    return found


_REFERENCE_HINT = (
    "def reference(inputs): return {sink: [row, ...]}, where inputs is {source: [record, ...]}, all dicts."
)


def _feds(graph: Graph, *, builtin: bool) -> dict[str, Fed]:
    timed = {id(before) for step in graph.event_times for before in upstream(step) if isinstance(before, Source)}
    feds: dict[str, Fed] = {}
    for step in graph.sources:
        spec = step.spec
        if not isinstance(spec, JournalSource) or any(fed.journal == spec.name for fed in feds.values()):
            continue
        times = tuple(field.name for field in spec.values.fields if field.type.startswith("timestamp"))
        making: Making = expected.Documents() if builtin else Maker(arrow_schema(spec.values))
        feds[step.id] = Fed(
            step.id, spec.name, spec.values, spec.partitions, making, times if id(step) in timed else ()
        )
    return feds


def _comparable(sink: Sink) -> bool:
    return sink.given == "exactly-once" and sink.spec.kind in ("files", "sqlite")


def _refuse(subject: Subject) -> None:
    for step in subject.graph.sources:
        if step.spec.kind not in ("journal", *_DRIVING):
            raise RunError(
                "LS0650",
                f'chaos cannot drive the source "{step.id}"',
                why=f"it is {step.spec.describe()}; chaos feeds journals, and lets {', '.join(sorted(_DRIVING))} run.",
                hint="put a journal in its place in a copy of the job.",
            )
    if not subject.sinks:
        raise RunError(
            "LS0650",
            "chaos could not see what this job publishes",
            why="none of its sinks holds each epoch once and can be read: " + _described(subject.graph.sinks) + ".",
            hint='end a stream with .to(ls.files("out/result")).',
        )
    sinks = [(f'sink "{sink.id}"', sink.spec.to_json()) for sink in subject.graph.sinks]
    places = {name: str(data.get("path", data.get("database", ""))) for name, data in sinks}
    for name, path in (places | _inputs(subject.graph)).items():
        if not stays_inside(path):
            raise RunError(
                "LS0650",
                f"the {name} is at {path}, outside the project",
                why="chaos runs in a copy of the project, and this place would be outside of the copy.",
                hint="use a path relative to the project folder, in a copy of the job.",
            )


def stays_inside(path: str) -> bool:
    """Whether a path that is relative to a folder leads nowhere else, whatever the folder is.

    >>> [stays_inside(path) for path in ("out/x", "a/../out", "out/../../x", "/tmp/x", "~/x")]
    [True, True, False, False, False]
    """
    # By the words alone: the copy is fresh, and nothing in it is a link.
    root = Path("/copy")
    return not path.startswith("~") and Path(os.path.normpath(root / path)).is_relative_to(root)


def _described(sinks: Sequence[Sink]) -> str:
    return ", ".join(f"{sink.spec.describe()} ({sink.given})" for sink in sinks)
