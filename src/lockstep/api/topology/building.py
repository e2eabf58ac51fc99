"""A topology as steps of a job: groupings become keys, bolts become keyed steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockstep.api.functions import F
from lockstep.api.job import Job
from lockstep.api.stream import Stream
from lockstep.api.topology.declarations import DeclaredBolt, Grouping
from lockstep.api.topology.windows import WINDOW_TASK, WindowedBolt
from lockstep.errors import PlanError
from lockstep.keyed.programs import Program
from lockstep.plan.bolts import DEFAULT_STREAM, BoltOutput, BoltStep, Subscription, position_hash
from lockstep.plan.expression import Column, Expression, Literal
from lockstep.plan.keyed import SideOutput
from lockstep.plan.schema import did_you_mean, unknown_column
from lockstep.plan.steps import event_times_before

if TYPE_CHECKING:
    from lockstep.api.topology.topology import Declared

TASK = "task"


class Builder:
    """Builds each component once, after those it reads."""

    def __init__(self, job: Job, declared: Declared) -> None:
        self._job = job
        self._declared = declared
        self._streams: dict[tuple[str, str], Stream] = {}
        self._building: list[str] = []

    def built(self) -> Job:
        """The job, with every component and every sink."""
        for name in (*self._declared.spouts, *self._declared.bolts):
            self._stream(name, DEFAULT_STREAM, "the topology")
        for sink in self._declared.sinks:
            stream = self._stream(sink.component, sink.stream, "a sink")
            fields = self._fields(sink.component, sink.stream)
            plain = stream if stream.columns == fields else stream.select(*fields)
            plain.to(sink.spec, **sink.options)
        return self._job

    def _stream(self, component: str, stream: str, reader: str) -> Stream:
        """What a component emits on a stream, built if it is not yet."""
        self._check_known(component, stream, reader)
        if (component, stream) not in self._streams:
            self._build(component)
        return self._streams[component, stream]

    def _check_known(self, component: str, stream: str, reader: str) -> None:
        components = [*self._declared.spouts, *self._declared.bolts]
        if component not in components:
            raise PlanError(
                "LS0190",
                f'{reader} reads "{component}", which is not in the topology',
                why=f"it has: {', '.join(components)}.",
                hint=did_you_mean(component, components),
            )
        bolt = self._declared.bolts.get(component)
        streams = [DEFAULT_STREAM] if bolt is None else list(bolt.streams)
        if stream not in streams:
            raise PlanError(
                "LS0194",
                f'{reader} reads the stream "{stream}" of "{component}", which has none of that name',
                why=f"its streams are: {', '.join(streams)}.",
                hint=did_you_mean(stream, streams) or f't.bolt("{component}", ..., streams={{"{stream}": "..."}})',
            )

    def _build(self, component: str) -> None:
        if component in self._building:
            circle = " -> ".join([*self._building[self._building.index(component) :], component])
            raise PlanError(
                "LS0193",
                f"the topology goes in a circle: {circle}",
                why="a bolt that reads itself, by whatever way, would wait for its own epoch.",
                hint="a loop over epochs is stream.iterate(body) in a job.",
            )
        spout = self._declared.spouts.get(component)
        if spout is not None:
            source = self._job.source(spout.name, spout.spec)
            timed = (
                source
                if spout.event_time is None
                else source.event_time(spout.event_time, out_of_order=spout.out_of_order)
            )
            self._streams[component, DEFAULT_STREAM] = timed
            return
        self._building.append(component)
        self._build_bolt(self._declared.bolts[component])
        self._building.pop()

    def _build_bolt(self, bolt: DeclaredBolt) -> None:
        if not bolt.groupings:
            raise PlanError(
                "LS0192", f'bolt "{bolt.name}" reads no component', hint=f't.bolt("{bolt.name}", ...).shuffle("lines")'
            )
        inputs = [self._grouped(bolt, grouping) for grouping in bolt.groupings]
        if bolt.window is not None:
            self._streams[bolt.name, DEFAULT_STREAM] = self._windowed(bolt, inputs)
            return
        first = inputs[0][0]
        readers = [(one.name, one.tasks) for one in self._readers(bolt.name)]
        step = BoltStep(
            first._id("bolt", bolt.name),
            tuple(stream._step for stream, _ in inputs),
            tuple(((TASK, key),) for _, key in inputs),
            bolt.bolt,
            tuple(self._subscription(grouping) for grouping in bolt.groupings),
            tuple(self._output(bolt, stream) for stream in bolt.streams),
            bolt.tasks,
            bolt.tick_us,
            bolt.on_error,
            tuple(readers),
            bolt.retries,
        )
        self._streams[bolt.name, DEFAULT_STREAM] = made = first._then(step)
        for stream in list(bolt.streams)[1:]:
            side = SideOutput(made._id(f"{bolt.name}_{stream}"[:64], None), step, stream)
            self._streams[bolt.name, stream] = made._then(side)

    def _windowed(self, bolt: DeclaredBolt, inputs: list[tuple[Stream, Expression]]) -> Stream:
        """A bolt over windows: a window for each task, and the bolt as its function."""
        (stream, key), *others = inputs
        if others or isinstance(bolt.bolt, Program):
            raise PlanError(
                "LS0196",
                f'bolt "{bolt.name}" has windows and ' + ("is a program" if not others else "reads several streams"),
                why="a window of tuples is handed to a Python class, and the tuples of one stream are in it.",
                hint="unite the streams in a bolt before, or write the bolt in Python.",
            )
        assert bolt.window is not None
        window = bolt.window.of("event" if event_times_before(stream._step) else "processing")
        function = WindowedBolt(
            bolt.name, bolt.bolt, self._subscription(bolt.groupings[0]), bolt.tasks, self._output(bolt, DEFAULT_STREAM)
        )
        keyed = stream.key_by(key.alias(WINDOW_TASK)).window(window)
        made = keyed.process(function, schema=bolt.streams[DEFAULT_STREAM], name=f"{bolt.name}_window"[:64])
        return made.select(*bolt.streams[DEFAULT_STREAM].names, name=bolt.name)

    def _subscription(self, grouping: Grouping) -> Subscription:
        fields = self._fields(grouping.component, grouping.stream)
        return Subscription(grouping.component, grouping.stream, grouping.kind, fields)

    def _grouped(self, bolt: DeclaredBolt, grouping: Grouping) -> tuple[Stream, Expression]:
        """The stream that a bolt reads, and the number of the task that gets a tuple."""
        stream = self._stream(grouping.component, grouping.stream, f'bolt "{bolt.name}"')
        fields = self._fields(grouping.component, grouping.stream)
        tasks = Literal(bolt.tasks)
        match grouping.kind:
            case "shuffle":
                return stream, F.pmod(position_hash(), tasks).cast("int")
            case "global":
                return stream, Literal(0)
            case "direct":
                self._check_direct(bolt, grouping)
                return stream, Column(stream.columns[-1])
            case "fields":
                for name in grouping.fields:
                    if name not in fields:
                        raise unknown_column(name, fields, f'.fields(...) of bolt "{bolt.name}"')
                return stream, F.pmod(F.xxhash64(*(Column(name) for name in grouping.fields)), tasks).cast("int")
            case "all":
                task = free_name(TASK, stream.columns)
                copies = stream.explode(F.sequence(Literal(0), Literal(bolt.tasks - 1)), as_=task)
                return copies, Column(task)

    def _check_direct(self, bolt: DeclaredBolt, grouping: Grouping) -> None:
        if grouping.component in self._declared.spouts:
            raise PlanError(
                "LS0194",
                f'bolt "{bolt.name}" reads the spout "{grouping.component}" with .direct(...)',
                why="only a bolt can say which task a tuple goes to.",
                hint=f'.fields("{grouping.component}", ...) or .shuffle("{grouping.component}")',
            )

    def _output(self, bolt: DeclaredBolt, stream: str) -> BoltOutput:
        """A stream that the bolt emits; a direct one if anybody reads it so."""
        schema = bolt.streams[stream]
        direct = [
            one.tasks
            for one in self._declared.bolts.values()
            if any((g.component, g.stream, g.kind) == (bolt.name, stream, "direct") for g in one.groupings)
        ]
        if not direct:
            return BoltOutput(stream, schema)
        if bolt.window is not None:
            raise PlanError("LS0196", f'bolt "{bolt.name}" has windows, and is read with .direct(...)')
        return BoltOutput(stream, schema, free_name(TASK, schema.names), min(direct))

    def _fields(self, component: str, stream: str) -> tuple[str, ...]:
        spout = self._declared.spouts.get(component)
        return spout.spec.schema.names if spout is not None else self._declared.bolts[component].streams[stream].names

    def _readers(self, component: str) -> list[DeclaredBolt]:
        bolts = self._declared.bolts.values()
        return [one for one in bolts if any(grouping.component == component for grouping in one.groupings)]


def free_name(wanted: str, taken: tuple[str, ...]) -> str:
    """``wanted``, with lines under it until nobody has it.

    >>> free_name("task", ("task", "n"))
    'task_'
    """
    while wanted.lower() in {name.lower() for name in taken}:
        wanted += "_"
    return wanted
