"""One run of chaos from beginning to end: start the job, leave it alone for a while, hurt it, let it finish, check."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from lockstep.chaos.actions.files import FillDisk, small_disk
from lockstep.chaos.checking import Evidence, Verdict, check_input, check_operations, check_output, check_promises
from lockstep.chaos.comparing import Comparison
from lockstep.chaos.feeding import Feeder
from lockstep.chaos.figures import Steady, steady
from lockstep.chaos.planner import Planned, plan
from lockstep.chaos.runner import Doing, Runner
from lockstep.chaos.running_job import Command, StartedJob
from lockstep.chaos.subject import Subject, copy_project
from lockstep.chaos.timeline import Line, Timeline
from lockstep.chaos.vocabulary import Action
from lockstep.chaos.watching import Reader, SeenEpoch, Span
from lockstep.clock import US_PER_S, wall_us
from lockstep.config import STORE_FOLDER
from lockstep.control.operations.model import Operation
from lockstep.store.protocols import Entry

START_S_MAX = 180.0
WARM_UP_S = 4.0
"""The first epochs of a JVM are slow; they are not what is compared with."""
STEADY_S = 6.0
DRAIN_S_MAX = 180.0
SETTLE_EPOCHS = 4
"""Epochs per stage, after the last record, until event time has closed what it can close."""
LEFTOVER_S_MAX = 10.0


@dataclass(frozen=True)
class Wish:
    """What to run."""

    subject: Subject
    actions: Sequence[Action]
    seed: int
    duration_s: float
    replicas: int
    rate: float
    project: Path
    """The user's project, which is copied."""
    keep: bool = False
    """Whether the folder is wanted also if all is well."""


@dataclass(frozen=True)
class Outcome:
    """What came of it."""

    wish: Wish
    usual: Steady
    begun_us: int
    """When the chaos began; the timeline counts from here."""
    first_us: int
    """When the job was undisturbed first."""
    end_us: int
    doings: list[Doing]
    lines: list[Line]
    seen_epochs: list[SeenEpoch]
    spans: list[Span]
    verdicts: list[Verdict]
    comparisons: list[Comparison]
    acknowledged: Mapping[str, int]
    took_s: float
    folder: Path
    operations: Sequence[Operation] = ()
    """All that the job was asked for, as they ended."""
    cut_short: bool = False

    @property
    def passed(self) -> bool:
        """Whether no checker complains."""
        return all(verdict.passed for verdict in self.verdicts)


@dataclass
class Play:
    """Everything that is open during a run."""

    wish: Wish
    folder: Path
    timeline: Timeline
    stop_asked: Callable[[], bool]
    script: Callable[[Runner], None] | None = None
    """What is done to the job instead of a random schedule."""
    project: Path = field(init=False)
    _worth_keeping: bool = True

    def __post_init__(self) -> None:
        self.project = self.folder / "project"
        self.project.mkdir()

    def run(self) -> Outcome:
        """All of it."""
        with self._disk():
            outcome = self._run()
            self._worth_keeping = self.wish.keep or not outcome.passed
        return outcome

    def _run(self) -> Outcome:
        started_s = time.monotonic()
        job = copy_project(self.wish.subject, self.wish.project, self.project)
        with self._fed() as feeder, self._started_job(job, feeder) as place, self._read() as reader:
            runner = Runner(place, self.timeline, reader, self.wish.replicas, self.stop_asked)
            try:
                first_us = self._start(runner, feeder)
                self.timeline.begin()
                usual = steady(reader.seen_epochs(), first_us, self.timeline.zero_us)
                self._hurt(runner)
                end_us, settled_epoch = self._finish(runner, feeder)
            except BaseException:
                runner.undo_all()
                raise
            verdicts, comparisons = self._check(runner, feeder, reader, settled_epoch)
            of_operations, operations = check_operations(runner.doings, place.store)
            self._tell(of_operations)
        return Outcome(
            wish=self.wish,
            usual=usual,
            begun_us=self.timeline.zero_us,
            first_us=first_us,
            end_us=end_us,
            doings=runner.doings,
            lines=self.timeline.lines,
            seen_epochs=reader.seen_epochs(),
            spans=runner.attendance.spans,
            verdicts=[*verdicts, *of_operations],
            comparisons=comparisons,
            acknowledged=feeder.acknowledged(),
            took_s=time.monotonic() - started_s,
            folder=self.folder,
            operations=operations,
            cut_short=self.stop_asked(),
        )

    @contextmanager
    def _disk(self) -> Iterator[None]:
        """A small disk for the project if one is to be filled; what is worth keeping is copied off it at the end."""
        if not any(isinstance(action, FillDisk) for action in self.wish.actions):
            yield
            return
        aside = self.folder / "off-the-small-disk"
        with small_disk(self.project):
            try:
                yield
            finally:
                if self._worth_keeping:
                    shutil.copytree(self.project, aside, symlinks=True)
        if aside.exists():
            self.project.rmdir()
            aside.rename(self.project)

    @contextmanager
    def _fed(self) -> Iterator[Feeder]:
        feeder = Feeder(self.project / STORE_FOLDER, self.wish.subject.feds, self.wish.rate, self.wish.seed)
        try:
            yield feeder
        finally:
            feeder.close()

    @contextmanager
    def _started_job(self, job: str, feeder: Feeder) -> Iterator[StartedJob]:
        command = Command(job, self.wish.subject.graph.name, self.wish.replicas)
        place = StartedJob(self.project, command, feeder, lambda text: self.timeline.add("consequence", text))
        try:
            yield place
        finally:
            place.end()

    @contextmanager
    def _read(self) -> Iterator[Reader]:
        reader = Reader(self.wish.subject.sinks[0], self.project, self.wish.subject.graph.name)
        reader.start()
        try:
            yield reader
        finally:
            reader.stop()

    def _start(self, runner: Runner, feeder: Feeder) -> int:
        """Start the job and leave it alone for a while; when that began."""
        wish, place = self.wish, runner.running
        many = "1 replica" if wish.replicas == 1 else f"{wish.replicas} replicas"
        self.timeline.add("phase", f'starting "{place.job}" with {many} in {self.project}')
        feeder.start()
        place.start_job()
        place.process.wait_until(place.all_healthy, START_S_MAX, "starting the replicas")
        self._leave_alone(runner, WARM_UP_S)
        first_us = wall_us()
        self._leave_alone(runner, STEADY_S)
        return first_us

    def _leave_alone(self, runner: Runner, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            runner.tick()
            time.sleep(0.1)

    def _hurt(self, runner: Runner) -> None:
        wish = self.wish
        if self.script is not None:
            self.script(runner)
            return
        schedule = plan(wish.actions, seed=wish.seed, duration_s=wish.duration_s, replicas=wish.replicas)
        self.timeline.add("phase", f"seed {wish.seed}: {len(schedule)} actions in {wish.duration_s / 60:g} minutes")
        runner.run(schedule, {action.name: action for action in wish.actions}, wish.duration_s)
        self._tell_left_out(schedule)

    def _tell_left_out(self, schedule: Sequence[Planned]) -> None:
        names = {planned.action for planned in schedule}
        never = [action.name for action in self.wish.actions if action.name not in names]
        if never:
            self.timeline.add("phase", f"not in this schedule: {', '.join(never)}")

    def _finish(self, runner: Runner, feeder: Feeder) -> tuple[int, int]:
        """Let everything that was fed come out, and stop the job gracefully; (when it was out, in which epoch)."""
        place = runner.running
        feeder.end()
        feeder.close_time()
        fed = sum(feeder.acknowledged().values())
        self.timeline.add("phase", f"feeding has ended after {fed:,} records; waiting until everything is published")
        settled = _Settled(place, feeder, self._settle_epochs())
        deadline_s = time.monotonic() + DRAIN_S_MAX
        while not settled() and time.monotonic() < deadline_s:
            runner.tick()
            time.sleep(0.1)
        if not settled():
            runner.findings.append(f"not everything was published {DRAIN_S_MAX:.0f} s after the last record")
        end_us = wall_us()
        place.stop_job()
        place.process.wait_gone()
        if place.process.exit_code != 0:
            runner.findings.append(f"the graceful stop ended with exit code {place.process.exit_code}")
        self._look_for_leftovers(runner)
        return end_us, settled.epoch

    def _settle_epochs(self) -> int:
        return SETTLE_EPOCHS * len(self.wish.subject.graph.stages)

    def _look_for_leftovers(self, runner: Runner) -> None:
        deadline_s = time.monotonic() + LEFTOVER_S_MAX
        while (left := runner.running.leftovers()) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        if left:
            runner.findings.append(f"processes were left behind: {[one.pid for one in left]}")

    def _check(
        self, runner: Runner, feeder: Feeder, reader: Reader, settled_epoch: int
    ) -> tuple[list[Verdict], list[Comparison]]:
        evidence = Evidence(
            subject=self.wish.subject,
            project=self.project,
            store=runner.running.store,
            runner=runner,
            seen_epochs=reader.seen_epochs(),
            acknowledged=feeder.acknowledged(),
            held=feeder.held(),
            settled_epoch=settled_epoch,
        )

        def note(text: str) -> None:
            self.timeline.add("phase", text)

        output, comparisons = check_output(evidence, feeder.records(), self.folder / "again", note)
        whole = Verdict("the run", "ends, recoveries, the graceful stop, processes left behind", tuple(runner.findings))
        verdicts = [output, check_input(evidence), *check_promises(evidence), whole]
        self._tell(verdicts)
        return verdicts, comparisons

    def _tell(self, verdicts: Sequence[Verdict]) -> None:
        for one in verdicts:
            self.timeline.add("check", f"{'ok    ' if one.passed else 'FAILED'} {one.name}: {one.looked_at}")
            for complaint in one.complaints:
                self.timeline.add("check", f"         {complaint}")


class _Settled:
    """Whether every record is in an epoch, and so many epochs after that are published too."""

    def __init__(self, place: StartedJob, feeder: Feeder, epochs: int) -> None:
        self._place = place
        self._wanted = feeder.acknowledged()
        self._epochs = epochs
        self._target: int | None = None

    def __call__(self) -> bool:
        head = self._place.store.head()
        if head is None:
            return False
        if self._target is None and self._covers(head):
            self._target = head.epoch + self._epochs
        if self._target is None or head.epoch < self._target:
            return False
        newest = self._place.store.published(head.epoch - 10, head.epoch)
        return bool(newest) and newest[-1].epoch >= self._target

    @property
    def epoch(self) -> int:
        """The epoch up to which everything has to be published."""
        return self._target if self._target is not None else -1

    def _covers(self, head: Entry) -> bool:
        return all(sum(head.cut.get(name, {}).values()) >= count for name, count in self._wanted.items())


def workspace() -> Path:
    """A fresh folder; whoever is content with what happened in it removes it."""
    return Path(tempfile.mkdtemp(prefix="lockstep-chaos-"))


def remove(folder: Path) -> None:
    """Remove what is not needed any more."""
    shutil.rmtree(folder, ignore_errors=True)


def seconds_after(outcome: Outcome, at_us: int) -> float:
    """A time as the timeline counts it."""
    return (at_us - outcome.begun_us) / US_PER_S
