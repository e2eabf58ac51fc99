"""What `test_checkpoints_job.py` does with executors on two hosts that share no disk with the driver, only HDFS.

Answers with one JSON object.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from lockstep import services
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import read
from lockstep.services.hosts import hosts

JOB = "numbers"
LIMIT = 6_000
KEYS = 7
TEXT = """
import lockstep as ls
from lockstep import F

job = ls.Job("numbers")
numbers = job.source("numbers", ls.rate(400, limit=LIMIT))
keyed = numbers.map(lambda row: {"k": row["seq"] % KEYS, "seq": row["seq"]}, schema="k bigint, seq bigint")
counts = keyed.key_by("k").agg(n=F.count("*"), total=F.sum("seq"))
counts.to(ls.files("OUT"), name="out")
counts.to(ls.console(), name="shown", guarantee="at-least-once")
"""
# Rows of more than three keys in an epoch are staged by executors: for one sink in its folder, for the other beside the
# checkpoints.
SETTINGS = {
    "spares": "0",
    "until_done": "true",
    "heartbeat_interval_s": "1",
    "rows_through_driver_max": "3",
    "start_timeout_s": "900",
}
ARGUMENTS = ("--spark-conf", "spark.cores.max=2", "--spark-conf", "spark.executor.memory=600m")
TIMEOUT_S = 600.0


def life(project: Path, master: str, name_node: str, out: str, settings: Path) -> None:
    """A job that is killed twice: its replica alone, and everything."""
    words = (*ARGUMENTS, "--spark-conf", f"spark.executorEnv.HADOOP_CONF_DIR={settings}")
    text = TEXT.replace("LIMIT", str(LIMIT)).replace("KEYS", str(KEYS)).replace("OUT", out)
    wanted = Run(JOB, text, 1, master, SETTINGS, checkpoints=f"{name_node}/lockstep", arguments=words)
    project.mkdir(exist_ok=True)

    def advance(run: JobRun, records: int) -> None:
        def published() -> int:
            return sum(one.records for one in run.store.published(0, LIMIT))

        before = published()
        run.wait_until(lambda: published() > before + records, TIMEOUT_S, "more rows")

    run = JobRun(wanted, project)
    try:
        advance(run, 500)
        run.kill_replica("r0")
        advance(run, 500)
    finally:
        run.kill()
    run = JobRun(wanted, project)
    try:
        run.wait_end(TIMEOUT_S)
    finally:
        run.kill()


def name_hosts(folder: Path) -> None:
    """HDFS asks for the address of its own host's name; this process has mounts of its own, which its hosts inherit."""
    names = folder / "hosts"
    names.write_text("127.0.0.1 localhost\n10.83.0.1 h1\n10.83.0.2 h2\n", encoding="ascii")
    subprocess.run(["mount", "--bind", str(names), "/etc/hosts"], check=True)


def main(folder: Path) -> dict[str, object]:
    name_hosts(folder)
    with hosts(2, folder) as made, services.running("spark=2", "hdfs", folder=folder / "services", on=made) as there:
        spark, hdfs = there["spark"], there["hdfs"]
        settings = hdfs.nodes[0].log.parent
        os.environ["HADOOP_CONF_DIR"] = str(settings)
        name_node = re.search(r"hdfs://[\w.]+:\d+", (settings / "core-site.xml").read_text(encoding="utf-8"))
        assert name_node is not None
        project, out = made[0].folder / "project", f"{name_node[0]}/out"
        life(project, spark.address, name_node[0], out, settings)
        return {"rows": [[row["k"], row["n"], row["total"]] for row in read(out).to_pylist()]}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
