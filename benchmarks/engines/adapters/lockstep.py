"""Lockstep itself, with one, two or three replicas."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.engines.adapters.programs import environment, program, unsupported
from benchmarks.engines.contract import Launch, Options, Reader, Row, Workload
from benchmarks.engines.environments import PROGRAMS
from benchmarks.engines.input import OUTPUT
from benchmarks.engines.readers import PublishedEpochs
from lockstep.config import STORE_FOLDER
from lockstep.control.status.overview import run_settings, spares
from lockstep.store.protocols import Progress, Store
from lockstep.store.sqlite_store import list_jobs, open_store

QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8")
_FILLING = "benchmarks.engines.adapters.lockstep_journal"
GUARANTEE = "exactly-once: each epoch is published by one atomic act inside the sink"


@dataclass(frozen=True)
class LockstepEngine:
    """`lockstep run` with so many replicas."""

    replicas: int
    journal: bool = False
    """Whether records come by way of a journal, filled from the input's folder; else from the folder itself."""
    guarantee: str = GUARANTEE

    @property
    def name(self) -> str:
        """lockstep-1, lockstep-2, lockstep-3; lockstep-journal-1 and so on."""
        return f"lockstep-{'journal-' if self.journal else ''}{self.replicas}"

    @property
    def title(self) -> str:
        """For tables and plots."""
        by_journal = " (journal)" if self.journal else ""
        return f"Lockstep, {self.replicas} replica{'s' if self.replicas > 1 else ''}{by_journal}"

    def missing(self) -> str | None:
        """Only the programs can be."""
        return None if PROGRAMS.is_dir() else f"its programs are in the source tree ({PROGRAMS} is not there)"

    def version(self) -> str:
        """Lockstep's, and Spark's below it."""
        return f"{version('lockstep')} on pyspark {version('pyspark')}"

    def supports(self, workload: Workload) -> str | None:
        """All that have a program."""
        return unsupported("lockstep", workload, QUERIES, "not among the queries of this comparison")

    def launch(self, workload: Workload, folder: Path, options: Options) -> Launch:
        """As a user would run it; the same command goes on where it was."""
        path = program("lockstep", workload)
        arguments = [sys.executable, "-m", "lockstep", "--project", str(folder), "run", str(path)]
        arguments += ["--replicas", str(self.replicas), "--master", options.master]
        arguments += ["--spark-conf", f"spark.sql.shuffle.partitions={options.partitions}"]
        for key, value in options.settings.items():
            arguments += ["--set", f"{key}={value}"]
        told = {**environment(workload, options), "BENCH_JOURNAL": "1" if self.journal else "0"}
        if self.journal:
            arguments = [sys.executable, "-m", _FILLING, workload.name, *arguments]
        return Launch(tuple(arguments), told)

    def ready(self, folder: Path) -> bool:
        """Whether all replicas compute."""
        running = [one for one in _progress(folder) if one.state == "running" and one.epoch >= 0]
        return len(running) >= self.replicas

    def settled(self, folder: Path) -> bool:
        """Whether the spare is warm, too: booting it takes a core for some seconds, once."""
        with _store(folder) as store:
            return store is not None and (not run_settings(store).spares or any(one["ready"] for one in spares(store)))

    def victim(self, folder: Path) -> int | None:
        """The driver of the replica that is ahead: the one whose death could hurt."""
        running = [one for one in _progress(folder) if one.state == "running"]
        return max(running, key=lambda one: (one.epoch, one.replica)).pid if running else None

    def reader(self, workload: Workload, folder: Path) -> Reader:
        """Follows the manifests of the sink."""
        del workload
        return PublishedEpochs(folder / OUTPUT)

    def rows(self, workload: Workload, folder: Path) -> list[Row]:
        """All epochs."""
        return self.reader(workload, folder).poll()


def _progress(folder: Path) -> list[Progress]:
    """What the replicas said last; nothing before the job has made its store."""
    with _store(folder) as store:
        return list(store.progress()) if store is not None else []


@contextmanager
def _store(folder: Path) -> Iterator[Store | None]:
    """The job's store, None before it is made."""
    names = list_jobs(folder / STORE_FOLDER)
    if not names:
        yield None
        return
    store = open_store(folder / STORE_FOLDER, names[0])
    try:
        yield store
    finally:
        store.close()
