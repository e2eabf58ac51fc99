"""What `test_machines.py` does with a job on three hosts, in a network of its own; answers with one JSON object."""

from __future__ import annotations

import _thread
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from lockstep.bench.cluster import Cluster, cluster
from lockstep.bench.running import JobRun, Run
from lockstep.runtime.desired_run import LEASE
from tests.cluster.broker import Broker

JOB = """
import lockstep as ls
from lockstep import F

job = ls.Job("totals")
orders = job.source("orders", ls.kafka("orders", servers="SERVERS", schema="user string, amount bigint"))
totals = orders.key_by("user").agg(n=F.count("*"), total=F.sum("amount"))
totals.to(ls.kafka("totals", servers="SERVERS", key="user"), name="totals")
"""
SETTINGS = {"heartbeat_interval_s": "0.5", "lag_timeout_s": "10", "spares": "0"}
WAIT_S = 240.0


class Scene:
    """The job, what was sent to it, and what it has published."""

    def __init__(self, there: Cluster, folder: Path) -> None:
        self.there, self.folder = there, folder
        self.broker = Broker(there.kafka)
        self.broker.make("orders", 2, {})
        self.broker.make("totals", 2, {})
        self.sent: list[dict[str, Any]] = []
        self.seen: dict[str, object] = {}
        self.run = self.start()

    def start(self) -> JobRun:
        text = JOB.replace("SERVERS", self.there.kafka)
        return JobRun(Run("totals", text, replicas=2, settings=SETTINGS, store=self.there.store), self.folder)

    def send(self, count: int) -> None:
        orders: list[dict[str, Any]] = [
            {"user": f"u{n % 7}", "amount": n} for n in range(len(self.sent), len(self.sent) + count)
        ]
        for partition in range(2):
            mine = [json.dumps(one) for one in orders if one["amount"] % 2 == partition]
            self.broker.transaction("orders", mine, partition)
        self.sent += orders

    def is_all_there(self) -> bool:
        counts, sums = Counter[str](), Counter[str]()
        for one in self.sent:
            counts[one["user"]] += 1
            sums[one["user"]] += one["amount"]
        rows = self.broker.committed("totals")
        return {row["user"]: (row["n"], row["total"]) for row in rows} == {u: (counts[u], sums[u]) for u in counts}

    def until(self, what: str, condition: Any) -> float:
        begun_s = time.monotonic()
        while not condition():
            assert time.monotonic() < begun_s + WAIT_S, f"{what} took longer than {WAIT_S:.0f} s; {self.where()}"
            time.sleep(0.1)
        return time.monotonic() - begun_s

    def where(self) -> dict[str, tuple[str, int, str]]:
        return {one.replica: (one.host, one.incarnation, one.state) for one in self.run.store.progress()}

    def processes(self) -> list[tuple[str, int, str]]:
        return [(one.host, one.incarnation, one.process) for one in self.run.store.progress()]

    def goes_on(self, what: str) -> None:
        self.send(100)
        self.seen[what] = self.until(what, self.is_all_there) < WAIT_S

    def live_apart(self) -> bool:
        said = self.run.store.progress()
        return [one.state for one in said] == ["running"] * 2 and len({one.host for one in said}) == 2


def main(folder: Path) -> dict[str, object]:
    """Kill the coordinator, then a host, cut another one off, and stop the job from elsewhere."""
    project = folder / "project"
    project.mkdir()
    with cluster(folder) as there:
        scene = Scene(there, project)
        store, seen = scene.run.store, scene.seen
        scene.until("both replicas to run", scene.live_apart)
        scene.goes_on("published")
        before = scene.processes()
        coordinator = store.holder(LEASE)
        subprocess.run(["kill", "-9", str(scene.run.pid)], check=True)
        seen["another one coordinates after s"] = scene.until(
            "another coordinator", lambda: store.holder(LEASE) not in (None, coordinator)
        )
        scene.goes_on("published without the first coordinator")
        scene.until("both replicas to run", scene.live_apart)
        seen["adopted"] = scene.processes() == before
        victim = scene.where()["r0"][0]
        there.kill(victim)
        scene.goes_on("published without a host")
        seen["back elsewhere after s"] = scene.until(
            "the replica to be elsewhere", lambda: scene.live_apart() and scene.where()["r0"][0] != victim
        )
        there.switch_on(victim)
        cut = scene.where()["r1"][0]
        there.host(cut).pull_cable()
        scene.goes_on("published while a host is cut off")
        scene.until("the replica to be elsewhere", lambda: scene.live_apart() and scene.where()["r1"][0] != cut)
        there.host(cut).plug_in()
        scene.goes_on("published when it is back")
        words = [sys.executable, "-m", "lockstep", "--project", str(project), "stop", "totals"]
        stopped = subprocess.run(words, capture_output=True, text=True, check=False, env=there.environment)
        seen["stopped"] = (stopped.returncode, stopped.stderr.startswith("totals has stopped after epoch"))
        steps = [(row["user"], row["n"]) for row in scene.broker.committed("totals")]
        seen["each once"] = len(set(steps)) == len(steps)
        seen["diverged"] = len(store.divergences())
    return seen


if __name__ == "__main__":
    watchdog = threading.Timer(1500, _thread.interrupt_main)
    watchdog.daemon = True
    watchdog.start()
    print(json.dumps(main(Path(sys.argv[1]))))
