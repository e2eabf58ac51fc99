"""A job in stages: each runs as one Spark query, and what goes from one to the next travels through a journal.

One query has one output mode, one watermark, and no aggregation of an aggregation. So a stream is cut where a step that
keeps state (or declares an event time) reads what another step with state has made, and where results as updates and
final results would meet. All stages follow the same ledger: what a stage puts into a journal in one epoch is in the
next one's cut, so a snapshot of a job has everything that was on its way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lockstep.plan.loops import LoopHead, loop_journal
from lockstep.plan.specs import StageJournal
from lockstep.plan.steps import EventTime, OutputMode, Sink, Source, Step, event_times_before, upstream
from lockstep.plan.updates import updates_of


@dataclass(frozen=True, eq=False)
class StageSink(Sink):
    """The end of a stage: its records go on in a later one, with their event times."""


def takes_back(sink: Sink) -> bool:
    """Whether a sink is told which rows are taken back: one with a key, of changes."""
    changes = updates_of(sink.input) if sink.spec.key else None
    return changes is not None and changes.taken_back


@dataclass(frozen=True)
class Boundary:
    """A journal between stages. ``step`` made its records; its name is also a source's name in the ledger."""

    step: Step
    sink: StageSink
    follows: tuple[EventTime, ...]
    """The event times that hold for its records; empty if they have none."""

    @property
    def name(self) -> str:
        """The name of the journal."""
        return self.sink.id


@dataclass(frozen=True, eq=False)
class Stage:
    """What runs as one Spark query: its sinks in the order of publishing, and all that leads to them."""

    number: int
    level: int
    """How many journals lie between it and the job's sources, at most."""
    output_mode: OutputMode
    sinks: tuple[Sink, ...]
    cuts: frozenset[tuple[int, int]] = field(repr=False)
    """(id of the reading step, id of the step read) where a journal lies between."""

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every step of the stage, each after its inputs, in order of creation."""
        reached = {id(step): step for sink in self.sinks for step in self.upstream(sink)}
        return tuple(sorted(reached.values(), key=lambda step: step.order))

    def upstream(self, step: Step) -> Iterator[Step]:
        """The step and everything before it in this stage, nearest first, each once."""
        return upstream(step, lambda reader: [one for one in reader.inputs if not self.is_cut(reader, one)])

    def is_cut(self, reader: Step, step: Step) -> bool:
        """Whether ``reader`` gets the records of ``step`` through a journal."""
        return (id(reader), id(step)) in self.cuts

    @property
    def branches(self) -> tuple[tuple[Sink, ...], ...]:
        """The sinks by what they take: Spark computes a branch for all sinks of the same rows, with state of its own.

        A journal inside the job takes hidden columns too, so it has a branch to itself. Of changes a sink with a key
        takes those rows too that are taken back.
        """
        found: dict[tuple[int, bool], tuple[Sink, ...]] = {}
        for sink in self.sinks:
            rows = id(sink.inputs[0]) if type(sink) is Sink else id(sink)
            place = (rows, takes_back(sink))
            found[place] = (*found.get(place, ()), sink)
        return tuple(found.values())

    @property
    def reads(self) -> tuple[Step, ...]:
        """The steps of earlier stages that this one reads through journals, each once."""
        found = {id(b): b for step in self.steps for b in step.inputs if self.is_cut(step, b)}
        return tuple(sorted(found.values(), key=lambda step: step.order))

    @property
    def event_times(self) -> tuple[EventTime, ...]:
        """Where this stage declares event times."""
        return tuple(step for step in self.steps if isinstance(step, EventTime))

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of what it reads: sources, journals of earlier stages, journals of loops."""
        own = [step.id for step in self.steps if isinstance(step, Source)]
        loops = [loop_journal(step) for step in self.steps if isinstance(step, LoopHead)]
        return (*own, *(stage_journal(step) for step in self.reads), *loops)


@dataclass(frozen=True)
class _Place:
    """Where a step would run, seen from its inputs."""

    level: int = 0
    mode: OutputMode | None = None
    """What the state before it demands; None if anything goes."""
    stateful: bool = False


class _Cutter:
    """Finds the places of steps, in order of creation, and the cuts between them."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self.places: dict[int, _Place] = {}
        self.cuts: set[tuple[int, int]] = set()
        for step in steps:
            self.places[id(step)] = self._placed(step)

    def _placed(self, step: Step) -> _Place:
        with_state = [before for before in step.inputs if self._place(before).stateful]
        fresh = step.stateful or isinstance(step, EventTime)
        modes = {self._place(before).mode for before in with_state} - {None}
        cut = list(with_state) if fresh or len(modes) > 1 else []
        level = max((self._place(one).level + (one in cut) for one in step.inputs), default=0)
        # What was computed in an earlier stage is not computed again in this one.
        cut += [one for one in with_state if one not in cut and self._place(one).level < level]
        self.cuts |= {(id(step), id(before)) for before in cut}
        kept = [before for before in with_state if before not in cut]
        kept_modes = {self._place(before).mode for before in kept} - {None}
        mode = step.output_mode if step.stateful else next(iter(kept_modes), None)
        return _Place(level, mode, step.stateful or bool(kept))

    def _place(self, step: Step) -> _Place:
        return self.places[id(step)]


def stage_journal(step: Step) -> str:
    """The name of the journal that carries a step's records to later stages."""
    return f"stage-{step.id}"


def cut(steps: tuple[Step, ...], sinks: tuple[Sink, ...]) -> tuple[tuple[Stage, ...], tuple[Boundary, ...]]:
    """The stages of a job, earlier ones first, and the journals between them."""
    cutter = _Cutter(steps)
    by_id = {id(step): step for step in steps}
    crossing = {read: by_id[read] for _, read in cutter.cuts}
    boundaries = tuple(_boundary(step) for step in sorted(crossing.values(), key=lambda step: step.order))
    grouped: dict[tuple[int, OutputMode | None], list[Sink]] = {}
    for sink in (*sinks, *(boundary.sink for boundary in boundaries)):
        place = cutter.places[id(sink.input)]
        grouped.setdefault((place.level, place.mode), []).append(sink)
    stages = [
        Stage(number, level, mode or "append", tuple(grouped[level, mode]), frozenset(cutter.cuts))
        for number, (level, mode) in enumerate(_merged(grouped), start=1)
    ]
    return tuple(stages), boundaries


def _merged(grouped: dict[tuple[int, OutputMode | None], list[Sink]]) -> list[tuple[int, OutputMode | None]]:
    """The groups in order; sinks that go with any output mode join a query of their level that there is anyway."""
    for level in {level for level, mode in grouped if mode is None}:
        modes: tuple[OutputMode, ...] = ("append", "update")
        host = next(((level, mode) for mode in modes if (level, mode) in grouped), None)
        if host is not None:
            merged = [*grouped[host], *grouped.pop((level, None))]
            grouped[host] = sorted(merged, key=lambda sink: sink.order)
    return sorted(grouped, key=lambda place: (place[0], place[1] or "append"))


def _boundary(step: Step) -> Boundary:
    name = stage_journal(step)
    return Boundary(step, StageSink(name, step, StageJournal(name), "exactly-once"), event_times_before(step))
