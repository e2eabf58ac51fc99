"""Topologies: spouts, bolts and groupings, as in Storm, run as a job with everything a job has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.api.arguments import python_schema, source_spec
from lockstep.api.job import Job
from lockstep.api.topology.building import Builder
from lockstep.api.topology.declarations import BoltDeclarer, DeclaredBolt
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.keyed.bolts import Bolt
from lockstep.keyed.programs import Program
from lockstep.plan.bolts import DEFAULT_STREAM, RETRIES
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.specs import SinkSpec, SourceSpec
from lockstep.plan.steps import OnError, check_id

TASKS_MAX = 1024
"""A task is a key, and its state is read and written as one: more of them than this are keys, not tasks."""
RETRIES_MAX = 100
"""Replays are in the same epoch: whoever waits for more than this waits for something that is not there."""


@dataclass(frozen=True)
class DeclaredSpout:
    """A spout as it was declared."""

    name: str
    spec: SourceSpec
    event_time: str | None
    out_of_order: Duration


@dataclass(frozen=True)
class DeclaredSink:
    """A sink as it was declared."""

    component: str
    stream: str
    spec: SinkSpec
    options: Mapping[str, Any]


@dataclass
class Declared:
    """All that a topology has been told."""

    spouts: dict[str, DeclaredSpout] = field(default_factory=dict)
    bolts: dict[str, DeclaredBolt] = field(default_factory=dict)
    sinks: list[DeclaredSink] = field(default_factory=list)


class Topology:
    """A graph of spouts and bolts with a name. A job file may hold one instead of a job.

    >>> import lockstep as ls
    >>> class Split(ls.Bolt):
    ...     def execute(self, tuple, collector):
    ...         for word in tuple.line.split():
    ...             collector.emit([word])
    >>> class Count(ls.Bolt):
    ...     def execute(self, tuple, collector):
    ...         n = self.state[tuple.word] = self.state.get(tuple.word, 0) + 1
    ...         collector.emit([tuple.word, n])
    >>> t = ls.Topology("word-count")
    >>> t.spout("lines", ls.journal("lines", schema="line string"))
    >>> t.bolt("split", Split(), fields="word string").shuffle("lines")
    <bolt split, 4 tasks>
    >>> t.bolt("count", Count(), fields="word string, n bigint", tasks=8).fields("split", "word")
    <bolt count, 8 tasks>
    >>> t.sink("count", ls.files("out/counts"))
    >>> [step.id for step in t.job().graph().steps]
    ['lines', 'split', 'count', 'files']

    Options are those of a job.
    """

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self._options = options
        self._declared = Declared()
        self._job: Job | None = None

    def spout(
        self, name: str, spec: SourceSpec, *, event_time: str | None = None, out_of_order: Duration = "0 seconds"
    ) -> None:
        """A source of tuples: any that a job may have; ``event_time`` says which field tells when a tuple happened."""
        self._check_new(name)
        self._declared.spouts[name] = DeclaredSpout(name, source_spec(name, spec), event_time, out_of_order)

    def bolt(
        self,
        name: str,
        bolt: Bolt | Program,
        fields: str | Schema | None = None,
        *,
        streams: Mapping[str, str | Schema] | None = None,
        tasks: int = 4,
        parallelism: int | None = None,
        tick_every: Duration | None = None,
        retries: int = RETRIES,
        on_error: OnError = "fail",
    ) -> BoltDeclarer:
        """A bolt and the fields it emits; continue with groupings: ``.shuffle("lines")``, ``.fields("split", "word")``.

        ``streams`` declares further streams by name. ``tasks`` is how many parts its state has, and stays the same for
        as long as the state lives. Storm's ``parallelism`` is refused: how many tasks work side by side is said for
        the job, while it runs too (``lockstep rescale JOB --partitions 8``). ``tick_every`` calls ``tick`` in epoch
        time. A tuple that the bolt fails is replayed ``retries`` times within its epoch, and is then a dead letter;
        ``on_error="skip"`` makes dead letters of tuples for which ``execute`` raises, too.
        """
        self._check_new(name)
        _check_bolt(name, bolt)
        given = bolt.fields if fields is None and isinstance(bolt, Program) else fields
        declared = DeclaredBolt(
            name,
            bolt,
            {
                DEFAULT_STREAM: _fields_of(name, given),
                **{key: parse_schema(one) for key, one in (streams or {}).items()},
            },
            _checked_tasks(name, tasks, parallelism),
            None if tick_every is None else _tick_us(name, tick_every),
            on_error,
            _number(name, "retries", retries, 0, RETRIES_MAX),
        )
        self._declared.bolts[name] = declared
        return BoltDeclarer(declared)

    def sink(
        self, component: str, spec: SinkSpec, *, stream: str = DEFAULT_STREAM, name: str | None = None, **options: Any
    ) -> None:
        """Publish what a component emits in a sink; options are those of ``Stream.to``."""
        self._job = None
        self._declared.sinks.append(DeclaredSink(component, stream, spec, {"name": name, **options}))

    to = sink

    def job(self) -> Job:
        """The topology as a job; the same one until something is added."""
        if self._job is None:
            self._job = Builder(Job(self.name, **self._options), self._declared).built()
        return self._job

    _lockstep_job = job

    def _check_new(self, name: str) -> None:
        check_id(name, "component")
        self._job = None
        if name in self._declared.spouts or name in self._declared.bolts:
            raise PlanError(
                "LS0190", f'two components are called "{name}"', why="groupings and sinks know them by name."
            )

    def __repr__(self) -> str:
        return f"<topology {self.name}: {', '.join([*self._declared.spouts, *self._declared.bolts])}>"


def program(
    command: list[str] | tuple[str, ...], *, fields: str | None = None, timeout: Duration = "30 seconds"
) -> Program:
    """A bolt that is a program of its own: it reads tuples as JSON lines and answers with JSON lines.

    >>> program(["python3", "split.py"], fields="word string").command
    ('python3', 'split.py')

    It is started once in every worker process, without a shell; what it writes to its standard error is in the log. It
    must not keep state: after a crash it begins anew, and each replica has its own. ``timeout`` is for one tuple.
    """
    parts = tuple(command) if isinstance(command, (list, tuple)) else ()
    if not parts or not all(isinstance(part, str) and part for part in parts):
        raise PlanError(
            "LS0191",
            f"ls.program(...) was given {command!r}",
            why="no shell reads it: the program and each of its arguments is a text of its own.",
            hint='ls.program(["python3", "split.py"], fields="word string")',
        )
    return Program(parts, duration_us(timeout), fields)


def _check_bolt(name: str, bolt: Any) -> None:
    if isinstance(bolt, Bolt) and type(bolt).execute is not Bolt.execute:
        return
    if isinstance(bolt, Program):
        return
    what = f"the class {bolt.__name__}" if isinstance(bolt, type) else f"a {type(bolt).__name__}"
    raise PlanError(
        "LS0191",
        f'bolt "{name}" is {what}, not a bolt' + (" with an execute method" if isinstance(bolt, Bolt) else ""),
        hint=f"{bolt.__name__}()"
        if isinstance(bolt, type)
        else "class Split(ls.Bolt): def execute(self, tuple, collector): ...",
    )


def _fields_of(name: str, fields: Any) -> Schema:
    if fields is None:
        raise PlanError(
            "LS0191",
            f'bolt "{name}" declares no fields',
            why="nobody can tell from a Python class or a program what it emits.",
            hint=f't.bolt("{name}", ..., fields="word string, n bigint")',
        )
    return python_schema(fields, "bolt")


def _checked_tasks(name: str, tasks: Any, parallelism: Any) -> int:
    if parallelism is not None:
        raise PlanError(
            "LS0195",
            f'bolt "{name}" has parallelism={parallelism!r}',
            why="a job computes all its bolts in the same partitions: there are no executors of one bolt.",
            hint=f"tasks={parallelism!r} divides its state into so many parts, which can work side by side; in how "
            f"many partitions they do is said for the job: lockstep rescale JOB --partitions {parallelism!r}.",
        )
    return _number(name, "tasks", tasks, 1, TASKS_MAX)


def _number(name: str, what: str, number: Any, least: int, most: int) -> int:
    if type(number) is not int or not least <= number <= most:
        raise PlanError("LS0195", f'bolt "{name}" has {what}={number!r}', why=f"it is a number from {least} to {most}.")
    return number


def _tick_us(name: str, every: Duration) -> int:
    us = duration_us(every)
    if us <= 0:
        raise PlanError("LS0195", f'bolt "{name}" has tick_every={every!r}', hint='tick_every="10 seconds"')
    return us
