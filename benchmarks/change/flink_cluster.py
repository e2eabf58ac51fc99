"""The cluster of PyFlink's side: ``python -m benchmarks.change.flink_cluster FOLDER FLINK_HOME PYTHON PROGRAM``.

The cluster of the other comparisons with the adaptive scheduler and one task manager of four slots. When the file
``new-code`` appears, the job is stopped with a savepoint and started with its new code from there; then ``replaced``
does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.engines.adapters import flink_cluster
from benchmarks.engines.adapters.flink_cluster import WORK, Cluster, settings
from lockstep.bench.stopping import Stop

_POLL_S = 0.05
CHANGED: dict[str, Any] = {
    "jobmanager.scheduler": "adaptive",
    "taskmanager.numberOfTaskSlots": 4,
    # By default it waits for half a minute after each change before the next, and for better resources.
    "jobmanager.adaptive-scheduler.executing.cooldown-after-rescaling": "1 s",
    "jobmanager.adaptive-scheduler.executing.resource-stabilization-timeout": "0 s",
    "jobmanager.adaptive-scheduler.submission.resource-stabilization-timeout": "0 s",
    "pipeline.max-parallelism": 128,
}


class AdaptiveCluster(Cluster):
    """With the settings above, and new code on demand."""

    def settings(self, rpc_port: int, rest_port: int, python: str) -> dict[str, Any]:
        """Those of the other comparisons, and ours."""
        return {**settings(rpc_port, rest_port, python), **CHANGED}

    def replace(self, job: str, program: str) -> str:
        """Stop with a savepoint, start the new code from it; the new job's id."""
        savepoints = (WORK / "savepoints").absolute()
        self.command("stop", "--savepointPath", savepoints.as_uri(), job)
        newest = max(savepoints.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        self._environment["BENCH_CODE"] = "new"
        self.command("run", "-d", "-s", newest.as_uri(), "-py", program)
        return str(next(one["id"] for one in self.get("/jobs")["jobs"] if one["status"] in ("RUNNING", "CREATED")))

    def command(self, *words: str) -> None:
        """`flink WORDS`."""
        subprocess.run(
            ["/bin/bash", str(self._home / "bin" / "flink"), *words],
            env=self._environment,
            check=True,
            stdin=subprocess.DEVNULL,
        )


def run(cluster: AdaptiveCluster, program: str, stop: Stop) -> None:
    """Start everything; then wait for new code, or the end."""
    for name in ("jobmanager", flink_cluster.TASK_MANAGERS[0]):
        cluster.start(name)
    cluster.wait("starting", lambda: cluster.get("/overview").get("taskmanagers") == 1)
    job = cluster.submit(program)
    _noted(cluster, job)
    while not stop.wait(_POLL_S):
        if Path("new-code").exists() and not Path("replaced").exists():
            job = cluster.replace(job, program)
            _noted(cluster, job)
            Path("replaced").touch()


def _noted(cluster: AdaptiveCluster, job: str) -> None:
    cluster.wait("starting the job", lambda: flink_cluster.all_run(cluster.get(f"/jobs/{job}")))
    cluster.note(job)


def main() -> None:
    """The process."""
    os.chdir(sys.argv[1])
    home, python, program = Path(sys.argv[2]), sys.argv[3], sys.argv[4]
    os.environ.setdefault("BENCH_WORKLOAD", "totals")
    stop = Stop().on_signals()
    cluster = AdaptiveCluster(home, python, stop)
    try:
        run(cluster, program, stop)
    finally:
        cluster.end()


if __name__ == "__main__":
    main()
