"""Runs a job over explicit epochs inside this process: real store, real query, real sinks; the test seals.

It is the replica's own code (compile, source, runner, checkpoint) without its process: the session is shared, and the
sealer seals when it is told to, at times that are made up, so that a test decides what every epoch holds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from lockstep.api.job import Job
from lockstep.api.loading import LoadedJob
from lockstep.clock import US_PER_S
from lockstep.config import Settings
from lockstep.connect.protocols import Place
from lockstep.connect.reading import read
from lockstep.connect.registry import source_side
from lockstep.connect.specs import JournalSource
from lockstep.control.start.continuing import note_version, settle_buckets
from lockstep.control.supervise.retention import forget
from lockstep.errors import LockstepError, RunError
from lockstep.runtime.decide.marks import time_steps
from lockstep.runtime.epoch.source import LockstepSource
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.state.folders import standings
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.home import job_folder
from lockstep.store.journal import open_journal
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Entry
from lockstep.testing.replica import ReplicaHere, SealerByHand, raised
from lockstep.testing.substitute import user_modules

START_US = 1_700_000_000_000_000
"""Epoch time just before epoch 0; each epoch comes a second later unless the test says otherwise."""
WAIT_S = 180.0
"""For one epoch. They take a fraction of a second each, but machines that run tests can be very busy."""
CODE = "code"
"""The hash of the code around the plan: in a test only the plan changes."""
NEVER_AHEAD_S = 1e9
"""Thirty years: an epoch of a test holds what the test put into it, unless it asks for less."""
_POLL_S, _POLL_MAX_S, _POLL_SHARE = 0.01, 0.1, 0.05
"""How often it is asked whether an epoch is done: at most this share of what it took so far is waited too long."""
_ALIVE_S = 0.2
"""How often whether the replica still runs: that is a call into the JVM for each of its queries."""


class Trial:
    """One job in one project folder, with the replicas that the test starts, step by step.

    :func:`lockstep.testing.run` does it all in one call; this is for tests that look in between.
    """

    def __init__(self, session: SparkSession, job: Job, folder: Path, settings: Mapping[str, object]) -> None:
        folder.mkdir(exist_ok=True)
        self.session = session
        self.folder = folder
        self.replicas: dict[str, ReplicaHere] = {}
        self.now_us = START_US
        """The newest epoch's time."""
        self.wait_s = WAIT_S
        """How long one epoch may take."""
        run_settings = {"max_ahead_s": NEVER_AHEAD_S, **job.options, **settings}
        self._store_folder = folder / ".lockstep"
        self.store = open_store(address_in(self._store_folder), job.name)
        run = settle_buckets(self.store, Settings.model_validate({"run": run_settings}).run)
        self.graph = job.graph().with_buckets(run.buckets)
        self._settings = Settings(run=run).model_dump(mode="json")
        self._loaded = LoadedJob(job, folder / "job.py", "job", (), user_modules(self.graph), CODE)
        self.place = Place(folder, self._store_folder, job.name)
        version = self.graph.version(CODE)
        at = standings(job_folder(self._store_folder, job.name), len(self.graph.stages))
        note_version(self.store, version, list(at.values()))
        holder = self.store.begin("test", os.getpid())
        sources = {step.id: source_side(step.spec, self.place, step.id) for step in self.graph.sources}
        self._sealer = SealerByHand(self.store, holder, sources, time_steps(self.graph), run, raised)

    def start(
        self,
        replica: str = "r0",
        *,
        partitions: int = 1,
        tasks: int = 2,
        crash_after: Callable[[int], bool] = lambda epoch: False,  # noqa: ARG005
    ) -> ReplicaHere:
        """Start a replica (again, from its checkpoint) with so many shuffle partitions and tasks per source."""
        own = self.session.newSession()
        own.conf.set("spark.sql.shuffle.partitions", str(partitions))
        own.dataSource.register(LockstepSource)
        spec = ReplicaSpec(
            project=str(self.folder),
            home=str(self._store_folder),
            job=self.graph.name,
            job_file="",
            code_hash=CODE,
            replica=replica,
            seed="auto",
            settings=self._settings,
        )
        spec.folder.mkdir(parents=True, exist_ok=True)
        holder = self.store.begin(replica, os.getpid())
        started = ReplicaHere(spec, self.store, holder, tasks, crash_after)
        self.replicas[replica] = started
        started.start(self._loaded, own)
        assert started.sealer is not None
        self._sealer.adopt(started.sealer)
        return started

    def forget(self, floor: int) -> None:
        """Trim history below this epoch, in the ledger and in the sources, as a supervisor does."""
        forget(self.store, self._sealer.sources, floor)

    def put(self, journal: str, records: Sequence[Mapping[str, Any]], partition: int | None = None) -> None:
        """Append records to a journal that a source of the job reads."""
        spec = next(step.spec for step in self.graph.sources if step.spec.to_json().get("name") == journal)
        assert isinstance(spec, JournalSource)
        opened = open_journal(self._store_folder, journal, spec.values, spec.partitions, lambda: self.now_us)
        try:
            opened.append(batch_from_pylist(records, spec.values), partition)
        finally:
            opened.close()

    def epoch(self, seconds: float = 1.0, **journals: Sequence[Mapping[str, Any]]) -> int:
        """Put these records into these journals, and run one epoch over them."""
        for name, records in journals.items():
            self.put(name, records)
        self.run(1, seconds)
        head = self.store.head()
        assert head is not None
        return head.epoch

    def seal(self, seconds: float = 1.0) -> Entry:
        """Seal the next epoch, so many seconds of epoch time after the one before."""
        return self.seal_at(self.now_us + round(seconds * US_PER_S))

    def seal_at(self, epoch_time_us: int, *, ending: bool = False) -> Entry:
        """Seal the next epoch, at this epoch time; with ``ending`` as `lockstep run --until-done` does at the end."""
        head = self.store.head()
        observed = self.store.observed(head.epoch) if head else {}
        self.now_us = epoch_time_us
        return self._sealer.seal(epoch_time_us, observed, ending=ending)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to be done after the end of the input."""
        return self._sealer.is_over

    def run(self, epochs: int, seconds: float = 1.0) -> None:
        """Seal so many epochs, each when every replica has committed the one before, and see them committed."""
        for _ in range(epochs):
            self.wait(self.seal(seconds).epoch)

    def wait(self, epoch: int) -> None:
        """Until every replica that was started has committed ``epoch``; raises what ended one before that."""
        for one in self.replicas.values():
            self._until(one, epoch, lambda replica: replica.committed >= epoch)

    def wait_for_crashes(self, epoch: int) -> None:
        """Until every replica has crashed as it was told to, with all its stages."""
        for one in self.replicas.values():
            self._until(one, epoch, lambda replica: replica.crashed)
            one.stop()

    def _until(self, replica: ReplicaHere, epoch: int, holds: Callable[[ReplicaHere], bool]) -> None:
        begun_s = asked_s = time.monotonic()
        while not holds(replica):
            now_s = time.monotonic()
            if now_s - asked_s >= _ALIVE_S:
                asked_s = now_s
                if not replica.is_running and not holds(replica):
                    raise replica.ended_by()
            if replica.has_diverged:
                raise self._disagreement(epoch)
            waited_s = now_s - begun_s
            assert waited_s < self.wait_s, f"{replica.spec.replica} did not finish epoch {epoch}"
            time.sleep(min(_POLL_MAX_S, max(_POLL_S, waited_s * _POLL_SHARE)))

    def _disagreement(self, epoch: int) -> LockstepError:
        time.sleep(_POLL_S)
        found = [one for one in self.store.divergences() if not one.verdict]
        sink, detail = (found[-1].sink, found[-1].detail) if found else ("?", "")
        return disagreement(epoch, sink, detail)

    def run_to_failure(self) -> LockstepError:
        """Seal one epoch and return the error that it ends with."""
        epoch = self.seal().epoch
        try:
            self.wait(epoch)
        except LockstepError as error:
            return error
        raise AssertionError(f"epoch {epoch} did not fail")

    def rows(self, path: str = "out", epoch: int | None = None, table: str | None = None) -> list[dict[str, Any]]:
        """What is published in a sink of this trial, of one epoch or of all."""
        rows: list[dict[str, Any]] = self.table(path, epoch, table).to_pylist()
        return rows

    def table(self, path: str = "out", epoch: int | None = None, table: str | None = None) -> pa.Table:
        """The same as an Arrow table."""
        return read(self.folder / path, None if epoch is None else [epoch], table=table)

    def digests(self, epoch: int) -> dict[tuple[str, str], str]:
        """(replica, sink) -> digest."""
        return {(one.replica, one.sink): one.digest for one in self.store.digests(epoch)}

    def report_states(self) -> None:
        """Have every replica report digests of its state, at the epochs at which replicas compare it.

        They are among :meth:`digests`, by what stands in the place of a sink.
        """
        for one in self.replicas.values():
            while self._reported_state(one):
                pass

    def _reported_state(self, one: ReplicaHere) -> bool:
        """A replica reads its state while another publishes: in a test all of them do, however long ago that was."""
        for other in self.replicas.values():
            other.reporter.report()
        return one.report_state()

    def stop(self) -> None:
        """Stop every replica."""
        for one in self.replicas.values():
            one.stop()

    def close(self) -> None:
        """Stop every replica and close the store."""
        self.stop()
        self.store.close()


def disagreement(epoch: int, sink: str, why: str) -> RunError:
    """The error for replicas that computed different things."""
    return RunError(
        "LS0641",
        f'replicas disagree about epoch {epoch} of sink "{sink}"',
        why=why,
        hint="`lockstep explain LS0641`.",
    )
