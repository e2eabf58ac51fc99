"""What a reader notices of a killed host if the query is hand-written PySpark and a loop starts it again elsewhere.

The same orders at the same rate, in topics of their own; the same totals; Spark's own connector. The checkpoint is in a
folder that all hosts see. The loop starts the query on the next host as soon as its process has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lockstep.bench.children import Child
from lockstep.bench.cluster import Cluster, Machine
from lockstep.bench.gaps import disturbance
from lockstep.bench.hosts.load import Feeder, Observer, check, wait_until_published
from lockstep.bench.topics import make_topics
from lockstep.clock import US_PER_S, wall_us
from lockstep.runtime.process_environment import process_environment

ORDERS, TOTALS = "orders-by-hand", "totals-by-hand"
MASTER = "local[1]"
GIVE_UP_S = 180.0
_LOOK_S = 0.05
_SETTLE_S = 5.0


class RestartLoop(threading.Thread):
    """Keeps a query running: whenever its process has ended, it is started on the next of the hosts."""

    def __init__(self, start: Callable[[Machine], Child], machines: list[Machine]) -> None:
        super().__init__(name="restart-loop", daemon=True)
        self._start = start
        self._left = list(machines)
        self._ended = threading.Event()
        self.starts = 0
        self.child = self._next()

    def run(self) -> None:
        """Look every twentieth of a second."""
        while not self._ended.wait(_LOOK_S):
            if self.child.ended and self._left:
                self.child = self._next()

    def finish(self) -> None:
        """Start nothing more, and end what runs."""
        self._ended.set()
        if self.is_alive():
            self.join()
        self.child.kill()

    def _next(self) -> Child:
        self.starts += 1
        return self._start(self._left.pop(0))


def run_contrast(
    there: Cluster, folder: Path, jars: str, per_s: float, times_s: tuple[float, float, float]
) -> dict[str, Any]:
    """Kill the host under a hand-written query; ``times_s`` are those to warm up, before and after."""
    warm_up_s, before_s, after_s = times_s
    shared = folder / "shared"
    shared.mkdir()
    make_topics(there.kafka, ORDERS, TOTALS)
    feeder, observer = Feeder(there.kafka, per_s, ORDERS), Observer(there.kafka, TOTALS)
    observer.start()
    feeder.start()
    loop = RestartLoop(lambda host: _query(host, there.kafka, jars, shared), list(there.machines))
    try:
        loop.start()
        _until_output(observer, wall_us())
        time.sleep(warm_up_s + before_s)
        at_us = _kill(there, loop)
        back_s = _until_output(observer, at_us)
        time.sleep(max(_SETTLE_S, after_s - back_s))
        gaps = disturbance(observer.seen(), at_us, before_s, (wall_us() - at_us) / US_PER_S)
        feeder.finish()
        wait_until_published(observer, feeder.sent, GIVE_UP_S)
    finally:
        loop.finish()
        observer.finish()
    found = check(feeder.sent, [row for _, row in observer.rows()])
    return {
        "before_p99_s": gaps.before_p99_s,
        "after_max_s": gaps.after_max_s,
        "ratio": gaps.ratio,
        "starts": loop.starts,
        "lost": found.lost,
        "repeated": found.repeated,
    }


def told(found: dict[str, Any]) -> str:
    """The line about it."""
    return (
        f"the host of a hand-written query killed with -9, a loop started it on another one: gap p99 "
        f"{found['before_p99_s']:.2f} s before, longest {found['after_max_s']:.2f} s after ({found['ratio']:.1f}x)"
    )


def _query(host: Machine, servers: str, jars: str, shared: Path) -> Child:
    own = host.folder / "by-hand"
    own.mkdir(parents=True, exist_ok=True)
    environment = {**process_environment(), "BENCH_MASTER": MASTER}
    module = "lockstep.bench.hosts.by_hand"
    words = [environment["PYSPARK_PYTHON"], "-m", module, servers, jars, str(shared / "checkpoint"), str(own)]
    program, *arguments = host.command(words)
    return Child(f"the query on {host.name}", arguments, own / "query.log", own, environment, program)


def _kill(there: Cluster, loop: RestartLoop) -> int:
    """Kill the host of the query; where hosts are folders, that is its processes."""
    child, victim = loop.child, there.machines[0].name
    at_us = wall_us()
    there.kill(victim)
    child.kill()
    return at_us


def _until_output(observer: Observer, since_us: int) -> float:
    """Seconds until something new came out."""
    begun_s = time.monotonic()
    while not any(at_us > since_us for _, at_us in observer.seen()[-1:]):
        if time.monotonic() > begun_s + GIVE_UP_S:
            raise TimeoutError(f"the hand-written query published nothing within {GIVE_UP_S:.0f} s")
        time.sleep(_LOOK_S)
    return time.monotonic() - begun_s
