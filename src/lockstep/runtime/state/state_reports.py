"""The thread that takes digests of a replica's state and reports them, beside the epochs and out of their way."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.clock import wall_us
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import LockstepError, StoreError
from lockstep.runtime.decide.pacing import is_live
from lockstep.runtime.decide.state_digests import Joined, is_urgent, joined_key, stretched, wanted_epochs
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.state.checkpoint import batch_of
from lockstep.runtime.state.digests import state_digest
from lockstep.store.protocols import Digest, Holder, Store, state_subject

LOOK_INTERVAL_S = 0.5
LEASE = "state-digest"
LEASE_S = 10.0
"""Whoever dies in its turn keeps it for so long, which is less than Spark keeps a state for at ten epochs a second."""
_RETAINED = "spark.sql.streaming.minBatchesToRetain"
_REASON_CHARACTERS_MAX = 300


class StateReports(threading.Thread):
    """Looks twice a second whether the state of an epoch is to be compared, and reports its digest.

    Epochs come first. With one core a task that reads state holds up the epoch that comes meanwhile, so replicas take
    turns: while one reads, another publishes. Where no other would, nothing is read, and there is nobody to compare
    with either.
    """

    def __init__(
        self,
        session: SparkSession,
        store: Store,
        holder: Holder,
        version: str,
        checkpoints: Mapping[int, AnyPath],
        stage_progress: StageProgress,
        every_epochs: int,
        exact_floats: bool,
        is_stopping: Callable[[], bool],
    ) -> None:
        super().__init__(name="state-reports", daemon=True)
        self._session = session
        self._store = store
        self._holder = holder
        self._version = version
        self._checkpoints = checkpoints
        self._stage_progress = stage_progress
        self._every_epochs = dict.fromkeys(checkpoints, every_epochs)
        self._every_epochs_min = every_epochs
        self._exact_floats = exact_floats
        self._is_stopping = is_stopping
        self._retained = int(session.conf.get(_RETAINED) or 0)
        self._joined = Joined(
            holder.incarnation, {number: stage_progress.stage_epoch(number) for number in checkpoints}
        )
        self._took_s = dict.fromkeys(checkpoints, 0.0)
        self._ended = threading.Event()
        self._settled: set[tuple[int, int]] = set()
        """(stage, epoch) that were reported, or cannot be."""

    def run(self) -> None:
        """Report until the replica ends, or these checkpoints are its own no more."""
        announced = False
        while not self._is_stopping() and not self._ended.is_set():
            try:
                if not announced:
                    self.announce()
                    announced = True
                self._spare_time()
                self.look()
            except StoreError as error:
                # Telemetry: the next look may succeed.
                with contextlib.suppress(OSError):
                    print(f"state not reported: {error}", file=sys.stderr, flush=True)
            self._ended.wait(LOOK_INTERVAL_S)

    def stop(self) -> None:
        """Report nothing more: others are about to report from a newer seed."""
        self._ended.set()

    def announce(self) -> None:
        """Have everybody know at which epoch this replica joined: then they report their state of that epoch too."""
        self._store.set_fact(joined_key(self._holder.replica), self._joined.to_text())

    def _spare_time(self) -> None:
        """Leave epochs out of the comparison where reading takes too large a share of the time."""
        for stage, took_s in self._took_s.items():
            epoch_s = self._stage_progress.at.epoch_s
            self._every_epochs[stage] = stretched(self._every_epochs_min, took_s, epoch_s)

    def look(self) -> bool:
        """Report the oldest state that is to be compared, if it is time for that; whether it was."""
        if not self._another_publishes():
            return False
        for stage, epoch, committed in self._wanted():
            if (stage, epoch) in self._settled:
                continue
            urgent = is_urgent(epoch, committed, self._retained)
            if not urgent and not self._is_idle():
                continue
            with self._turn(urgent=urgent) as is_ours:
                if is_ours:
                    # Settled afterwards: what the store refuses now is reported at a later look.
                    self._report(stage, epoch)
                    self._settled.add((stage, epoch))
                    return True
        return False

    def _wanted(self) -> list[tuple[int, int, int]]:
        """(stage, epoch, newest epoch that is certainly committed), oldest epochs first."""
        facts = [self._store.fact(joined_key(one.replica)) for one in self._store.progress()]
        joined = [one for one in map(Joined.from_text, facts) if one is not None]
        found = []
        for stage, every in self._every_epochs.items():
            # Spark commits an epoch a moment after it is done, and before the next is begun.
            committed = self._stage_progress.stage_epoch(stage) - 1
            epochs, since = [one.epochs.get(stage, -1) for one in joined], self._joined.epochs[stage]
            wanted = wanted_epochs(since, committed, epochs, every, self._retained)
            found += [(stage, epoch, committed) for epoch in wanted]
        self._settled &= {(stage, epoch) for stage, epoch, _ in found}
        return sorted(found, key=lambda one: one[1])

    def _another_publishes(self) -> bool:
        """Whether another replica is at the head: one that is still catching up would not be in time."""
        others = [one for one in self._store.progress() if one.replica != self._holder.replica]
        return any(one.state == "running" and is_live(one, wall_us()) for one in others)

    def _is_idle(self) -> bool:
        head = self._store.head()
        at = self._stage_progress.at
        return at.working_on < 0 and (head is None or at.epoch >= head.epoch)

    @contextlib.contextmanager
    def _turn(self, *, urgent: bool) -> Iterator[bool]:
        """Whether it is this replica's turn; in a hurry it does not ask."""
        taken = self._store.acquire(LEASE, str(self._holder), LEASE_S)
        try:
            yield taken or urgent
        finally:
            if taken:
                self._store.release(LEASE, str(self._holder))

    def _report(self, stage: int, epoch: int) -> None:
        begun_s = time.monotonic()
        try:
            digests = self._digests(stage, epoch)
        except (PySparkException, Py4JError, LockstepError, OSError, ValueError, KeyError) as error:
            # Spark may have removed it meanwhile. Whatever it is: an epoch that really needs this state will tell.
            reason = str(error).strip().partition("\n")[0][:_REASON_CHARACTERS_MAX]
            text = f"stage {stage}, epoch {epoch}: {type(error).__name__}: {reason}"
            self._store.add_event("state-not-compared", text, self._holder.replica)
            return
        self._took_s[stage] = time.monotonic() - begun_s
        self._store.add_digests(digests)

    def _digests(self, stage: int, epoch: int) -> list[Digest]:
        checkpoint = self._checkpoints[stage]
        batch = batch_of(checkpoint, epoch)
        if batch is None:
            raise ValueError("Spark does not keep it any more")
        found = state_digest(self._session, checkpoint, batch, exact_floats=self._exact_floats)
        return [
            Digest(
                epoch=epoch,
                sink=state_subject(stage, operator),
                replica=self._holder.replica,
                incarnation=self._holder.incarnation,
                digest=digest,
                rows=int(digest.partition("-")[0]),
                version=self._version,
            )
            for operator, digest in found.items()
        ]
