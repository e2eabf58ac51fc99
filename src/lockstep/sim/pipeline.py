"""The job that is simulated: two sources, two sinks, one stage or two with a journal between them.

Its output shows every wrong input and every wrong state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from lockstep.clock import US_PER_S
from lockstep.connect.protocols import Advance, Publication
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.decide.partitions import by_partition
from lockstep.sim.timeline import START_US, Timeline
from lockstep.store.protocols import Cut, Entry, Positions

SINKS = ("alerts", "totals")
"""In the order they are published: a crash between the two has to be mended by the replay."""
VERSION = "v1"
RECORDS_PER_S = 20
SPACING_US = US_PER_S // RECORDS_PER_S
_DISORDER = 8
"""Event times are out of order by at most so many records."""

PARTITION_LAG_US = 3 * US_PER_S
"""So much older are the records of each partition than those of the one before it, which come at the same time."""

TIME_STEPS = (
    TimeStep(
        "click_time", ("clicks",), _DISORDER * SPACING_US, idle_after_us=None, meets=("sensors",), by_partition=True
    ),
    TimeStep("sensor_time", ("sensors",), _DISORDER * SPACING_US, idle_after_us=2 * US_PER_S, meets=("clicks",)),
)
INSIDE = "inside"
"""The journal between two stages: a sink of the first, a source of the second."""
_STEP_OF = {source: step.id for step in TIME_STEPS for source in step.sources}
_NUMBER_OF = {name: number for number, name in enumerate((*SINKS, INSIDE))}
_NOWHERE: Mapping[str, int] = {}


@dataclass(frozen=True)
class SimStage:
    """What one query of a replica reads and writes."""

    sources: tuple[str, ...]
    sinks: tuple[str, ...]
    time_steps: tuple[TimeStep, ...] = ()


def stages_of(count: int) -> tuple[SimStage, ...]:
    """The job in one stage or in two.

    >>> [stage.sinks for stage in stages_of(2)]
    [('alerts', 'inside'), ('totals',)]
    """
    outside = ("clicks", "sensors")
    if count == 1:
        return (SimStage(outside, SINKS, TIME_STEPS),)
    return SimStage(outside, (SINKS[0], INSIDE), TIME_STEPS), SimStage((INSIDE,), SINKS[1:])


class SimSource:
    """An endless log: record i of a partition is there at a time that follows from i. It may fall quiet for a while."""

    def __init__(
        self, name: str, partitions: int, timeline: Timeline, quiet_s: Sequence[tuple[float, float]] = ()
    ) -> None:
        self.name = name
        self._partitions = [str(number) for number in range(partitions)]
        self._timeline = timeline
        self._quiet_us = [(round(start * US_PER_S), round(end * US_PER_S)) for start, end in quiet_s]
        self.trimmed: dict[str, int] = {}

    def start(self) -> Positions:
        """The oldest record still kept, in every partition."""
        return {partition: self.trimmed.get(partition, 0) for partition in self._partitions}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """What has arrived, up to the limit. Records come when they come, whatever the clock of a host says."""
        elapsed_us = self._timeline.now_us - START_US
        quiet_us = sum(max(0, min(elapsed_us, end) - start) for start, end in self._quiet_us)
        arrived = (elapsed_us - quiet_us) // SPACING_US
        share = max(1, records_max // len(self._partitions))
        ends = {one: max(since[one], min(arrived, since[one] + share)) for one in self._partitions}
        return Advance(ends, sum(ends.values()) - sum(since.values()), (), now_us, now_us)

    def trim(self, positions: Positions) -> None:
        """Nobody will read below ``positions`` again."""
        self.trimmed.update(positions)


class SimSink:
    """A sink with its fence inside: the first publication of an epoch stays. What became visible is kept in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.held: dict[int, Publication] = {}
        self.staged: set[tuple[int, str]] = set()
        """(epoch, holder) of manifests that were written and never got their name: nobody sees them."""
        self.visible: list[tuple[int, Publication]] = []
        """(when, what), as a reader of the sink would have seen it come."""

    def publication(self, epoch: int) -> Publication | None:
        """The fence of an epoch."""
        return self.held.get(epoch)

    def publish(self, wanted: Publication, now_us: int) -> Publication:
        """Make the epoch visible unless it is; what holds now."""
        held = self.held.setdefault(wanted.epoch, wanted)
        if held is wanted:
            self.show(wanted, now_us)
        return held

    def show(self, publication: Publication, now_us: int) -> None:
        """Readers see it from now on."""
        self.visible.append((now_us, publication))

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders left half-written."""
        leftovers = {one for one in self.staged if one[1] in dead}
        self.staged -= leftovers
        return len(leftovers)


class Boundary(SimSink):
    """The journal between two stages: what is published there can be read from the next cut on."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.trimmed: dict[str, int] = {}
        self._ends: list[int] = []
        self._digests: list[int] = []

    def show(self, publication: Publication, now_us: int) -> None:
        """Its rows are appended."""
        super().show(publication, now_us)
        if publication.rows:
            self._ends.append(self._end + publication.rows)
            self._digests.append(int(publication.digest, 16))

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else 0

    def start(self) -> Positions:
        """The oldest record still kept."""
        return {"0": self.trimmed.get("0", 0)}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:  # noqa: ARG002
        """Everything that is there."""
        return Advance({"0": self._end}, self._end - since.get("0", 0), finished=True)

    def trim(self, positions: Positions) -> None:
        """Nobody will read below ``positions`` again."""
        self.trimmed.update(positions)

    def content(self, start: Cut, end: Cut) -> tuple[int, ...]:
        """What was published between two cuts, as numbers."""
        first, last = start[self.name]["0"], end[self.name]["0"]
        return tuple(self._digests[bisect_right(self._ends, first) : bisect_right(self._ends, last)])


class Results(NamedTuple):
    """Which results code has: those of a generation, and what that changes in them; 0: nothing."""

    generation: int = 1
    flavour: int = 0


Lineage = tuple[tuple[Results, int], ...]
"""The results that a state was computed with, one after the other, and the last epoch before each."""


AS_BEFORE: Lineage = ((Results(), -1),)
"""That of a job whose results never changed."""


@dataclass(frozen=True)
class State:
    """A replica's state after an epoch: what it counted, how far its event time is, and a trace of the whole past."""

    records: int = 0
    watermarks: tuple[int, ...] = (0,) * len(TIME_STEPS)
    past: int = 0
    lineage: Lineage = AS_BEFORE

    def damaged(self) -> State:
        """As a flipped bit would leave it: wrong from now on, and silent about it."""
        return replace(self, records=self.records + 1)

    def restored(self) -> State:
        """As Spark reads it from a checkpoint: the watermarks of its operators are lost, and the marks rebuild them."""
        return replace(self, watermarks=(0,) * len(TIME_STEPS))


def compute(
    stage: SimStage,
    state: State,
    start: Cut,
    entry: Entry,
    observed: Mapping[str, int | None],
    content: Sequence[int] = (),
    results: Results = Results(),  # noqa: B008 (it is a tuple)
) -> State:
    """One epoch: everything that may influence the output goes in, and nothing else. ``content`` is what it reads of
    the journal between the stages, ``results`` the code."""
    ranges = _ranges(stage, start, entry.cut)
    watermarks = tuple(
        # Where time goes by partition, records do not move it: the mark does, for the next epoch.
        max(before, entry.marks.get(step.id) or 0, 0 if step.by_partition else observed.get(step.id) or 0)
        for before, step in zip(state.watermarks, TIME_STEPS, strict=True)
    )
    records = state.records + sum(end - first for _, _, first, end in ranges)
    # Only numbers are hashed: those hash alike in every process.
    numbers = tuple(value for _, partition, first, end in ranges for value in (partition, first, end))
    lineage = state.lineage if state.lineage[-1][0] == results else (*state.lineage, (results, entry.epoch - 1))
    past = hash((state.past, results.flavour, entry.epoch, entry.epoch_time_us, *numbers, *content, *watermarks))
    return State(records, watermarks, past, lineage)


def digest(state: State, sink: str) -> str:
    """The fingerprint of what an epoch sends to a sink."""
    return f"{hash((_NUMBER_OF[sink], state.records, state.past, *state.watermarks)) & 0xFFFF_FFFF:08x}"


def observe(stage: SimStage, start: Cut, end: Cut) -> dict[str, int | None]:
    """The highest event time of the records between two cuts, per ``event_time`` step of the stage, and partition."""
    newest: dict[str, int | None] = dict.fromkeys(step.id for step in stage.time_steps)
    for source, partition, first, last in _ranges(stage, start, end) if stage.time_steps else ():
        # Disorder is bounded, so the highest is among the last few.
        highest = _highest_us(max(first, last - 2 * _DISORDER), last)
        if highest:
            step, highest = _STEP_OF[source], highest - partition * PARTITION_LAG_US
            newest[step] = max(highest, newest[step] or 0)
            newest |= by_partition(step, {str(partition): highest})
    return newest


@lru_cache(maxsize=10_000)
def _highest_us(first: int, last: int) -> int:
    return max((event_time_us(position) for position in range(first, last)), default=0)


def event_time_us(position: int) -> int:
    """The event time of a record: about in order, never quite."""
    return START_US + (position - position * 5 % _DISORDER) * SPACING_US


def records_between(stage: SimStage, start: Cut, end: Cut) -> int:
    """How many records a stage reads between two cuts."""
    return sum(last - first for _, _, first, last in _ranges(stage, start, end))


def _ranges(stage: SimStage, start: Cut, end: Cut) -> list[tuple[str, int, int, int]]:
    """(source, partition, first, one past the last), in a fixed order."""
    return [
        (source, int(partition), start.get(source, _NOWHERE).get(partition, 0), last)
        for source, positions in sorted(end.items())
        if source in stage.sources
        for partition, last in sorted(positions.items())
    ]
