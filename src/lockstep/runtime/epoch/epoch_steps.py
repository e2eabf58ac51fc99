"""The life of a sealed epoch in one stage of a replica: computed, noted, published unless somebody has, noted again.

Only then does Spark commit it: what is before the commit is done again after a crash, what is after never is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from lockstep.clock import Clock, wall_us
from lockstep.connect.protocols import Publication
from lockstep.errors import RunError
from lockstep.runtime.decide.fence import disagrees, goes_on, judged_divergence
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Store

BEGIN, RUN, DIGEST, PUBLISH, FINISH = "begin", "run", "digest", "publish", "finish"
"""The steps of an epoch; there is a ``publish SINK`` for each sink, in their fixed order."""
DISPUTE = "dispute"
"""Only where somebody has published something else."""
_VERDICT_POLL_S = 0.05


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

    def difference(self, held: Publication, output: Output) -> str | None:
        """What people should read about two digests that differ; None if the rows do not really."""


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
    ) -> None:
        self._store = store
        self._holder = holder
        self._stage = stage
        self._version = version
        self._stage_progress = stage_progress
        self._is_stopping = is_stopping
        self._clock = clock
        self.diverged = False
        """Whether it disagrees with what was published, and waits for a verdict."""
        self.held: list[Publication] = []
        """What holds in the sinks so far of the epoch under way, from here or from another."""

    def steps(self, entry: Entry, work: Work[Output]) -> Steps[None]:
        """One epoch, up to the moment when Spark may commit it."""
        self.held = []
        yield Step(BEGIN, partial(self._stage_progress.begun, entry.epoch))
        outputs: Sequence[Output] = yield Step(RUN, partial(work.compute, entry))
        yield Step(DIGEST, partial(self._store.add_digests, [self._digest(entry.epoch, one) for one in outputs]))
        for output in outputs:
            yield from self._publish(entry, output, work)
        yield Step(FINISH, partial(self._finish, entry, work))

    def _publish(self, entry: Entry, output: Output, work: Work[Output]) -> Steps[None]:
        wanted = self._wanted(entry, output)
        held: Publication = yield Step(f"{PUBLISH} {output.sink}", partial(work.publish, wanted, output))
        self.held.append(held)
        if disagrees(wanted, held) and (told := work.difference(held, output)) is not None:
            disagreement = self._divergence(wanted, held, output.sink, told)
            yield Step(DISPUTE, partial(self._store.add_divergence, disagreement))
            yield from self._await_verdict(entry.epoch, output.sink)

    def _finish(self, entry: Entry, work: Work[Output]) -> None:
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
