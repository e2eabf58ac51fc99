"""Jobs on masters that are not local: real executors, killed one by one; and refused where they share no disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep import services
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import read
from lockstep.services.hosts import obstacle, own_network
from tests.cluster import spark_hosts_scenario
from tests.cluster.spark_job import JOB, LIMIT, expected, newest, text


@pytest.mark.long
def test_a_job_goes_on_when_an_executor_and_a_worker_die_and_is_refused_without_a_shared_disk(tmp_path: Path) -> None:
    if (why_not := obstacle() or services.missing("spark")) is not None:
        pytest.skip(why_not)
    command = [*own_network(), sys.executable, spark_hosts_scenario.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    assert "LS0690 executor" in seen["refused"]
    assert f"on host h2 does not share {tmp_path}/h1/project" in seen["refused"]
    assert "put the project's folder on a file system" in seen["refused"]
    assert "done: " not in seen["refused"]

    assert newest(seen["rows"]) == expected(LIMIT)
    assert seen["told within 5 s"]
    assert {one.split(" on ")[1] for one in seen["lost"]} == {"10.83.0.1", "10.83.0.2"}


def test_local_cluster_gives_the_rows_that_are_expected_and_keeps_its_logs_in_the_replicas_folder(
    tmp_path: Path,
) -> None:
    limit = 2_000
    settings = {"spares": "0", "until_done": "true"}
    run = JobRun(Run(JOB, text(limit), master="local-cluster[2,1,1024]", settings=settings), tmp_path)
    try:
        run.wait_end(240)
    finally:
        run.kill()
    rows = [[row["k"], row["n"], row["total"]] for row in read(tmp_path / "out").to_pylist()]
    assert newest(rows) == expected(limit)
    home = tmp_path / ".lockstep/jobs/numbers/replicas/r0/spark-home"
    assert len([*home.glob("work/*/*/stderr")]) == 2
