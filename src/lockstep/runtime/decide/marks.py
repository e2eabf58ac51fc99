"""How event time is decided for the next epoch: pure functions, so that every replica could have decided the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lockstep.clock import END_US
from lockstep.plan.event_times import goes_by_partition
from lockstep.plan.graph import Graph
from lockstep.plan.joins import IntervalJoin
from lockstep.plan.loops import loop_journal
from lockstep.plan.stages import Boundary, Stage, stage_journal
from lockstep.plan.steps import EventTime, event_times_before, sources_before, upstream
from lockstep.runtime.decide import partitions
from lockstep.store.protocols import Entry

PAUSE_US = 10_000_000
"""Epochs come at least once a heartbeat (1 s); ten without one mean that the job was not running."""
QUIET_EPOCHS = 4
"""The end of event time takes three epochs from one stage to the next, and results one more."""


@dataclass(frozen=True)
class TimeStep:
    """One ``event_time`` step: the sources that feed it, how disordered they may be, and when they count as idle."""

    id: str
    sources: tuple[str, ...]
    out_of_order_us: int
    idle_after_us: int | None
    level: int = 0
    """How many stages come before its own: the end of event time reaches it when those are through."""
    follows: tuple[tuple[str, int], ...] = ()
    """For a journal inside the job: the time steps (and their disorder) of the stage that writes it, whose event time
    its own one follows."""
    meets: tuple[str, ...] = ()
    """The other sources whose records meet these in some step by time: none of them should be far ahead."""
    by_partition: bool = False
    """Whether each partition of its one source has a time of its own, and the slowest counts."""


def next_marks(
    steps: tuple[TimeStep, ...],
    previous: Entry | None,
    observed: Mapping[str, int | None],
    epoch_time_us: int,
    advanced: Mapping[str, bool],
    pause_us: int = PAUSE_US,
    *,
    ending: int = 0,
) -> dict[str, int | None]:
    """The marks of the epoch after ``previous``, in which ``observed`` was the highest event time per step.

    ``advanced`` says which sources have records in the new epoch: those are not idle, however long ago the epoch before
    was. After a pause of the whole job there is a backlog, and a mark that went on with the clock would make it late.
    And while no record came at all, event time has not begun: what comes first may be a history of any age.
    """
    found: dict[str, int | None] = {}
    known = {step.id: known_mark(step, previous, observed) for step in steps}
    has_begun = any(mark is not None for mark in known.values())
    for step in steps:
        if step.follows:
            found |= _followed_marks(step, previous)
            continue
        if ending > QUIET_EPOCHS * step.level:
            found[step.id] = END_US
            continue
        paused = _was_paused(previous, epoch_time_us, pause_us)
        quiet = has_begun and not paused and not any(advanced.get(source, False) for source in step.sources)
        if previous is None:
            found[step.id] = None
        elif step.by_partition:
            found[step.id] = _slowest_mark(step, previous, observed, epoch_time_us, quiet=quiet, paused=paused)
        else:
            mark = known[step.id]
            found[step.id] = _idle_mark(step, mark, previous, epoch_time_us) if quiet else mark
    return found


def _slowest_mark(
    step: TimeStep,
    previous: Entry,
    observed: Mapping[str, int | None],
    epoch_time_us: int,
    *,
    quiet: bool,
    paused: bool,
) -> int | None:
    """The mark of a step whose slowest partition counts; it never goes back, whoever wakes up.

    A partition without a record holds it too, until it is idle: what comes first there may be of any age.
    """
    found = partitions.reached(step.id, step.sources[0], previous, observed)
    mark = previous.marks.get(step.id)
    awake = partitions.awake(found, previous, step.idle_after_us)
    if awake or not found:
        return _later(mark, partitions.slowest_us(awake))
    if not quiet:
        # Records flow, and none comes so far: a step before drops them. What the others reached holds.
        return mark if paused else _later(mark, partitions.newest_us(found))
    latest = epoch_time_us - step.out_of_order_us
    goes_on_us = partitions.idle_us(found, epoch_time_us)
    reached_us = latest if goes_on_us is None else min(latest, goes_on_us)
    # Time that is ahead of the clock is not taken back, nor is what came before the silence forgotten.
    return _later(_later(mark, partitions.newest_us(found)), reached_us)


def next_partitions(
    steps: tuple[TimeStep, ...],
    previous: Entry | None,
    observed: Mapping[str, int | None],
    epoch_time_us: int,
    marks: Mapping[str, int | None],
    pause_us: int = PAUSE_US,
) -> dict[str, dict[str, tuple[int | None, int]]]:
    """How far the partitions have come before the epoch after ``previous``, which has these marks."""
    if previous is None:
        return {}
    was_paused = _was_paused(previous, epoch_time_us, pause_us)
    found = {
        step.id: partitions.reached(step.id, step.sources[0], previous, observed) for step in steps if step.by_partition
    }
    return {
        step: partitions.written(each, marks[step], epoch_time_us, was_paused=was_paused)
        for step, each in found.items()
    }


def _followed_marks(step: TimeStep, previous: Entry | None) -> dict[str, int | None]:
    """The mark of a journal inside the job, three epochs after those it follows, and what is on its way to it.

    A mark that an epoch is sealed with moves Spark's watermark for the epoch after; what that closes is in the journal
    when the next one is sealed, and is read there; only then may time pass it. Three epochs, whoever reads.
    """
    if previous is None:
        return {step.id: None}
    marks = previous.marks
    reached = [(marks.get(name), late_us) for name, late_us in step.follows]
    known = [mark - late_us for mark, late_us in reached if mark is not None]
    newest = min(known) if len(known) == len(reached) else None
    first, second = f"{step.id}@1", f"{step.id}@2"
    return {step.id: _later(marks.get(step.id), marks.get(second)), second: marks.get(first), first: newest}


def _later(mark: int | None, other: int | None) -> int | None:
    known = [one for one in (mark, other) if one is not None]
    return max(known) if known else None


def _was_paused(previous: Entry | None, epoch_time_us: int, pause_us: int) -> bool:
    """Whether the job itself was down before this epoch: then its sources were not quiet, nobody was listening."""
    return previous is not None and epoch_time_us - previous.epoch_time_us > pause_us


def known_mark(step: TimeStep, previous: Entry | None, observed: Mapping[str, int | None]) -> int | None:
    """The highest event time that is known of a step: what the epochs before were sealed with, and saw."""
    if previous is None:
        return None
    seen = observed.get(step.id)
    if step.by_partition:
        seen = partitions.newest_us(partitions.reached(step.id, step.sources[0], previous, observed))
    return _later(previous.marks.get(step.id), seen)


def _idle_mark(step: TimeStep, mark: int | None, previous: Entry, epoch_time_us: int) -> int | None:
    """A quiet source's mark: event time goes on at the pace of the clock, and never beyond epoch time.

    Jumping straight to epoch time would make every later record of a replayed history late; keeping the pace gives the
    same result for live data, whose event time is close to the clock.
    """
    active_us = max((previous.active_us.get(source, 0) for source in step.sources), default=0)
    if step.idle_after_us is None or epoch_time_us - active_us < step.idle_after_us:
        return mark
    latest = epoch_time_us - step.out_of_order_us
    if mark is None:
        # Others have begun, and nothing came from here yet: whoever may never come holds nobody back.
        return latest
    # The mark of an epoch that was idle too has gone on already, up to its own epoch time.
    was_idle = previous.epoch_time_us - active_us >= step.idle_after_us
    since_us = previous.epoch_time_us if was_idle else active_us
    return max(mark, min(latest, mark + (epoch_time_us - since_us)))


def next_active(
    previous: Entry | None, advanced: Mapping[str, bool], epoch_time_us: int, pause_us: int = PAUSE_US
) -> dict[str, int]:
    """Per source, the epoch time of the last epoch that had records of it (the first one, and after a pause, count)."""
    before = previous.active_us if previous and not _was_paused(previous, epoch_time_us, pause_us) else {}
    return {source: epoch_time_us if moved else before.get(source, epoch_time_us) for source, moved in advanced.items()}


def is_over(entry: Entry | None, steps: tuple[TimeStep, ...]) -> bool:
    """Whether a run until done is over with this entry: the end has come through all stages, and nothing moves."""
    return entry is not None and entry.ending > _epochs_through(steps)


def is_caught_up(entry: Entry | None, run: str, steps: tuple[TimeStep, ...]) -> bool:
    """Whether a run that takes what is there has taken it with this entry, and nothing moves inside the job."""
    return entry is not None and entry.caught_up.get(run, 0) > _epochs_through(steps)


def _epochs_through(steps: tuple[TimeStep, ...]) -> int:
    """How many quiet epochs bring everything that is on its way, and event time, through all stages."""
    stages = 1 + sum(1 for step in steps if step.follows) + max((step.level for step in steps), default=0)
    return QUIET_EPOCHS * stages


def time_steps(graph: Graph) -> tuple[TimeStep, ...]:
    """What sealing has to know of the job's ``event_time`` steps, and of the journals inside it that carry time."""
    declared = [
        TimeStep(
            step.id,
            sources_before(step),
            step.out_of_order_us,
            step.idle_after_us,
            _level(graph, step),
            meets=_meets(graph, step),
            by_partition=goes_by_partition(step),
        )
        for step in graph.event_times
    ]
    inside = [_of_boundary(graph, boundary) for boundary in graph.boundaries if boundary.follows]
    loops = [
        TimeStep(loop_journal(head), (loop_journal(head),), 0, None, follows=follows)
        for head in graph.loops
        if (follows := _declared(event_times_before(head.input)))
    ]
    return (*declared, *inside, *loops)


def _of_boundary(graph: Graph, boundary: Boundary) -> TimeStep:
    """Spark has one watermark in a query, the lowest: so a journal follows all the time steps of its stage."""
    writer = next(stage for stage in graph.stages if boundary.sink in stage.sinks)
    read = [stage_journal(step) for step in writer.reads if event_times_before(step)]
    looped = [loop_journal(head) for head in graph.loops if head in writer.steps and event_times_before(head.input)]
    held_us = _held_back_us(writer)
    times = (*_declared(writer.event_times), *((name, 0) for name in (*read, *looped)))
    follows = tuple((name, late_us + held_us) for name, late_us in times)
    return TimeStep(boundary.name, (boundary.name,), 0, None, follows=follows)


def _held_back_us(stage: Stage) -> int:
    """How long after its time a record may leave a stage: an outer join waits for as long as a match may come."""
    outer = [step for step in stage.steps if isinstance(step, IntervalJoin) and step.how != "inner"]
    return max((max(step.upper_us, -step.lower_us, 0) for step in outer), default=0)


def _meets(graph: Graph, step: EventTime) -> tuple[str, ...]:
    """The other sources whose records wait in state together with those of ``step``.

    Results of a step with state have times of their own, which say nothing of how far its sources were read.
    """
    if any(before.stateful for before in upstream(step)):
        return ()
    mine = set(sources_before(step))
    together = [event_times_before(later) for later in graph.steps if later.stateful]
    groups = [{source for each in times for source in sources_before(each)} for times in together]
    return tuple(sorted({source for group in groups if mine & group for source in group} - mine))


def _level(graph: Graph, step: EventTime) -> int:
    return min(stage.level for stage in graph.stages if step in stage.steps)


def _declared(steps: Iterable[EventTime]) -> tuple[tuple[str, int], ...]:
    return tuple((step.id, step.out_of_order_us) for step in steps)
