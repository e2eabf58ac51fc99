"""Jobs whose epochs are derived from a topic: the store is away, a replica dies; compared with plain Python."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep import services
from lockstep.bench.running import JobRun, Run
from lockstep.connect.reading import read
from lockstep.runtime.deriving import order_of
from lockstep.store.derived import LEDGER_FILE, open_ledger, what_counts
from tests.cluster.broker import Broker
from tests.cluster.test_kafka_order import STAMPED, plain_cut

JOB = """
import lockstep as ls
from lockstep import F

job = ls.Job("clicks", order="derived", epoch_interval="1 second")
clicks = job.source("clicks", ls.kafka("TOPIC", servers="SERVERS", schema="user string, n bigint, at timestamp"))
clicks.select("n").to(ls.files("out"), name="all")
(clicks.event_time("at", out_of_order="1 second", idle_after="2 seconds")
    .key_by("user").window(ls.tumbling("1 second")).agg(n=F.count("*"), total=F.sum("n"))
    .to(ls.files("windows"), name="windows"))
"""
BEGIN_MS = 1_700_000_000_000
STEP_MS = 7
PARTITIONS = 3
# An epoch of a second: bounds are not stretched, so on a machine that many use a short one would not be kept.
AWAY_S = 15.0
SETTINGS = {"heartbeat_interval_s": "0.5"}


class Clicks(threading.Thread):
    """Sends numbered clicks until told to stop, a few at a time; event time is in their number."""

    def __init__(self, broker: Broker, topic: str) -> None:
        super().__init__(daemon=True)
        self._broker, self._topic = broker, topic
        self.sent: list[dict[str, Any]] = []
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            some = [self._click(len(self.sent) + n) for n in range(10)]
            # Partition 2 stays quiet.
            for partition in range(PARTITIONS - 1):
                mine = [json.dumps(one) for one in some if one["n"] % (PARTITIONS - 1) == partition]
                self._broker.send(self._topic, mine, partition)
            self.sent += some

    def _click(self, number: int) -> dict[str, Any]:
        at_s = (BEGIN_MS + STEP_MS * number) / 1000
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + f".{round(at_s * 1000) % 1000:03d}Z"
        return {"user": f"u{number % 5}", "n": number, "at": at}

    def stop(self) -> None:
        self._ended.set()
        self.join()

    def windows(self) -> Counter[tuple[str, int, int, int]]:
        """User, second, count and sum of what was sent."""
        counts: Counter[tuple[str, int]] = Counter()
        sums: Counter[tuple[str, int]] = Counter()
        for one in self.sent:
            key = (one["user"], (BEGIN_MS + STEP_MS * one["n"]) // 1000)
            counts[key] += 1
            sums[key] += one["n"]
        return Counter((*key, counts[key], sums[key]) for key in counts)


@pytest.fixture
def started(
    broker: Broker, topic: Callable[..., str], tmp_path: Path
) -> Iterator[Callable[..., tuple[JobRun, Clicks, str]]]:
    made: list[tuple[JobRun, Clicks]] = []

    def start(store: str = "", **settings: str) -> tuple[JobRun, Clicks, str]:
        name = topic(PARTITIONS, **STAMPED)
        text = JOB.replace("TOPIC", name).replace("SERVERS", broker.servers)
        run = JobRun(Run("clicks", text, replicas=2, settings={**SETTINGS, **settings}, store=store), tmp_path)
        made.append((run, Clicks(broker, name)))
        return *made[-1], name

    yield start
    for run, clicks in made:
        run.kill()
        if clicks.is_alive():
            clicks.stop()


def numbers(run: JobRun) -> list[int]:
    return [row["n"] for row in read(run.folder / "out").to_pylist()]


def windows(run: JobRun) -> Counter[tuple[str, int, int, int]]:
    rows = read(run.folder / "windows").to_pylist()
    return Counter((row["user"], int(row["window_start"].timestamp()), row["n"], row["total"]) for row in rows)


def wait_for_all(run: JobRun, clicks: Clicks) -> None:
    """Until all that was sent is published; windows by themselves, since a source that is quiet does not hold time."""
    wanted = clicks.windows()
    run.wait_until(lambda: len(numbers(run)) >= len(clicks.sent), 90, "everything to be published")
    run.wait_until(lambda: windows(run).total() >= wanted.total(), 90, "every window to be published")
    assert sorted(numbers(run)) == list(range(len(clicks.sent))), "each click once"
    assert windows(run) == wanted


def check_ledgers(run: JobRun, broker: Broker, topic: str) -> None:
    """What every replica derived is what stands in the log, and what the shared ledger was told."""
    order = order_of(run.store)
    assert order is not None
    log = broker.messages(topic)
    head = run.store.head()
    assert head is not None
    told = {one.epoch: one for one in run.store.entries(0, head.epoch)}
    compared = 0
    for replica in ("r0", "r1"):
        ledger = open_ledger(run.store_folder / "jobs" / "clicks" / "replicas" / replica / LEDGER_FILE)
        derived = ledger.entries(1, head.epoch)
        ledger.close()
        for entry in derived:
            cut = plain_cut(log, order.topics["clicks"].positions, order.bound_ms(entry.epoch))
            assert dict(entry.cut["clicks"]) == cut, f"{replica}, epoch {entry.epoch}"
            if entry.epoch in told:
                assert what_counts(entry) == what_counts(told[entry.epoch])
                compared += 1
    assert compared > 40


def newest_published(run: JobRun) -> int:
    manifests = run.manifests.glob("*.json")
    return max((int(path.stem) for path in manifests if path.stem.isdigit()), default=-1)


def wait_for_epochs(run: JobRun, count: int, when: str) -> None:
    before = newest_published(run)
    run.wait_until(lambda: newest_published(run) >= before + count, 30, f"epochs {when}")


def test_neither_the_store_away_nor_a_kill_is_seen_in_the_output(
    broker: Broker, zookeeper: services.Service, store_address: str, started: Callable[..., tuple[JobRun, Clicks, str]]
) -> None:
    run, clicks, topic = started(store_address)
    clicks.start()
    run.wait_running()
    run.wait_until(lambda: len(numbers(run)) > 100, 60, "the first clicks")
    for node in zookeeper.nodes:
        node.pause()
    try:
        # The store's own clock stands still with it: only the sink tells that the job goes on.
        # Longer than the 3 s that a call waits, and than the 5 s after which `lockstep run` looks again.
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            wait_for_epochs(run, 1, "while the store is away")
    finally:
        for node in zookeeper.nodes:
            node.resume()
    run.wait_until(run.all_run, 60, "both replicas to be seen again")
    run.kill_replica("r0")
    wait_for_epochs(run, 10, "after the kill")
    run.wait_until(run.all_run, 180, "the replica to come back")
    clicks.stop()
    wait_for_all(run, clicks)
    check_ledgers(run, broker, topic)
    assert not run.store.divergences()
    assert not run.store.digest_mismatches()
    said = subprocess.run(
        [sys.executable, "-m", "lockstep", "--project", str(run.folder), "status", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert {one["replica"] for one in json.loads(said.stdout)["replicas"]} == {"r0", "r1"}


@pytest.mark.long
def test_a_locked_store_and_a_crash_of_everything_are_not_seen_in_the_output(
    broker: Broker, started: Callable[..., tuple[JobRun, Clicks, str]]
) -> None:
    run, clicks, topic = started(spares="0")
    clicks.start()
    run.wait_running()
    run.wait_until(lambda: len(numbers(run)) > 100, 60, "the first clicks")
    other = sqlite3.connect(run.store_folder / "jobs" / "clicks" / "ledger.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    wait_for_epochs(run, 10, "while the store is locked")
    other.execute("ROLLBACK")
    other.close()
    run.wait_until(run.all_run, 60, "both replicas to be seen again")
    run.kill()
    again = JobRun(run.run, run.folder)
    try:
        again.wait_running()
        clicks.stop()
        wait_for_all(again, clicks)
        check_ledgers(again, broker, topic)
        assert not again.store.divergences()
        assert not again.store.digest_mismatches()
    finally:
        again.kill()
