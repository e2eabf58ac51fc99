"""What a store in ZooKeeper does while members of the ensemble are killed, sessions expire and answers are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss

from lockstep.errors import StoreError
from lockstep.services import Node, Service
from lockstep.store.opening import open_store
from lockstep.store.patience import patience
from lockstep.store.protocols import Store
from lockstep.store.zookeeper import client as zookeeper_client
from lockstep.store.zookeeper.store import ZookeeperStore
from tests.cluster.zookeeper_workers import JOB, proposal

LOAD_S = 12.0
WORKERS = 3
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def store(store_address: str) -> Iterator[Store]:
    opened = open_store(store_address, JOB)
    yield opened
    opened.close()


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts workers and ends them."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.cluster.zookeeper_workers", *words]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen(command, text=True, **pipes))
        return started[-1]

    yield begin
    for one in started:
        if one.poll() is None:
            one.kill()
            one.communicate()


def leader(zookeeper: Service) -> Node:
    return next(node for node in zookeeper.nodes if node.zookeeper_mode() == "leader")


def longest_s(times: list[float]) -> float:
    return max(after - before for before, after in pairwise(times))


def wait_until(is_so: Callable[[], bool], seconds: float, what: str) -> None:
    deadline_s = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline_s, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def said(worker: subprocess.Popen[str]) -> list[Any]:
    out, errors = worker.communicate(timeout=120)
    assert worker.returncode == 0, errors
    return [json.loads(line) for line in out.splitlines()]


def test_a_killed_leader_costs_no_epoch(
    zookeeper: Service, store_address: str, store: Store, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    sealers = [start("seal", store_address, f"r{number}", str(LOAD_S)) for number in range(WORKERS)]
    plain = start("write", zookeeper.address, str(LOAD_S))
    wait_until(lambda: (head := store.head()) is not None and head.epoch > 20, 60, "sealers to be under way")
    killed = leader(zookeeper)
    killed.kill()
    killed_s = time.monotonic()
    try:
        answers, written = [said(one) for one in sealers], said(plain)
    finally:
        killed.start()
        killed.wait()
    head = store.head()
    assert head is not None
    ledger = {one.epoch: one for one in store.entries(0, head.epoch)}
    assert sorted(ledger) == list(range(head.epoch + 1)), "no gap"
    for told in answers:
        for _, epoch, sealed_by, proposed_by in told:
            assert (sealed_by, proposed_by) == (ledger[epoch].sealed_by, next(iter(ledger[epoch].marks)))
            assert sealed_by == f"{proposed_by}.1", "an entry is what its sealer proposed"
        assert [epoch for _, epoch, *_ in told] == list(range(len(told))), "no epoch was skipped"
        assert told[-1][0] > killed_s, "each went on after the kill"
    times = sorted(at for told in answers for at, *_ in told)
    with capsys.disabled():
        print(
            f"\n  leader killed: {len(ledger)} epochs sealed by {WORKERS} processes; longest pause of sealing "
            f"{longest_s(times):.2f} s, of a plain writer beside them {longest_s([at for at, _ in written]):.2f} s"
        )


def test_a_process_that_stood_still_cannot_seal_after_it_was_replaced(
    store_address: str, store: Store, start: Start
) -> None:
    worker = start("stand-still", store_address)
    assert worker.stdin is not None
    assert worker.stdout is not None
    assert worker.stdout.readline() == "True\n"
    worker.stdin.write("seal\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "r0.1\n"
    assert store.holder("leader") == "r0.1"
    os.kill(worker.pid, signal.SIGSTOP)
    try:
        wait_until(lambda: store.holder("leader") is None, 60, "its session to expire")
        assert store.acquire("leader", "another", 60.0)
        replaced = store.begin("r0", pid=1)
    finally:
        os.kill(worker.pid, signal.SIGCONT)
    worker.stdin.write("seal\n")
    worker.stdin.flush()
    assert worker.stdout.readline() == "LS0405\n"
    assert store.seal(proposal(1), replaced).sealed_by == "r0.2"
    assert store.holder("leader") == "another"
    worker.communicate(timeout=60)
    assert worker.returncode == 0


class _AnswerLost:
    """A transaction that is carried out, and whose answer never comes."""

    def __init__(self, transaction: Any, losses: list[int]) -> None:
        self._transaction = transaction
        self._losses = losses

    def commit_async(self) -> Any:
        result = self._transaction.commit_async()
        if not self._losses.pop():
            return result
        result.get(timeout=30)
        return _Lost()


class _Lost:
    def get(self, timeout: float) -> Any:
        raise ConnectionLoss


def test_a_seal_whose_answer_was_lost_is_found_by_reading(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, other = store.begin("r0", pid=1), store.begin("r1", pid=1)
    store.set_fact("f", "0")
    real, losses = zookeeper_client._transaction, [0] * 50
    monkeypatch.setattr(
        zookeeper_client, "_transaction", lambda kazoo, operations: _AnswerLost(real(kazoo, operations), losses)
    )
    losses.append(1)
    assert store.seal(proposal(0), holder).sealed_by == "r0.1"
    losses.append(1)
    assert store.seal(proposal(1), other).sealed_by == "r1.1"
    assert [one.epoch for one in store.entries(0, 9)] == [0, 1]
    losses.append(1)
    assert store.swap_fact("f", "0", "1"), "it was carried out"
    losses.append(1)
    assert store.acquire("leader", "a", 60.0)
    assert store.holder("leader") == "a"


def test_a_seal_during_which_its_server_is_killed_holds_once(zookeeper: Service, store: Store) -> None:
    assert isinstance(store, ZookeeperStore)
    holder = store.begin("r0", pid=1)
    epoch = 0
    for _ in range(2):
        server = _server_of(store, zookeeper)
        os.kill(server.pid, signal.SIGSTOP)  # the request leaves, and is not read before the kill
        killer = subprocess.Popen(["/bin/sh", "-c", f"sleep 0.3; kill -9 {server.pid}"])
        try:
            for _ in range(5):
                assert store.seal(proposal(epoch), holder).sealed_by == "r0.1"
                epoch += 1
        finally:
            killer.wait()
            server.kill()
            server.start()
            server.wait()
    assert [one.epoch for one in store.entries(0, 99)] == list(range(epoch))


def _server_of(store: ZookeeperStore, zookeeper: Service) -> Node:
    port = store._client().kazoo._connection._socket.getpeername()[1]
    return next(node for node in zookeeper.nodes if node.port == port)


def test_without_a_quorum_calls_end_within_their_patience(zookeeper: Service, store: Store) -> None:
    store.begin("r0", pid=1)
    away = [node for node in zookeeper.nodes if node is not leader(zookeeper)]
    for node in away:
        node.kill()
    try:
        begun_s = time.monotonic()
        with patience(1.0), pytest.raises(StoreError, match="LS0421"):
            store.begin("r0", pid=2)
        assert time.monotonic() - begun_s < 10
        store.add_event("note", "written late")  # returns at once; nobody waits for it
    finally:
        for node in away:
            node.start()
        for node in away:
            node.wait()
    wait_until(lambda: [one[4] for one in store.events()] == ["written late"], 60, "what was queued to be written")


def test_a_store_is_used_on_both_sides_of_a_fork(store_address: str, start: Start) -> None:
    assert said(start("fork", store_address)) == [[0, [0, 1], ["child"]]]
