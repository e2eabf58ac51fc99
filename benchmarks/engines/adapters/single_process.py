"""Engines whose program is one process that a loop keeps running: Spark by hand, Bytewax, Pathway."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from benchmarks.engines.adapters.programs import environment, program, unsupported
from benchmarks.engines.contract import Launch, Options, Reader, Row, Workload
from benchmarks.engines.environments import PROGRAMS, missing_environment, python_of, version_of
from benchmarks.engines.input import OUTPUT, WORK
from benchmarks.engines.readers import GrowingFiles, WholeFiles

PID_FILE = f"{WORK}/engine.pid"
READY_FILE = f"{WORK}/ready"


@dataclass(frozen=True)
class KeptEngine:
    """A program that is started again at once when it dies, and recovers by the engine's own means."""

    name: str
    title: str
    guarantee: str
    open_reader: Callable[[Path], Reader]
    queries: tuple[str, ...]
    """The queries of Nexmark that there is a program for."""
    no_query: str
    """Why not the others."""
    own_environment: bool = True

    def missing(self) -> str | None:
        """Its environment, or the programs."""
        if self.own_environment:
            return missing_environment(self.name)
        return None if PROGRAMS.is_dir() else f"its programs are in the source tree ({PROGRAMS} is not there)"

    def version(self) -> str:
        """Of the engine's package."""
        return version_of(self.name) if self.own_environment else version("pyspark")

    def supports(self, workload: Workload) -> str | None:
        """All that have a program."""
        return unsupported(self.name, workload, self.queries, self.no_query)

    def launch(self, workload: Workload, folder: Path, options: Options) -> Launch:
        """A loop around the program."""
        (folder / READY_FILE).unlink(missing_ok=True)
        python = str(python_of(self.name)) if self.own_environment else sys.executable
        keeping = (sys.executable, "-m", "benchmarks.engines.keep_running", str(folder / PID_FILE))
        return Launch((*keeping, python, str(program(self.name, workload))), environment(workload, options))

    def ready(self, folder: Path) -> bool:
        """The program says so in a file."""
        return (folder / READY_FILE).exists()

    def settled(self, folder: Path) -> bool:
        """It does nothing more of itself."""
        return self.ready(folder)

    def victim(self, folder: Path) -> int | None:
        """The program's process."""
        path = folder / PID_FILE
        return int(path.read_text(encoding="utf-8")) if path.exists() else None

    def reader(self, workload: Workload, folder: Path) -> Reader:
        """Follows the output's files."""
        del workload
        return self.open_reader(folder / OUTPUT)

    def rows(self, workload: Workload, folder: Path) -> list[Row]:
        """All files."""
        return self.reader(workload, folder).poll()


SPARK = KeptEngine(
    name="spark",
    title="PySpark by hand",
    guarantee="exactly-once: checkpoints, and a file per batch that replaces itself",
    open_reader=WholeFiles,
    queries=("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8"),
    no_query="not written by hand here",
    own_environment=False,
)
BYTEWAX = KeptEngine(
    name="bytewax",
    title="Bytewax",
    guarantee="at-least-once here: state is exactly-once by snapshots, a reader of the file sees what came after again",
    open_reader=GrowingFiles,
    queries=("q0", "q1", "q2", "q3"),
    no_query="not written by hand here",
)


def _change(line: bytes) -> Row | None:
    """A line of Pathway's output: a row that came, or one that went, which is no result.

    >>> _change(b'{"word": "a", "diff": 1, "time": 2}'), _change(b'{"word": "a", "diff": -1, "time": 4}')
    ({'word': 'a', 'diff': 1, 'time': 2}, None)
    """
    row: Row = json.loads(line)
    return row if row["diff"] > 0 else None


PATHWAY = KeptEngine(
    name="pathway",
    title="Pathway",
    guarantee="at-least-once: persistence in its free licence",
    open_reader=lambda folder: GrowingFiles(folder, _change),
    queries=("q0", "q2"),
    no_query="not written by hand here",
)
