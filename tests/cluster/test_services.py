"""Services are real servers that answer, come back after a crash with their data, and leave nothing behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep import services
from lockstep.services.descriptions import Kind
from lockstep.services.readiness import kafka_brokers, postgres_answers

GONE_TIMEOUT_S = 10.0


def here(*kinds: Kind) -> None:
    for kind in kinds:
        if (why_not := services.missing(kind)) is not None:
            pytest.skip(why_not)


def test_all_three_answer_and_an_ensemble_outlives_its_leader(tmp_path: Path) -> None:
    here("kafka", "zookeeper", "postgres")
    with services.running("kafka", "zookeeper=3", "postgres", folder=tmp_path) as there:
        assert kafka_brokers("127.0.0.1", there["kafka"].nodes[0].port) == 1
        assert postgres_answers("127.0.0.1", there["postgres"].nodes[0].port)
        modes = {node: node.zookeeper_mode() for node in there["zookeeper"].nodes}
        assert sorted(modes.values()) == ["follower", "follower", "leader"]
        leader = next(node for node, mode in modes.items() if mode == "leader")
        leader.kill()
        others = [node for node in modes if node is not leader]
        deadline_s = time.monotonic() + 30
        while sorted(node.zookeeper_mode() for node in others) != ["follower", "leader"]:
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        pids = [node.pid for service in there.values() for node in service.nodes]
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_servers_and_their_folder_end_with_the_command() -> None:
    here("postgres")
    command = [sys.executable, "-m", "lockstep", "services", "up", "postgres", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as up:
        assert up.stdout is not None
        address = json.loads(up.stdout.readline())["postgres"]
        family = psutil.Process(up.pid).children(recursive=True)
        assert any("postgres" in process.name() for process in family), (address, family)
        up.send_signal(signal.SIGINT)
        try:
            assert up.wait(30) == 0
        finally:
            up.kill()
    assert psutil.wait_procs(family, GONE_TIMEOUT_S)[1] == []
    assert not Path(address.partition("passfile=")[2]).parents[2].exists()


def test_a_server_that_ends_by_itself_is_named_with_its_log(postgres: services.Service) -> None:
    node = postgres.nodes[0]
    node.kill()
    with pytest.raises(Exception, match="LS0023 postgres-1 ended by itself"):
        node.check_alive()
    node.start()
    node.wait()
