"""What `test_spark_masters.py` does with a Spark master and workers on two hosts; answers with one JSON object."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import psutil

from lockstep import services
from lockstep.bench.running import JobRun, Run
from lockstep.clock import wall_us
from lockstep.connect.reading import read
from lockstep.control.status.health import Health
from lockstep.control.status.overview import Watcher
from lockstep.services.hosts import hosts
from lockstep.store.dead_letters import DeadLetters
from tests.cluster.spark_job import JOB, LIMIT, text

SETTINGS = {"spares": "0", "until_done": "true", "heartbeat_interval_s": "1"}
ARGUMENTS = ("--spark-conf", "spark.cores.max=2", "--spark-conf", "spark.executor.memory=600m")
TIMEOUT_S = 240.0


def started(folder: Path, master: str) -> JobRun:
    folder.mkdir(exist_ok=True)
    return JobRun(Run(JOB, text(LIMIT), master=master, settings=SETTINGS, arguments=ARGUMENTS), folder)


def health(run: JobRun) -> Health:
    letters = DeadLetters(run.store_folder, JOB, run.store)
    return Watcher(run.store, letters).look(wall_us()).health


def executors_of(node: services.Node) -> list[psutil.Process]:
    def runs(one: psutil.Process) -> bool:
        return one.status() != psutil.STATUS_ZOMBIE and "CoarseGrainedExecutorBackend" in " ".join(one.cmdline())

    return [one for one in psutil.Process(node.pid).children(recursive=True) if runs(one)]


def unshared(folder: Path, master: str) -> str:
    """What a job says whose folder is on the disk of one of the hosts."""
    run = started(folder, master)
    try:
        run.wait_gone()
        return run.log.read_text(encoding="utf-8")
    finally:
        run.kill()


def through_losses(folder: Path, master: str, nodes: list[services.Node]) -> dict[str, object]:
    """A job whose executor is killed, and later a whole worker."""
    run = started(folder, master)

    def published() -> int:
        return sum(one.records for one in run.store.published(0, LIMIT))

    def lost() -> int:
        return health(run).replicas[0].executors_lost

    try:
        run.wait_until(lambda: published() > 0, TIMEOUT_S, "the first rows")
        run.wait_until(lambda: health(run).replicas[0].executors == 2, TIMEOUT_S, "two executors")
        executors_of(nodes[1])[0].kill()
        told_s = run.wait_until(lambda: lost() == 1, 30, "the loss to be told")
        before = published()
        run.wait_until(lambda: published() > before, TIMEOUT_S, "rows after the executor's end")
        nodes[2].kill()
        run.wait_until(lambda: lost() >= 2, 30, "the second loss to be told")
        run.wait_end(TIMEOUT_S)
        said = json.loads((folder / ".lockstep/jobs/numbers/replicas/r0/spec.json").read_text(encoding="utf-8"))
        return {
            "told within 5 s": told_s < 5,
            "rows": [[row["k"], row["n"], row["total"]] for row in read(folder / "out").to_pylist()],
            "lost": [event[4].split(",")[0] for event in run.store.events() if event[2] == "executor-lost"],
            "master": said["settings"]["spark"]["master"],
        }
    finally:
        run.kill()


def main(folder: Path) -> dict[str, object]:
    with hosts(2, folder) as made, services.running("spark=2", folder=folder / "services", on=made) as there:
        spark = there["spark"]
        return {
            "refused": unshared(made[0].folder / "project", spark.address),
            **through_losses(folder / "project", spark.address, spark.nodes),
        }


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
