"""The life of a sealed epoch in one stage of a replica: computed, noted, published unless somebody has, noted again.

Only then does Spark commit it: what is before the commit is done again after a crash, what is after never is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Protocol, TypeVar

from lockstep.clock import Clock, wall_us
from lockstep.connect.protocols import Publication
from lockstep.errors import RunError
from lockstep.runtime.decide.fence import disagrees, goes_on, judged_divergence
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.shadow import ShadowNotes
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.steering import steering
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.store.protocols import COMPUTING, Digest, Divergence, Entry, Holder, Progress, Store

BEGIN, RUN, DIGEST, PUBLISH, FINISH = "begin", "run", "digest", "publish", "finish"
"""The steps of an epoch; there is a ``publish SINK`` for each sink, in their fixed order."""
DISPUTE = "dispute"
"""Only where somebody has published something else."""
LOOK, DROP = "look", "drop"
"""Only where others publish: to see whether they have, and to remove the copy of one's own."""
PROBATION_EPOCHS = 10
"""So many epochs a replica of a new kind leaves to the others, and compares, before it publishes itself."""
_VERDICT_POLL_S = 0.05
_PUBLICATION_POLL_S = 0.02


class Result(Protocol):
    """What an epoch sends to one sink, as far as its way there is concerned."""

    @property
    def sink(self) -> str:
        """The sink's name."""

    @property
    def digest(self) -> str:
        """The fingerprint of its rows."""

    @property
    def rows(self) -> int:
        """How many there are."""


Output = TypeVar("Output", bound=Result)


class Work(Protocol[Output]):
    """What has to be done for an epoch: by Spark and real sinks, or by a model of them."""

    def compute(self, entry: Entry) -> Sequence[Output]:
        """Run the epoch; what it sends to each sink, in their order."""

    def observed(self) -> Mapping[str, int | None]:
        """The highest event times that the epoch just computed saw."""

    def publish(self, wanted: Publication, output: Output) -> Publication:
        """Make it visible unless somebody has; what holds now."""

    def publication(self, epoch: int, output: Output) -> Publication | None:
        """What somebody has published of this; None if nobody has, or the sink cannot tell."""

    def drop(self, output: Output) -> None:
        """Nobody publishes this: remove what was put aside for it."""

    def difference(self, held: Publication, output: Output) -> str | None:
        """What people should read about two digests that differ; None if the rows do not really."""

    def contrast(self, held: Publication, output: Output) -> str | None:
        """The same where results are expected to differ: nothing is kept for later."""


@dataclass
class Part:
    """Which part a replica plays beside others: which results it publishes, and whether it has to prove itself."""

    results_of: int = 1
    """The generation with which its results last changed; it is in the shadow where the entry names another."""
    probation_epochs: int = 0
    """So many epochs it still leaves to others, for some time each."""
    patience_s: float = 3.0
    shadow: ShadowNotes | None = None


def part_of(
    store: Store,
    spec: ReplicaSpec,
    patience_s: float,
    *,
    others_publish: bool,
    elapsed_s: Callable[[], float] = time.monotonic,
) -> Part:
    """Which part a replica plays: the first of a new kind proves itself before it publishes, if others can."""
    others = [one for one in store.progress() if one.replica != spec.replica]
    is_first = spec.generation > 1 and not any(
        one.generation == spec.generation and one.state == "running" for one in others
    )
    return Part(
        results_of=spec.results_of,
        probation_epochs=PROBATION_EPOCHS if is_first and others_publish else 0,
        patience_s=patience_s,
        shadow=ShadowNotes(store, spec.replica, spec.results_of, elapsed_s),
    )


class EpochSteps(Generic[Output]):
    """Walks the epochs of one stage."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        stage: int,
        version: str,
        stage_progress: StageProgress,
        is_stopping: Callable[[], bool],
        clock: Clock = wall_us,
        part: Part | None = None,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._part = part or Part()
        self._elapsed_s = elapsed_s
        self._store = store
        self._holder = holder
        self._stage = stage
        self._version = version
        self._stage_progress = stage_progress
        self._is_stopping = is_stopping
        self._clock = clock
        self._waits_since_s: float | None = None
        """Since when it has left the epoch under way to others: its patience is for the epoch, not for each sink."""
        self._in_shadow = False
        """Whether others publish the epoch under way, with other results."""
        self.diverged = False
        """Whether it disagrees with what was published, and waits for a verdict."""
        self.held: list[Publication] = []
        """What holds in the sinks so far of the epoch under way, from here or from another."""

    def steps(self, entry: Entry, work: Work[Output]) -> Steps[None]:
        """One epoch, up to the moment when Spark may commit it."""
        self.held = []
        self._waits_since_s = None
        self._in_shadow = self._is_in_shadow(entry)
        yield Step(BEGIN, partial(self._stage_progress.begun, entry.epoch))
        outputs: Sequence[Output] = yield Step(RUN, partial(work.compute, entry))
        yield Step(DIGEST, partial(self._store.add_digests, [self._digest(entry.epoch, one) for one in outputs]))
        for output in outputs:
            yield from self._publish(entry, output, work)
        yield Step(FINISH, partial(self._finish, entry, work))

    def _publish(self, entry: Entry, output: Output, work: Work[Output]) -> Steps[None]:
        wanted = self._wanted(entry, output)
        if self._in_shadow:
            yield from self._compare(entry, wanted, output, work)
            if self._in_shadow:
                return
        if self._part.probation_epochs > 0 and self._do_others_publish(entry):
            yield from self._await_publication(entry, output, work, self._part.patience_s)
        held: Publication = yield Step(f"{PUBLISH} {output.sink}", partial(work.publish, wanted, output))
        self.held.append(held)
        differs = held.digest != wanted.digest if self._part.probation_epochs > 0 else disagrees(wanted, held)
        if differs and (told := work.difference(held, output)) is not None:
            disagreement = self._divergence(wanted, held, output.sink, told)
            yield Step(DISPUTE, partial(self._store.add_divergence, disagreement))
            yield from self._await_verdict(entry.epoch, output.sink)

    def _is_in_shadow(self, entry: Entry) -> bool:
        mine = self._part.results_of
        # Asked only where results change, or have changed: it costs a read.
        return entry.generation != mine and steering(self._store).is_shadowed_by(entry, mine)

    def _compare(self, entry: Entry, wanted: Publication, output: Output, work: Work[Output]) -> Steps[None]:
        """In the shadow: see what the others publish, and how ours differs from it. No epoch begins before they have
        published: from some epoch on it is this one's turn, and a sink has its epochs in order."""
        held = yield from self._await_publication(entry, output, work, None)
        if not self._in_shadow:
            return
        self.held.append(held or wanted)
        if held is not None and held.digest != wanted.digest and (told := work.contrast(held, output)) is not None:
            assert self._part.shadow is not None, "whoever may be in the shadow notes what it finds"
            self._part.shadow.differs(output.sink, told)
        yield Step(DROP, partial(work.drop, output))

    def _await_publication(
        self, entry: Entry, output: Output, work: Work[Output], patience_s: float | None
    ) -> Steps[Publication | None]:
        """What others have published of this epoch, once they have; None if the sink cannot tell, or they take long."""
        begun_s = self._waits_since_s = self._elapsed_s() if self._waits_since_s is None else self._waits_since_s
        while not self._is_stopping():
            held: Publication | None = yield Step(LOOK, partial(work.publication, entry.epoch, output))
            if held is not None:
                return held
            if self._have_others_computed(entry):
                # Theirs is in the sink by now, if the sink can tell.
                held = yield Step(LOOK, partial(work.publication, entry.epoch, output))
                return held
            if patience_s is not None and self._elapsed_s() - begun_s > patience_s:
                return None
            if patience_s is None and not self._is_in_shadow(entry):
                # It was switched back before those who sealed this had published it: now it is this one's.
                self._in_shadow = False
                return None
            yield Pause(_PUBLICATION_POLL_S)
        if patience_s is not None:
            return None
        raise RunError("LS0601", f"stopped before epoch {entry.epoch} was published by those who publish")

    def _do_others_publish(self, entry: Entry) -> bool:
        return any(one.state in COMPUTING for one in self._publishers(entry))

    def _have_others_computed(self, entry: Entry) -> bool:
        return any(one.epoch >= entry.epoch for one in self._publishers(entry))

    def _publishers(self, entry: Entry) -> list[Progress]:
        """The other replicas whose results the entry names, in their newest words."""
        others = (one for one in self._store.progress() if one.replica != self._holder.replica)
        return [one for one in others if one.results_of == entry.generation]

    def _finish(self, entry: Entry, work: Work[Output]) -> None:
        if self._in_shadow and self._part.shadow is not None:
            self._part.shadow.epoch_done(entry.epoch, has_rows=any(one.rows for one in self.held))
        self._part.probation_epochs = max(0, self._part.probation_epochs - 1)
        self._store.add_observed(entry.epoch, work.observed())
        self._stage_progress.done(self._stage, entry, self.held)

    def _await_verdict(self, epoch: int, sink: str) -> Steps[None]:
        """Wait until the supervisor has judged who is right, and go on only if this replica may."""
        self.diverged = True
        why = "not judged yet."
        while not self._is_stopping():
            judged = judged_divergence(self._store.divergences(), epoch, sink, self._holder)
            if judged is None:
                yield Pause(_VERDICT_POLL_S)
                continue
            self.diverged, why = False, judged.detail
            if goes_on(judged):
                return
            break
        raise RunError("LS0603", f'replicas disagree about epoch {epoch} of sink "{sink}"', why=why)

    def _digest(self, epoch: int, output: Output) -> Digest:
        return Digest(
            epoch=epoch,
            sink=output.sink,
            replica=self._holder.replica,
            incarnation=self._holder.incarnation,
            digest=output.digest,
            rows=output.rows,
            version=self._version,
        )

    def _wanted(self, entry: Entry, output: Output) -> Publication:
        return Publication(
            epoch=entry.epoch,
            digest=output.digest,
            rows=output.rows,
            by=str(self._holder),
            version=self._version,
            epoch_time_us=entry.epoch_time_us,
            ingested_oldest_us=entry.ingested_oldest_us,
            ingested_newest_us=entry.ingested_newest_us,
        )

    def _divergence(self, wanted: Publication, held: Publication, sink: str, told: str) -> Divergence:
        return Divergence(
            epoch=wanted.epoch,
            sink=sink,
            replica=self._holder.replica,
            incarnation=self._holder.incarnation,
            published_by=held.by,
            digest=wanted.digest,
            published_digest=held.digest,
            detail=told,
            at_us=self._clock(),
        )
