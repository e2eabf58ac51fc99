"""PyFlink on a small cluster of its own."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters.flink_cluster import READY_FILE, STATE_FILE, rest
from benchmarks.engines.adapters.programs import environment, program, unsupported
from benchmarks.engines.contract import Launch, Options, Reader, Row, Workload
from benchmarks.engines.environments import missing_environment, python_of, version_of
from benchmarks.engines.input import OUTPUT
from benchmarks.engines.readers import WholeFiles

QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q7", "q8")


@dataclass(frozen=True)
class FlinkEngine:
    """A job manager and two task managers, either of which can run the whole job."""

    name: str = "flink"
    title: str = "PyFlink"
    guarantee: str = "exactly-once: files become visible with the checkpoint that they belong to"

    def missing(self) -> str | None:
        """Its environment, or Java."""
        if shutil.which("java") is None:
            return "it needs Java, and there is none on the path"
        return missing_environment(self.name)

    def version(self) -> str:
        """Of apache-flink."""
        return version_of(self.name)

    def supports(self, workload: Workload) -> str | None:
        """All that have a program."""
        return unsupported(self.name, workload, QUERIES, "not written by hand here")

    def launch(self, workload: Workload, folder: Path, options: Options) -> Launch:
        """The cluster and the job."""
        (folder / READY_FILE).unlink(missing_ok=True)
        python = python_of(self.name)
        home = next((python.parent.parent / "lib").glob("python*/site-packages/pyflink"))
        module = "benchmarks.engines.adapters.flink_cluster"
        arguments = (sys.executable, "-m", module, str(home), str(python), str(program(self.name, workload)))
        return Launch(arguments, environment(workload, options))

    def ready(self, folder: Path) -> bool:
        """Whether all tasks run."""
        return (folder / READY_FILE).exists()

    def settled(self, folder: Path) -> bool:
        """It does nothing more of itself."""
        return self.ready(folder)

    def victim(self, folder: Path) -> int | None:
        """The task manager that runs the most tasks."""
        path = folder / STATE_FILE
        if not path.exists():
            return None
        cluster = json.loads(path.read_text(encoding="utf-8"))
        return _busiest(cluster)

    def reader(self, workload: Workload, folder: Path) -> Reader:
        """Follows the files that checkpoints make visible."""
        del workload
        return WholeFiles(folder / OUTPUT, _row)

    def rows(self, workload: Workload, folder: Path) -> list[Row]:
        """All visible files."""
        return self.reader(workload, folder).poll()


def _row(line: bytes) -> Row | None:
    """A row of a change log: ``+I[{...}]`` adds, ``-U[{...}]`` takes an earlier one back; a plain row adds.

    >>> _row(b'+U[{"word": "a", "count": 2}]'), _row(b'-U[{"word": "a", "count": 1}]'), _row(b'{"seq": 1}')
    ({'word': 'a', 'count': 2}, None, {'seq': 1})
    """
    if line.startswith((b"-U", b"-D")):
        return None
    found: Row = json.loads(line if line.startswith(b"{") else line[3:-1])
    return found


def _busiest(cluster: dict[str, Any]) -> int | None:
    port, job = cluster["rest_port"], cluster["job"]
    tasks: Counter[str] = Counter()
    for vertex in rest(port, f"/jobs/{job}").get("vertices", []):
        for task in rest(port, f"/jobs/{job}/vertices/{vertex['id']}").get("subtasks", []):
            tasks[task.get("taskmanager-id", "")] += 1
    found = [name for name, _ in tasks.most_common() if name in cluster["pids"]]
    return int(cluster["pids"][found[0]]) if found else None


FLINK = FlinkEngine()
