"""What `test_stage_topics_machines.py` does with a job of two stages on three hosts; answers with one JSON object."""

from __future__ import annotations

import _thread
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.bench.cluster import Cluster, cluster
from lockstep.bench.running import JobRun, Run
from tests.cluster.broker import Broker
from tests.cluster.test_stage_topics_job import TWO_STAGES, Orders, out_of

SETTINGS = {"heartbeat_interval_s": "0.5", "lag_timeout_s": "10", "spares": "0"}
WAIT_S = 240.0


def until(what: str, condition: Callable[[], bool]) -> None:
    begun_s = time.monotonic()
    while not condition():
        assert time.monotonic() < begun_s + WAIT_S, f"{what} took longer than {WAIT_S:.0f} s"
        time.sleep(0.1)


def start(there: Cluster, folder: Path, journals: str = "") -> JobRun:
    text = TWO_STAGES.replace("SERVERS", there.kafka).replace("SOURCE", "orders").replace("OUT", "hours")
    return JobRun(Run("inside", text, replicas=2, settings=SETTINGS, store=there.store, journals=journals), folder)


def refused(there: Cluster, folder: Path) -> str:
    """What is said of the job without the setting."""
    folder.mkdir()
    run = start(there, folder)
    until("the refusal", lambda: run.ended)
    said = (folder / "run.log").read_text(encoding="utf-8")
    run.kill()
    return next((word for word in said.split() if word.startswith("LS0")), said)


def letters(there: Cluster, project: Path) -> dict[str, Any]:
    """As somebody lists them on a machine where no replica ever was."""
    words = [sys.executable, "-m", "lockstep", "--project", str(project), "dead-letters", "inside", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=there.environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(folder: Path) -> dict[str, object]:
    """Refused without the setting; with it, kill the host of a replica in the middle."""
    seen: dict[str, object] = {}
    project = folder / "project"
    project.mkdir()
    with cluster(folder) as there:
        broker = Broker(there.kafka)
        broker.make("orders", 1, {})
        broker.make("hours", 1, {})
        seen["refused"] = refused(there, folder / "without")
        orders = Orders(broker, "orders")
        orders.send(600)
        run = start(there, project, f"kafka://{there.kafka}/lockstep")
        store = run.store

        def live_apart() -> bool:
            said = store.progress()
            return [one.state for one in said] == ["running"] * 2 and len({one.host for one in said}) == 2

        until("both replicas to run", live_apart)
        orders.send(600)
        until("the first hour", lambda: bool(out_of(broker, "hours")))
        victim = next(one.host for one in store.progress() if one.replica == "r0")
        there.kill(victim)
        orders.send(1200)
        until("hours without a host", lambda: len(out_of(broker, "hours")) >= len(orders.hours()) - 1)
        until("the replica to be elsewhere", lambda: live_apart() and victim not in {p.host for p in store.progress()})
        orders.send(600)
        orders.send(1, seconds=7200)
        until("all hours", lambda: len(out_of(broker, "hours")) >= len(orders.hours()))
        seen["wrong"] = [str(one) for one in set(out_of(broker, "hours")) ^ set(orders.hours())]
        seen["each once"] = len(out_of(broker, "hours")) == len(orders.hours())
        found = letters(there, project)
        seen["letters"] = (found["kept"], len({(one["step"], one["offset"]) for one in found["letters"]}))
        seen["diverged"] = len(store.divergences())
        run.stop()
    return seen


if __name__ == "__main__":
    watchdog = threading.Timer(900, _thread.interrupt_main)
    watchdog.daemon = True
    watchdog.start()
    print(json.dumps(main(Path(sys.argv[1]))))
