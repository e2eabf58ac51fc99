"""Everything that happened, seen from outside, and the promises checked at each step.

Nothing here trusts the store: what was sealed stays known after it was trimmed, and every digest is compared with the
output computed anew from the ledger by one plain loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.observe import promises
from lockstep.runtime.decide.marks import TimeStep
from lockstep.sim.pipeline import (
    AS_BEFORE,
    SINKS,
    TIME_STEPS,
    VERSION,
    Boundary,
    Lineage,
    Results,
    SimSink,
    SimSource,
    SimStage,
    State,
    compute,
    digest,
    observe,
)
from lockstep.sim.timeline import Timeline
from lockstep.store.protocols import Cut, Entry

TRACE_LINES = 40
"""How much of the story is kept if nobody wants all of it."""


class PromiseBroken(AssertionError):
    """A promise did not hold; the text begins with its name."""

    def __init__(self, violation: str, story: Sequence[str]) -> None:
        super().__init__("\n  ".join([violation, *story]))
        self.violation = violation
        self.story = tuple(story)

    @property
    def promise(self) -> str:
        """The name of the promise."""
        return self.violation.partition(":")[0]


class History:
    """What was sealed, used, computed and published, with the promises kept in view."""

    def __init__(
        self,
        timeline: Timeline,
        sources: Mapping[str, SimSource | Boundary],
        settings: RunSettings,
        stages: Sequence[SimStage],
        content: Callable[[SimStage, Cut, Cut], Sequence[int]],
        *,
        whole: bool = False,
    ) -> None:
        self._stages = stages
        self._content = content
        self._timeline = timeline
        self._sources = sources
        self._settings = settings
        self._story: deque[tuple[float, str, str]] = deque(maxlen=None if whole else TRACE_LINES)
        self.broken: PromiseBroken | None = None
        """The first promise that broke: whatever catches errors on the way up, it ends the run."""
        self.told: Counter[str] = Counter()
        """How often each kind of trouble happened."""
        self.entries: dict[int, Entry] = {}
        self.head = -1
        self.sealed_us: dict[int, int] = {}
        self.references: list[dict[int, State]] = [{-1: State()} for _ in stages]
        """The state of each stage after each epoch, as the ledger and what was published inside give it."""
        self._others: dict[tuple[int, Lineage], dict[int, State]] = {}
        """The same for every stage and lineage of other results."""
        self.lineages: dict[int, Lineage] = {}
        """Of each generation of results that has published, what it goes back to."""
        self._newest: dict[str, int | None] = {}
        """The highest event time of all records before the head's end, by step, and by step and partition."""
        self.wrong: list[tuple[int, str, str]] = []
        """(epoch, sink, who) of every digest that is not the reference's; only a damaged replica may add to it."""
        self.damage_is_expected = False
        self.forgot_late = False
        """Whether a coordinator that was replaced in the midst of forgetting forgot all the same. Nothing keeps it from
        that: whoever still needs it starts anew from a peer."""
        self.up_us: list[tuple[int, int]] = []
        """(from, to) of every time that a replica was up and counted as running."""
        self.able_us: list[tuple[int, int]] = []
        """The part of it in which none of its writes was stuck in the disk."""
        self.excused_us: list[tuple[int, int]] = []
        """(from, to) of every time in which nobody could publish, the disk being full."""

    def was_up(self, from_us: int, to_us: int, stuck_us: Iterable[tuple[int, int]]) -> None:
        """A replica was up, and in the meantime a write of its own was stuck in the disk."""
        self.up_us.append((from_us, to_us))
        self.able_us += promises.without([(from_us, to_us)], stuck_us)

    def note(self, who: str, what: str) -> None:
        """A line for whoever reads why a seed failed."""
        self._story.append((self._timeline.elapsed_s, who, what))

    @property
    def story(self) -> list[str]:
        """One line per event: when, who, what."""
        return [f"{at_s:9.3f} s  {who:<11} {what}" for at_s, who, what in self._story]

    def check(self, violations: Sequence[str]) -> None:
        """Stop the simulation at the first broken promise."""
        if violations and self.broken is None:
            self.broken = PromiseBroken(violations[0], self.story)
        if self.broken is not None:
            raise self.broken

    def sealed(self, entry: Entry, *, by: str, is_live: bool, running: Mapping[str, int]) -> None:
        """An entry was put into the ledger. ``running`` has the epoch of every replica that the others wait for."""
        self.note(by, f"seals {entry.epoch} ({entry.records} records)")
        self.check(promises.incarnation(by, f"seals epoch {entry.epoch}", is_live=is_live))
        if entry.epoch in self.entries:
            self.used(entry, by=by)
            return
        before = self.entries.get(self.head)
        if before is not None:
            self.check(promises.completeness([(before.epoch, before.cut), (entry.epoch, entry.cut)]))
            self.check(promises.turns(_turn(before), _turn(entry)))
            self.check(promises.time([(before.epoch, before.epoch_time_us), (entry.epoch, entry.epoch_time_us)]))
        newest_us = {step.id: self._reached(step, before) for step in TIME_STEPS}
        self.check(promises.marks(entry.epoch, entry.marks, before.marks if before else {}, newest_us, _ALWAYS))
        start = before.cut if before else {name: source.start() for name, source in self._sources.items()}
        observed = observe(self._stages[0], start, entry.cut)
        self._newest |= {name: _later(self._newest.get(name), newest) for name, newest in observed.items()}
        self.entries[entry.epoch], self.head = entry, entry.epoch
        self.sealed_us[entry.epoch] = self._timeline.now_us
        for stage, states in zip(self._stages, self.references, strict=True):
            content = self._content(stage, start, entry.cut)
            seen = observed if stage.time_steps else {}
            states[entry.epoch] = compute(stage, states[entry.epoch - 1], start, entry, seen, content)
        # One more: a replica may join the set between somebody's decision to seal and the seal itself.
        self.check(promises.readiness(running, entry.epoch, self._settings.lead_epochs_max + 1))

    def _reached(self, step: TimeStep, before: Entry | None) -> int | None:
        """How far the records before an epoch have come: the furthest, or by partition the least far."""
        if not step.by_partition:
            return self._newest.get(step.id)
        partitions = before.cut[step.sources[0]] if before is not None else {}
        found = [self._newest.get(f"{step.id}/{partition}") for partition in partitions]
        known = [one for one in found if one is not None]
        return min(known, default=None) if len(known) == len(found) else None

    def used(self, entry: Entry, *, by: str) -> None:
        """A replica runs an epoch by this entry."""
        first = self.entries[entry.epoch]
        if entry is not first:
            self.check(
                promises.agreement([(first.sealed_by, entry.epoch, _key(first)), (by, entry.epoch, _key(entry))])
            )

    def read(self, source: str, start: Mapping[str, int], *, by: str) -> None:
        """A replica reads a source from these positions on."""
        kept = self._sources[source].trimmed
        if kept and not self.forgot_late:
            self.check(promises.retention(by, _named(source, start), _named(source, kept)))

    def missing(self, epoch: int, *, by: str, floor: int) -> None:
        """A replica that runs needs an entry that is gone."""
        if not self.forgot_late:
            self.check(promises.retention(by, {"the ledger": epoch}, {"the ledger": floor}))

    def right(self, epoch: int, sink: str, lineage: Lineage = AS_BEFORE) -> str:
        """The digest that an epoch has to send to a sink."""
        stage = next(number for number, stage in enumerate(self._stages) if sink in stage.sinks)
        return digest(self._reference(stage, lineage, epoch), sink)

    def _reference(self, stage: int, lineage: Lineage, epoch: int) -> State:
        """The state of a stage after an epoch, by the results of one lineage."""
        (results, after), older = lineage[-1], lineage[:-1]
        if not older:
            return self.references[stage][epoch]
        known = self._others.setdefault((stage, lineage), {})
        if not known:
            known[after] = self._reference(stage, older, after)
        for number in range(max(known) + 1, epoch + 1):
            known[number] = self._next(self._stages[stage], known[number - 1], self.entries[number], results)
        return known[epoch]

    def _next(self, stage: SimStage, state: State, entry: Entry, results: Results) -> State:
        before = self.entries.get(entry.epoch - 1)
        start = before.cut if before else {name: source.start() for name, source in self._sources.items()}
        content = self._content(stage, start, entry.cut)
        return compute(stage, state, start, entry, observe(stage, start, entry.cut), content, results)

    def computed(self, epoch: int, sink: str, found: str, *, by: str, lineage: Lineage = AS_BEFORE) -> None:
        """A replica reported a digest."""
        generation = lineage[-1][0].generation
        self.check(promises.lineage(by, generation, lineage, self.lineages.get(generation, lineage)))
        right = self.right(epoch, sink, lineage)
        if found == right:
            return
        if self.damage_is_expected:
            self.note(by, f"computes a wrong {epoch}")
            self.wrong.append((epoch, sink, by))
            return
        self.check(
            promises.equality([(epoch, sink, VERSION, "the reference", right), (epoch, sink, VERSION, by, found)])
        )

    def published(self, sink: SimSink) -> None:
        """Something became visible in a sink."""
        newest = sink.visible[-1][1]
        self.note(newest.by, f"publishes {newest.epoch} to {sink.name}")
        before = sink.visible[-2][1].epoch if len(sink.visible) > 1 else -1
        if newest.epoch != before + 1:
            epochs = [publication.epoch for _, publication in sink.visible]
            self.check(promises.once([epoch for epoch in epochs if epoch == newest.epoch]))
            self.check(promises.order([before, newest.epoch]))

    def named(self, epoch: int, lineage: Lineage, sink: str, by: str, *, alone: bool) -> None:
        """Results became visible; ``alone`` if nobody is left who has those that the entry names."""
        generation = lineage[-1][0].generation
        named = self.entries[epoch].generation
        self.check(promises.generation(epoch, sink, by, generation, generation if alone else named))
        self.lineages.setdefault(generation, lineage)

    def rests(self, who: str, epochs: Sequence[int]) -> None:
        """A replica that drained has come to rest: after the same epoch in all stages."""
        apart = len(set(epochs)) > 1
        self.check([f"stopping: {who} rests after epochs {sorted(epochs)} of its stages"] if apart else [])

    def check_all(self, sinks: Sequence[SimSink], *, settled_s: float, gap_s_max: float) -> None:
        """At the end: every epoch sealed at least ``settled_s`` ago is in every sink, and output never stood still."""
        settled_us = self._timeline.now_us - settled_s * US_PER_S
        cuts = [(epoch, entry.cut) for epoch, entry in self.entries.items() if self.sealed_us[epoch] <= settled_us]
        for sink in sinks:
            epochs = [publication.epoch for _, publication in sink.visible]
            self.check(promises.completeness(cuts, epochs))
            self.check(promises.order([-1, *epochs]))
            self.check(promises.once(epochs))
        last = next(sink for sink in sinks if sink.name == SINKS[-1])
        visible_us = [at_us for at_us, _ in last.visible]
        live_us = promises.without(self.up_us, self.excused_us)
        self.check(promises.progress(visible_us, live_us, round(gap_s_max * US_PER_S), self.able_us))


def _turn(entry: Entry) -> tuple[int, int, int]:
    return entry.epoch, entry.generation, entry.turn


_ALWAYS = frozenset(step.id for step in TIME_STEPS if step.idle_after_us is None)
"""The event_time steps whose mark is never moved by the clock."""


def _later(mark_us: int | None, other_us: int | None) -> int | None:
    known = [one for one in (mark_us, other_us) if one is not None]
    return max(known) if known else None


def _named(source: str, positions: Mapping[str, int]) -> dict[str, int]:
    return {f"{source}/{partition}": position for partition, position in positions.items()}


def _key(entry: Entry) -> Hashable:
    cut = tuple((source, *sorted(positions.items())) for source, positions in sorted(entry.cut.items()))
    return entry.epoch_time_us, cut, tuple(sorted(entry.marks.items()))
