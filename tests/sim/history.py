"""Everything that happened, seen from outside, and the promises checked at each step.

Nothing here trusts the store: what was sealed stays known after it was trimmed, and every digest is compared with the
output computed anew from the ledger by one plain loop.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping, Sequence

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.observe import promises
from lockstep.store.protocols import Entry
from tests.sim.pipeline import SINKS, TIME_STEPS, VERSION, SimSink, SimSource, State, compute, digest, observe
from tests.sim.timeline import Timeline

TRACE_LINES = 40


class PromiseBroken(AssertionError):
    """A promise did not hold; the text begins with its name."""


class History:
    """What was sealed, used, computed and published, with the promises kept in view."""

    def __init__(self, timeline: Timeline, sources: Mapping[str, SimSource], settings: RunSettings) -> None:
        self._timeline = timeline
        self._sources = sources
        self._settings = settings
        self._trace: deque[str] = deque(maxlen=TRACE_LINES)
        self.told: Counter[str] = Counter()
        """How often each kind of trouble happened."""
        self.entries: dict[int, Entry] = {}
        self.sealed_us: dict[int, int] = {}
        self.reference: dict[int, State] = {-1: State()}
        self.wrong: list[tuple[int, str, str]] = []
        """(epoch, sink, who) of every digest that is not the reference's; only a damaged replica may add to it."""
        self.damage_is_expected = False
        self.up_us: list[tuple[int, int]] = []
        """(from, to) of every time that a replica was up and counted as running."""

    def note(self, who: str, what: str) -> None:
        """A line for whoever reads why a seed failed."""
        self._trace.append(f"{self._timeline.elapsed_s:9.3f} s  {who:6} {what}")

    def check(self, violations: Sequence[str]) -> None:
        """Stop the simulation at the first broken promise."""
        if violations:
            listed = "\n  ".join(self._trace)
            raise PromiseBroken(f"{violations[0]}\n  {listed}")

    def sealed(self, entry: Entry, *, by: str, is_live: bool, running: Mapping[str, int]) -> None:
        """An entry was put into the ledger. ``running`` has the epoch of every replica that the others wait for."""
        self.note(by, f"sealed {entry.epoch}")
        if not is_live:
            self.check([f"incarnation: {by} sealed epoch {entry.epoch} although it was retired"])
        if entry.epoch in self.entries:
            self.used(entry, by=by)
        before = self.entries.get(entry.epoch - 1)
        if before is not None:
            self.check(promises.completeness([(before.epoch, before.cut), (entry.epoch, entry.cut)]))
            if entry.epoch_time_us <= before.epoch_time_us:
                self.check([f"time: epoch {entry.epoch} is not later than the one before it"])
        self.entries[entry.epoch] = entry
        self.sealed_us[entry.epoch] = self._timeline.now_us
        self.reference[entry.epoch] = compute(self.reference[entry.epoch - 1], before.cut if before else {}, entry)
        self.check(self._marks(entry, before))
        # One more: a replica may join the set between somebody's decision to seal and the seal itself.
        self.check(promises.readiness(running, entry.epoch, self._settings.lead_epochs_max + 1))

    def used(self, entry: Entry, *, by: str) -> None:
        """A replica runs an epoch by this entry."""
        first = self.entries[entry.epoch]
        self.check(promises.agreement([(first.sealed_by, entry.epoch, _key(first)), (by, entry.epoch, _key(entry))]))

    def read(self, source: str, start: Mapping[str, int], *, by: str) -> None:
        """A replica reads a source from these positions on."""
        kept = self._sources[source].trimmed
        lost = [f"{source}/{one} from {at}" for one, at in start.items() if at < kept.get(one, 0)]
        self.check([f"retention: {by} reads {what}, which was trimmed" for what in lost])

    def missing(self, epoch: int, *, by: str, floor: int) -> None:
        """A replica that runs needs an entry that is gone."""
        self.check([f"retention: {by} needs epoch {epoch}, and the ledger begins at {floor}"])

    def computed(self, epoch: int, sink: str, found: str, *, by: str) -> None:
        """A replica reported a digest."""
        right = digest(self.reference[epoch], sink)
        violations = promises.equality(
            [(epoch, sink, VERSION, "the reference", right), (epoch, sink, VERSION, by, found)]
        )
        if violations and self.damage_is_expected:
            self.note(by, f"wrong digest of {epoch}")
            self.wrong.append((epoch, sink, by))
        else:
            self.check(violations)

    def published(self, sink: SimSink) -> None:
        """Something became visible in a sink."""
        epochs = [publication.epoch for _, publication in sink.visible]
        newest = epochs[-1]
        self.note(sink.visible[-1][1].by, f"published {newest} to {sink.name}")
        self.check(promises.once([epoch for epoch in epochs if epoch == newest]))
        self.check(promises.order([-1, *epochs][-2:]))

    def _marks(self, entry: Entry, before: Entry | None) -> list[str]:
        """Each mark is the highest event time of all records before its epoch, computed here from the cut alone."""
        violations = []
        newest = observe({}, before.cut) if before else {}
        for step in TIME_STEPS:
            mark, right = entry.marks[step.id], newest.get(step.id)
            if (mark or 0) < (right or 0) or (step.idle_after_us is None and mark != right):
                violations.append(
                    f"marks: epoch {entry.epoch} has {step.id} at {mark}, its records before are at {right}"
                )
            if before and (mark or 0) < (before.marks[step.id] or 0):
                violations.append(f"marks: epoch {entry.epoch} moves {step.id} back")
        return violations

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
        self.check(promises.progress(visible_us, self.up_us, round(gap_s_max * US_PER_S)))


def _key(entry: Entry) -> Hashable:
    cut = tuple((source, *sorted(positions.items())) for source, positions in sorted(entry.cut.items()))
    return entry.epoch_time_us, cut, tuple(sorted(entry.marks.items()))
