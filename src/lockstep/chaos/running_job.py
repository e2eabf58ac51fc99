"""The running job as chaos sees it: `lockstep run` started, watched and started again as an operator would."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.chaos.feeding import Feeder
from lockstep.chaos.operations import Shape, shape_of
from lockstep.chaos.vocabulary import Member, Need
from lockstep.clock import US_PER_S, wall_us
from lockstep.config import PARTITIONS, STORE_FOLDER, RunSettings
from lockstep.control.children import Child
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.runtime.desired_run import last_run
from lockstep.runtime.spec import replica_folder
from lockstep.store.home import job_folder
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Progress, Store

SILENCE_MAX_S = 5.0
"""A replica reports once a second even when idle; one that was silent for this long is not well."""
CHAOS_SETTINGS = {
    # Everything is kept: the checkers at the end look at all epochs.
    "retention_epochs_min": "1000000",
    # More faults come in a minute than an honest month has.
    "restarts_max": "100000",
    "restart_backoff_max_s": "2",
    # Long enough that a pause of seconds is survived, short enough that a longer one is not.
    "hang_timeout_s": "20",
    "heartbeat_interval_s": "0.5",
    # It is over when chaos says so.
    "until_done": "false",
}


class JobProcess(Child):
    """`lockstep run`."""

    code = "LS0652"
    hint = "`lockstep doctor` looks at the machine; `lockstep chaos run --keep` keeps the folder with all logs."


@dataclass(frozen=True)
class Command:
    """How the job is run."""

    job: str
    """The job's file in the copy, with its variable."""
    name: str
    replicas: int
    master: str = "local[1]"


class StartedJob:
    """Implements :class:`lockstep.chaos.vocabulary.RunningJob`."""

    def __init__(self, project: Path, command: Command, feeder: Feeder, note: Callable[[str], None]) -> None:
        self.project = project
        self.store_folder = project / STORE_FOLDER
        self.job, self.replicas = command.name, command.replicas
        # Beside the project, which may lie on a disk that is filled.
        self.orders = project.parent / "faults"
        self.orders.mkdir(exist_ok=True)
        self.feeding = feeder
        self.log = project.parent / "run.log"
        self._command = command
        self._note = note
        self._store = open_store(address_in(self.store_folder), command.name)
        self._process: JobProcess | None = None
        self._log_begins = 0
        self._lead_epochs_max = RunSettings().lead_epochs_max

    @property
    def store(self) -> Store:
        """The job's store, opened by chaos itself."""
        return self._store

    @property
    def process(self) -> JobProcess:
        """The newest `lockstep run`."""
        assert self._process is not None, "the job was started"
        return self._process

    def members(self) -> list[Member]:
        """All replicas that have ever said a word, by name."""
        head = self._store.head()
        head_epoch = head.epoch if head is not None else -1
        shape = self.shape()
        return [self._member(said, head_epoch, shape) for said in self._store.progress()]

    def shape(self) -> Shape:
        """Which replicas there should be now."""
        return shape_of(self._store, self._command.replicas)

    def healthy(self) -> list[Member]:
        """Those that compute and are within the lead."""
        return [one for one in self.members() if one.healthy]

    def spare_replicas(self) -> list[Member]:
        """Healthy replicas, or none if there are fewer than two."""
        healthy = self.healthy()
        return healthy if len(healthy) > 1 else []

    def all_healthy(self) -> bool:
        """Whether every replica is well that no operation is just replacing."""
        well = {one.name for one in self.healthy()}
        return bool(well) and self.shape().settled <= well

    def supervisor_pid(self) -> int | None:
        """The process of `lockstep run`, None while it is not running."""
        return None if self._process is None or self._process.ended else self._process.pid

    def has(self, need: Need) -> bool:
        """Whether a need is met now."""
        met: dict[Need, Callable[[], bool]] = {
            Need.OTHER_REPLICA: lambda: len(self.healthy()) > 1,
            Need.ALL_REPLICAS: self.all_healthy,
            Need.FED: lambda: self.feeding.feeds,
            Need.EVENT_TIME: lambda: self.feeding.has_event_time,
            Need.CHECKPOINT: self._has_checkpoint,
            Need.FAULTS: lambda: True,
            Need.NAMESPACE: self._has_namespace,
            Need.ONE_STAGE: lambda: True,
        }
        return met[need]()

    def start_job(self) -> None:
        """Start `lockstep run` when the one before has ended."""
        if self._process is not None:
            self._process.wait_gone()
        self._log_begins = self.log.stat().st_size if self.log.exists() else 0
        arguments = ["-m", "lockstep.chaos.ends_with_parent", str(os.getpid())]
        arguments += ["-m", "lockstep", "--project", str(self.project), "run", *self._as_it_was_last()]
        arguments += ["--master", self._command.master]
        for key, value in CHAOS_SETTINGS.items():
            arguments += ["--set", f"{key}={value}"]
        self._process = JobProcess("`lockstep run`", arguments, self.log, self.project, self.environment())

    def _as_it_was_last(self) -> list[str]:
        """What operations have made of the job holds: a start with other words would be a change of its own."""
        last = last_run(self._store)
        if last is None:
            return [self._command.job, "--replicas", str(self._command.replicas)]
        partitions = last.settings["spark"]["conf"].get(PARTITIONS)
        shaped = ["--spark-conf", f"{PARTITIONS}={partitions}"] if partitions is not None else []
        job = job_folder(self.store_folder, self.job) / last.job_file
        return [str(job), "--replicas", str(last.settings["run"]["replicas"]), *shaped]

    def said(self) -> str:
        """What the newest `lockstep run` has said."""
        return self.log.read_bytes()[self._log_begins :].decode(errors="replace")

    def stop_job(self) -> None:
        """SIGTERM, without waiting."""
        if (pid := self.supervisor_pid()) is not None:
            os.kill(pid, signal.SIGTERM)

    def note(self, text: str) -> None:
        """One more line in the timeline."""
        self._note(text)

    def environment(self) -> dict[str, str]:
        """The environment of the job's processes; it also marks them as ours."""
        return {**os.environ, FOLDER_VARIABLE: str(self.orders)}

    def leftovers(self) -> list[psutil.Process]:
        """Every process of the job that lives, wherever it hangs in the tree of processes."""
        found = []
        for one in psutil.process_iter():
            try:
                if one.environ().get(FOLDER_VARIABLE) == str(self.orders) and one.status() != psutil.STATUS_ZOMBIE:
                    found.append(one)
            except (psutil.Error, OSError):
                continue
        return found

    def end(self) -> None:
        """End whatever is left of the job at once, and give the store back."""
        end_processes(self.leftovers)
        if self._process is not None:
            self._process.kill()
        self._store.close()

    def _member(self, said: Progress, head_epoch: int, shape: Shape) -> Member:
        silent = wall_us() - said.updated_us > SILENCE_MAX_S * US_PER_S
        computes = said.state == "running" and said.epoch >= 0 and said.epoch_s > 0
        within = head_epoch - said.epoch <= self._lead_epochs_max
        return Member(
            name=said.replica,
            incarnation=said.incarnation,
            pid=said.pid,
            state=said.state,
            epoch=said.epoch,
            folder=replica_folder(self.store_folder, self.job, said.replica),
            healthy=computes
            and within
            and not silent
            and said.replica in shape.names
            and self.supervisor_pid() is not None
            and runs(said.pid),
        )

    def _has_checkpoint(self) -> bool:
        return any(any((one.folder / "checkpoint" / "commits").glob("[0-9]*")) for one in self.healthy())

    def _has_namespace(self) -> bool:
        own = _namespace(os.getpid())
        return any(_namespace(one.pid) not in (own, None) for one in self.healthy())


def runs(pid: int) -> bool:
    """Whether a process is there and goes on: neither dead nor stopped.

    >>> runs(os.getpid())
    True
    """
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


def end_processes(find: Callable[[], Sequence[psutil.Process]], attempts: int = 5) -> None:
    """Kill what is found until nothing is: a dying parent may still start a child."""
    for _ in range(attempts):
        found = find()
        for one in found:
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        if not found:
            return
        psutil.wait_procs(found, timeout=5)
        time.sleep(0.1)
    print(f"processes that could not be ended: {[one.pid for one in find()]}", file=sys.stderr)


def _namespace(pid: int) -> int | None:
    try:
        return (Path("/proc") / str(pid) / "ns" / "net").stat().st_ino
    except OSError:
        return None
