"""The life that every job of the matrix goes through: everything that can happen to one, in one run.

The job has one history. Its first replica, ``r0``, is stopped, started again and killed in every crash window. Then two
replicas of other shapes compute the whole history from its beginning, without any crash, and have to agree with all
that was published. History is trimmed, a fourth replica is seeded, the code changes, the input ends. At the end the
sinks hold what an independent reference says: nothing is missing, nothing is there twice.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

import lockstep as ls
from lockstep.clock import US_PER_S
from lockstep.faults.windows import Window
from lockstep.runtime.reporting import INTERVAL_S
from lockstep.runtime.state.checkpoint import standing
from lockstep.runtime.state.digests import state_digest
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.testing import Trial
from lockstep.testing.crashes import CrashedError, crash_at
from lockstep.testing.replica import ReplicaHere
from lockstep.testing.substitute import in_memory_sinks
from tests.matrix.case import Case, Given
from tests.matrix.clock import LIFE_START_US
from tests.matrix.sinks import ADDED, fault_of, first_appending, published

MAIN, SEEDED = "r0", "seeded"
BEFORE_RUNNING = (Window.INSIDE_TRANSACTION, Window.SEALED_NOT_RUN)
WHILE_RUNNING = (
    Window.RUN_NO_DIGEST,
    Window.DIGEST_NOT_PUBLISHED,
    Window.BETWEEN_TWO_SINKS,
    Window.PUBLISHED_NOT_NOTED,
    Window.PUBLISHED_NOT_COMMITTED,
)
EPOCHS = 6 + len(BEFORE_RUNNING) + len(WHILE_RUNNING) + 1
"""Epochs with input in a life: two to run, then one after each event."""
MAIN_EVENTS = (
    "run",
    "stop and start",
    f"kill: {Window.DIGEST_NOT_PUBLISHED}",
    f"kill: {Window.PUBLISHED_NOT_COMMITTED}",
    "history trimmed",
    "seeded",
    "output",
)
"""A short life, for a third of the time."""
ENDING_EPOCHS_MAX = 100
WAIT_S = 900.0
"""For one epoch: being slow is no fault, and a machine with other work on it may be very slow."""
_TROUBLE = ("checkpoint-damaged", "checkpoint-foreign", "checkpoint-of-older-code", "checkpoint-contradicts-ledger")
_POLL_S = 0.01


class NotApplicableError(Exception):
    """This cannot happen to this job."""


@dataclass(frozen=True)
class Cell:
    """What became of one job in one event."""

    event: str
    outcome: str
    """ "ok", "failed", "not applicable", or "not reached"."""
    why: str = ""
    took_s: float = 0.0


@dataclass
class History:
    """What a life has come to: the same for every life over the same records, whatever happened in it."""

    digests: dict[int, dict[str, str]] = field(default_factory=dict)
    """By epoch and sink."""
    state: list[dict[str, str]] = field(default_factory=list)
    """Before the code changed, by stage and operator; empty if it did not come so far."""


Event = tuple[str, Callable[[], None]]
"""Something that happens, and what the report calls it."""
Told = Callable[[Cell], None]


class Life:
    """One job, with its main replica in one shape, through all events."""

    def __init__(
        self,
        case: Case,
        session: SparkSession,
        folder: Path,
        partitions: int,
        seed: int,
        like: History | None = None,
    ) -> None:
        """``like``: what a life of the same job over the same records has come to, with a replica of each shape."""
        self.case = case
        self.history = History()
        self._like = like
        self.partitions = partitions
        self._session = session
        self._folder = folder
        folder.mkdir(exist_ok=True)
        self.given = Given(case.inputs(Random(f"{case.name} {seed}"), EPOCHS), folder)
        self._epoch = 0
        self._changed_at = 0
        self._printed = io.StringIO()
        self._trial = self._new_trial(case.job(self.given), LIFE_START_US)

    def events(self) -> list[Event]:
        """What happens, in order, by the name that the report has."""
        return [
            ("run", self._run),
            ("stop and start", self._stop_and_start),
            *((f"kill: {one}", lambda one=one: self._kill_before_running(one)) for one in BEFORE_RUNNING),
            *((f"kill: {one}", lambda one=one: self._kill_while_running(one)) for one in WHILE_RUNNING),
            ("1, 2 and 3 partitions", self._other_shapes),
            ("history trimmed", self._trim),
            (f"kill: {Window.SEEDING_HALF_DONE}", self._kill_while_seeding),
            ("seeded", self._seed),
            ("equal state", self._equal_state),
            ("code changed", self._change_code),
            ("output", self._check_output),
        ]

    def live(self, told: Told = lambda cell: None, only: Sequence[str] = ()) -> list[Cell]:
        """Go through all events, or ``only`` these; after one that failed there is nothing left to go on with."""
        cells: list[Cell] = []
        whole = not only or self.case.by_itself
        with redirect_stdout(self._printed):
            try:
                for name, happen in [one for one in self.events() if whole or one[0] in only]:
                    failed = any(one.outcome == "failed" for one in cells)
                    cells.append(Cell(name, "not reached") if failed else _cell(name, happen))
                    told(cells[-1])
            finally:
                self._trial.close()
        return cells

    def _run(self) -> None:
        self._start(MAIN, self.partitions)
        self._next_epoch()
        self._next_epoch()

    def _stop_and_start(self) -> None:
        self._main.drain_and_stop()
        self._restart(MAIN, self.partitions)
        self._next_epoch()

    def _kill_before_running(self, window: Window) -> None:
        """The one that seals is killed: what it wrote is there or not, nobody has computed it."""
        self._main.stop()
        self._feed()
        before, now_us = self._head(), self._trial.now_us
        with crash_at(window, "test") as crash, suppress(CrashedError):
            self._trial.seal()
        assert crash.epoch == before + 1, f"nobody came by {window}"
        sealed = window is Window.SEALED_NOT_RUN
        assert self._head() == before + sealed, "a seal is whole or not there"
        self._restart(MAIN, self.partitions)
        if not sealed:
            self._trial.seal_at(now_us + US_PER_S)
        self._done(before + 1)

    def _kill_while_running(self, window: Window) -> None:
        if window is Window.BETWEEN_TWO_SINKS and not any(len(stage.sinks) > 1 for stage in self._trial.graph.stages):
            self._next_epoch()
            raise NotApplicableError("no stage of it has two sinks")
        self._feed()
        with crash_at(window, MAIN) as crash:
            epoch = self._trial.seal().epoch
            self._until(lambda: crash.epoch is not None, f"nobody came by {window}")
            self._main.stop()
        self._restart(MAIN, self.partitions)
        self._done(epoch)

    def _other_shapes(self) -> None:
        """Replicas with other numbers of partitions compute the whole history, and agree about every epoch.

        Where a life before this one had them, what it came to is enough.
        """
        if self._like is not None:
            self._next_epoch()
            return
        for partitions in {1, 2, 3} - {self.partitions}:
            self._start(f"r{partitions}-partitions", partitions)
        last = self._head()
        self._trial.wait(last)
        for epoch in range(last + 1):
            self._agree(epoch)
        self._next_epoch()

    def _trim(self) -> None:
        """Everything is forgotten but what the newest snapshot needs."""
        self._main.drain_and_stop()
        self._trial.forget(self._head())
        assert self._trial.store.floor() == self._head()
        self._restart(MAIN, self.partitions)
        self._next_epoch()

    def _kill_while_seeding(self) -> None:
        with self._peers_report(), crash_at(Window.SEEDING_HALF_DONE, SEEDED) as crash:
            try:
                self._start(SEEDED, self.partitions)
            except CrashedError:
                del self._trial.replicas[SEEDED]
        assert crash.epoch == self._head(), f"nobody came by {crash.window}"

    def _seed(self) -> None:
        with self._peers_report():
            self._start(SEEDED, self.partitions)
        seeded = [text for _, _, kind, who, text in self._trial.store.events() if (kind, who) == ("seeded", SEEDED)]
        assert [text.partition(" at ")[2] for text in seeded] == [f"epoch {self._head()}"], seeded
        self._next_epoch()

    def _equal_state(self) -> None:
        """All replicas have the same state and the same watermark, whatever happened to each of them."""
        states = {name: self._state(replica) for name, replica in self._trial.replicas.items()}
        if self._like is not None:
            states["the life before"] = self._like.state
        _assert_equal("state", states)
        self.history.state = states[MAIN]
        self._equal_watermarks()

    def _equal_watermarks(self) -> None:
        replicas = self._trial.replicas
        watermarks = {name: [_watermark_ms(folder) for folder in _folders(one)] for name, one in replicas.items()}
        _assert_equal("watermarks", watermarks)

    def _change_code(self) -> None:
        """One more sink of the rows that the first sink has: state stays, and what it held goes on."""
        changed = self.case.job(self.given)
        first = next(sink for sink in changed.graph().sinks if sink.id == first_appending(self._trial).id)
        ls.Stream(changed._registry, first.input).to(ls.files(ADDED), name=ADDED)
        for replica in self._trial.replicas.values():
            replica.drain_and_stop()
        now_us = self._trial.now_us
        self._trial.close()
        self._changed_at = self._epoch
        self._trial = self._new_trial(changed, now_us)
        for name in (MAIN, SEEDED):
            self._restart(name, self.partitions)
        self._next_epoch()

    def _check_output(self) -> None:
        """The input ends; then every sink holds what the reference says."""
        for _ in range(ENDING_EPOCHS_MAX):
            self._done(self._trial.seal_at(self._trial.now_us + US_PER_S, ending=True).epoch, counts=False)
            if self._trial.is_over:
                break
        assert self._trial.is_over, "the job never comes to its end"
        self._equal_watermarks()
        given, head = self.given.up_to(self._epoch), self._head()
        expected = dict(self.case.expected(given))
        first = first_appending(self._trial)
        added = [row for row in published(self._trial, first, head) if row[0] >= self._changed_at]
        last = given.end if self.case.by_epoch else 0
        wrong = {}
        for sink in in_memory_sinks(self._trial.graph):
            wanted = added if sink.id == ADDED else expected[sink.id]
            wrong[sink.id] = fault_of(self._trial, sink, wanted, head, last, self._printed.getvalue())
        assert not any(wrong.values()), {sink: text for sink, text in wrong.items() if text}

    def _new_trial(self, job: ls.Job, now_us: int) -> Trial:
        # Nobody is seeded before history is trimmed: a replica of another shape computes it all.
        settings = {
            "heartbeat_interval_s": 86_400.0,
            "until_done": True,
            "seed_beyond_epochs": 1000,
            **self.case.settings,
        }
        made = Trial(self._session, job, self._folder, settings)
        made.now_us = now_us
        made.wait_s = WAIT_S
        return made

    @property
    def _main(self) -> ReplicaHere:
        return self._trial.replicas[MAIN]

    def _head(self) -> int:
        head = self._trial.store.head()
        return head.epoch if head is not None else -1

    def _start(self, name: str, partitions: int) -> ReplicaHere:
        return self._trial.start(name, partitions=partitions, tasks=1 + partitions % 2)

    def _restart(self, name: str, partitions: int) -> None:
        """Start it, and see that it goes on from the checkpoint that it has."""
        folder = self._trial.place.home / "jobs" / self._trial.graph.name / "replicas" / name
        checkpoints = checkpoint_folders(folder, len(self._trial.graph.stages))
        before = [path.stat().st_ino for path in checkpoints]
        self._start(name, partitions)
        trouble = [f"{kind}: {text}" for _, _, kind, _, text in self._trial.store.events() if kind in _TROUBLE]
        assert not trouble, trouble
        assert [path.stat().st_ino for path in checkpoints] == before, f"{name} did not go on from its own checkpoint"

    def _feed(self) -> None:
        self.case.feed(self._trial, self.given, self._epoch)

    def _next_epoch(self) -> None:
        self._feed()
        self._done(self._trial.seal().epoch)

    def _done(self, epoch: int, *, counts: bool = True) -> None:
        self._trial.wait(epoch)
        self._agree(epoch)
        self._epoch += counts

    def _agree(self, epoch: int) -> None:
        found: dict[str, set[str]] = {}
        for (_, sink), digest in self._trial.digests(epoch).items():
            found.setdefault(sink, set()).add(digest)
        differing = [sink for sink, digests in found.items() if len(digests) > 1]
        assert not differing, f"replicas disagree about epoch {epoch} of {differing}"
        agreed = self.history.digests[epoch] = {sink: digest for sink, (digest,) in found.items()}
        if self._like is not None:
            assert agreed == self._like.digests[epoch], f"epoch {epoch} is not that of the life before"

    @contextmanager
    def _peers_report(self) -> Iterator[None]:
        """In a test replicas do not report between epochs, and whoever is silent for some seconds seeds nobody."""
        reporters = [replica.reporter for replica in self._trial.replicas.values()]
        ended = threading.Event()

        def report() -> None:
            while not ended.wait(INTERVAL_S):
                for one in reporters:
                    one.report()

        for one in reporters:
            one.report()
        thread = threading.Thread(target=report, name="peers-report")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _state(self, replica: ReplicaHere) -> list[dict[str, str]]:
        found = []
        for folder in _folders(replica):
            at = standing(folder)
            assert at is not None
            found.append(state_digest(self._session, folder, at.batch))
        return found

    def _until(self, holds: Callable[[], bool], otherwise: str) -> None:
        deadline_s = time.monotonic() + WAIT_S
        while not holds():
            if not self._main.is_running and not holds():
                raise self._main.ended_by()
            assert time.monotonic() < deadline_s, otherwise
            time.sleep(_POLL_S)


def _cell(name: str, happen: Callable[[], None]) -> Cell:
    begun_s = time.monotonic()
    try:
        happen()
    except NotApplicableError as reason:
        return Cell(name, "not applicable", str(reason), time.monotonic() - begun_s)
    except Exception as error:
        return Cell(name, "failed", f"{type(error).__name__}: {error}", time.monotonic() - begun_s)
    return Cell(name, "ok", "", time.monotonic() - begun_s)


def _folders(replica: ReplicaHere) -> Iterator[Path]:
    yield from checkpoint_folders(replica.spec.folder, len(replica.queries))


def _watermark_ms(checkpoint: Path) -> int:
    at = standing(checkpoint)
    assert at is not None
    lines = (checkpoint / "offsets" / str(at.batch)).read_text(encoding="utf-8").splitlines()
    return int(json.loads(lines[1])["batchWatermarkMs"])


def _assert_equal(what: str, of_replicas: Mapping[str, object]) -> None:
    wanted = of_replicas[MAIN]
    other = {name: found for name, found in of_replicas.items() if found != wanted}
    assert not other, f"{what} of {', '.join(other)} is not that of {MAIN}: {other} != {wanted}"
