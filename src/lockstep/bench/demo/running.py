"""The job of the demo as a user would run it, `lockstep run` in a folder of its own; and the kills."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.agent.shares import demand
from lockstep.bench.demo.feeding import JOURNAL
from lockstep.clock import wall_us
from lockstep.config import STORE_FOLDER
from lockstep.errors import RunError
from lockstep.runtime.spec import replica_names
from lockstep.store.journal import open_journal
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import COMPUTING, Holder, Progress, Store

JOB = "saas-monitor"
JOB_FILE = Path(__file__).with_name("saas_monitor.py")
SINK = "out/alerts"
STOP_TIMEOUT_S = 300.0
"""`lockstep run` ends its replicas the hard way after 30 s; on a busy machine that takes its time too."""
LOG_LINES_SHOWN = 10
# Everything is kept, so that the check at the end sees the digests of all epochs.
_SETTINGS = ("--set", "retention_epochs_min=1000000")


@dataclass(frozen=True)
class Kill:
    """One kill -9 of a replica's driver, JVM and workers."""

    replica: str
    at_us: int
    had_sealed_newest: bool
    """Whether it was the replica that had sealed the newest epoch."""


class JobRun:
    """`lockstep run` as a process, and the job's store to look into."""

    def __init__(self, folder: Path, replicas: int) -> None:
        self.folder = folder
        self.replicas = replicas
        self.sink = folder / SINK
        self.log = folder / "run.log"
        self.store: Store = open_store(address_in(self.store_folder), JOB)
        command = [sys.executable, "-m", "lockstep", "--project", str(folder), "run", str(JOB_FILE)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*command, "--replicas", str(replicas), *_SETTINGS],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # Ctrl-C is the demo's to handle: it stops the job itself, and waits for it.
                start_new_session=True,
            )

    @property
    def store_folder(self) -> Path:
        """Where ledger and journals are."""
        return self.folder / STORE_FOLDER

    def check(self) -> None:
        """Fail at once if the job has ended by itself, with what it said last."""
        if self._process.poll() is None:
            return
        raise RunError(
            "LS0620",
            f"the demo's job ended by itself with exit code {self._process.returncode}",
            why=self.last_words(),
            hint="`lockstep doctor` looks at the machine; `lockstep demo --keep` keeps the logs.",
        )

    def last_words(self) -> str:
        """What the job said last, for whoever has to find out what is wrong."""
        said = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(said[-LOG_LINES_SHOWN:]) or "it said nothing."

    @property
    def names(self) -> list[str]:
        """The replicas."""
        return replica_names(self.replicas)

    def progress(self) -> dict[str, Progress]:
        """The newest word of each replica."""
        return {one.replica: one for one in self.store.progress()}

    def processor_s(self, replicas: Sequence[str]) -> float:
        """What these replicas' processes have used of the processor; what all have, if none of these is there yet."""
        said = self.progress()
        pids = [said[name].pid for name in replicas if name in said and psutil.pid_exists(said[name].pid)]
        return sum(demand(pid).used_s for pid in pids or [self._process.pid])

    def computing(self) -> dict[str, Progress]:
        """The replicas that compute epochs now, by name: past the first one of their JVM, which is slow by far."""
        return {
            one.replica: one
            for one in self.progress().values()
            if one.state in COMPUTING and one.epoch_s > 0 and psutil.pid_exists(one.pid)
        }

    def ready(self) -> bool:
        """Whether all replicas compute, and none of them is behind."""
        ready = [one for one in self.computing().values() if one.state == "running"]
        return len(ready) == self.replicas

    def newest_sealer(self) -> str:
        """The replica whose loss should hurt most: it sealed the newest epoch."""
        head = self.store.head()
        return Holder.replica_of(head.sealed_by) if head is not None else "r0"

    def kill(self, replica: str) -> Kill:
        """Kill -9 a replica's driver and everything below it."""
        pid = self.progress()[replica].pid
        kill = Kill(replica, wall_us(), had_sealed_newest=self.newest_sealer() == replica)
        kill_tree(pid)
        return kill

    def records(self) -> int:
        """How many records the journal holds: what the feeder says it sent has to be there."""
        journal = open_journal(self.store_folder, JOURNAL)
        try:
            return sum(journal.ends().values())
        finally:
            journal.close()

    def stop(self) -> None:
        """Stop the job as Ctrl-C would, and wait for it."""
        self.check()
        self._process.send_signal(signal.SIGINT)
        self._process.wait(timeout=STOP_TIMEOUT_S)

    def close(self) -> None:
        """Leave no process behind, however the run went."""
        if self._process.poll() is None:
            family = psutil.Process(self._process.pid).children(recursive=True)
            self._process.kill()
            self._process.wait()
            for one in family:
                if one.is_running():
                    kill_tree(one.pid)
            psutil.wait_procs(family, timeout=5)
        self.store.close()
