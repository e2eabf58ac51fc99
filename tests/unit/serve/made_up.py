"""A job's store with a made-up history: what pages and metrics are tested on, without a job that runs."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

from lockstep.api.loading import load_job
from lockstep.clock import US_PER_S
from lockstep.config import RunSettings, Settings
from lockstep.control.start.drawing import note_drawing
from lockstep.control.status.overview import RUN_SETTINGS, SPARES
from lockstep.runtime.desired_run import RUN_BEGAN, DesiredRun, note_desired
from lockstep.serve.service import Service
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Progress, Published, Store

DEMO_JOB = Path(__file__).parents[3] / "src/lockstep/bench/demo/saas_monitor.py"
NOW_US = 1_790_000_000 * US_PER_S


@dataclass
class Clock:
    """A clock that is moved by hand."""

    now_us: int = NOW_US

    def __call__(self) -> int:
        return self.now_us


@dataclass
class MadeUp:
    """A project folder with one job that has lived for some epochs, one every half a second."""

    folder: Path
    job: str = "saas-monitor"
    clock: Clock = field(default_factory=Clock)
    epoch_us: int = US_PER_S // 2

    def __post_init__(self) -> None:
        from lockstep.config import STORE_FOLDER
        from lockstep.store.opening import address_in, open_store

        self.end_us = self.clock.now_us
        self.store: Store = open_store(address_in(self.folder / STORE_FOLDER), self.job, self.clock)
        self.holders: dict[str, Holder] = {}

    def begin(self, replicas: int = 2) -> None:
        """A run that was ordered."""
        settings = Settings(run=RunSettings(replicas=replicas))
        order = DesiredRun(self.job, "code/job.py:job", "hash", "sqlite:", settings.model_dump(mode="json"))
        note_desired(self.store, order)
        self.store.set_fact(RUN_SETTINGS, settings.run.model_dump_json())
        note_drawing(self.store, load_job(str(DEMO_JOB)).job.graph())
        for number in range(replicas):
            self.holders[f"r{number}"] = self.store.begin(f"r{number}", os.getpid())

    def at(self, epoch: int, epochs: int) -> int:
        """When an epoch was sealed, if there are so many."""
        return self.end_us - (epochs - epoch) * self.epoch_us

    def live(self, epochs: int, *, away: range = range(0), late: int = 0) -> None:
        """So many epochs, sealed and published in turn; r1 misses those of ``away`` and has the last ``late`` to do."""
        names = sorted(self.holders)
        began_us = self.at(0, epochs) - 5 * US_PER_S
        self.store.set_fact(RUN_BEGAN, str(began_us))
        for name in names:
            self.event(began_us, "replica-started", f"pid {os.getpid()}, start 1", name)
        for epoch in range(epochs):
            at_us = self.at(epoch, epochs)
            if epoch == away.start and away:
                self.event(at_us, "replica-ended", "exit code -9", "r1")
                self.event(at_us, "replica-started", f"pid {os.getpid()}, start 2", "r1")
            if epoch == away.stop and away:
                self.event(at_us, "seeded", f"from r0 at epoch {epoch - 1}", "r1")
                self.event(at_us, "replica-phases", "a spare: seed 900 ms, epoch 300 ms, total 1200 ms", "r1")
            here = [n for n in names if not (n == "r1" and (epoch in away or epoch >= epochs - late))]
            self.epoch(epoch, at_us, here)
        for name in names:
            behind = late if name == "r1" else 0
            self.report(name, epochs - 1 - behind)

    def epoch(self, epoch: int, at_us: int, computed_by: list[str]) -> None:
        """One epoch that these replicas computed, and the first but one of the turn published."""
        # Made-up, and the same whenever it is made: a wave, and a tenth of a second more now and then.
        wait_us = 180_000 + (epoch * 7919 % 97) * 1_000 + (400_000 if epoch % 61 == 60 else 0)
        publisher = computed_by[epoch % len(computed_by)]
        entry = Entry(
            epoch,
            at_us,
            {"shared": {"0": 500 * (epoch + 1)}},
            marks={"event_time": at_us - 700_000},
            records=500,
            ingested_oldest_us=at_us - 100_000,
            ingested_newest_us=at_us,
            sealed_by=str(self.holders[publisher]),
        )
        self.store.seal(entry, self.holders[publisher])
        digests = [
            Digest(epoch, "files", name, self.holders[name].incarnation, f"{epoch:032x}", 40, "v1")
            for name in computed_by
        ]
        self.store.add_digests(digests)
        self.store.add_published(
            Published(epoch, publisher, at_us + wait_us, 500, at_us - 100_000, at_us, wait_us / US_PER_S)
        )

    def event(self, at_us: int, kind: str, text: str, replica: str = "") -> None:
        """Something that happened then."""
        before, self.clock.now_us = self.clock.now_us, at_us
        self.store.add_event(kind, text, replica)
        self.clock.now_us = before

    def report(self, name: str, epoch: int, **changes: object) -> None:
        """The newest word of a replica: it lives in this process."""
        said = Progress(
            name,
            self.holders[name].incarnation,
            os.getpid(),
            "running",
            epoch=epoch,
            epoch_s=0.21,
            updated_us=self.end_us,
            moved_us=self.end_us,
        )
        self.store.report(replace(said, **changes))  # type: ignore[arg-type]

    def differ(self, epoch: int, detail: str) -> None:
        """r1 disagreed about an epoch."""
        held = Divergence(epoch, "files", "r1", 1, "r0", "d" * 32, f"{epoch:032x}", detail, self.end_us, "reseed")
        self.store.add_divergence(held)

    def spare(self) -> None:
        """One that is ready."""
        self.store.set_fact(SPARES, f'[{{"pid": {os.getpid()}, "ready": true, "host": ""}}]')

    def service(self) -> Service:
        """The service of the project, at the time of the history's end."""
        return Service(self.folder, self.clock)
