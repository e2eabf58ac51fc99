"""``python -m lockstep.bench.hosts.play FOLDER EVENTS WARM_UP_S JARS``: the events in turn, in a network of its own.

With the jars of Spark's own connector for Kafka, a host is killed under a hand-written query at the end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from lockstep.bench.cluster import Cluster, cluster
from lockstep.bench.gaps import disturbance, gap_over, gaps_before
from lockstep.bench.hosts.contrast import run_contrast, told
from lockstep.bench.hosts.load import (
    JOB,
    JOB_TEXT,
    ORDERS,
    TOTALS,
    Feeder,
    Observer,
    check,
    moments,
    wait_until_published,
)
from lockstep.bench.running import JobRun, Run
from lockstep.bench.statistics import percentile
from lockstep.bench.topics import make_topics
from lockstep.bench.workspace import say_to_stderr
from lockstep.clock import US_PER_S, wall_us
from lockstep.runtime.desired_run import LEASE
from lockstep.services.hosts import Host
from lockstep.store.zookeeper.client import connection_retry

RATE = 1000.0
BEFORE_S = 20.0
AFTER_S = 20.0
CUT_OFF_S = 12.0
DISK = "disk"
FULL_S = 15.0
DISK_BYTES = 2 * 2**30
"""Of a host whose disk is to be filled: it is in memory, and takes of it what is on it."""
GIVE_UP_S = 240.0
EVENTS = ("host", "cable", "leader", "coordinator")
RESULTS = "results.json"
_LOOK_S = 0.05
_WRITE_S = 0.005


@dataclass(frozen=True)
class Event:
    """Something that was done to the cluster, and what followed."""

    name: str
    at_us: int
    text: str
    ratio: float = 0.0
    before_p99_s: float = 0.0
    after_max_s: float = 0.0
    back_s: float = 0.0
    """Until all is as before: the replica runs again, another one coordinates."""
    figures: dict[str, float] = field(default_factory=dict)


class Play:
    """A running job on a cluster, and the events."""

    def __init__(self, there: Cluster, folder: Path) -> None:
        self._there = there
        self._say = say_to_stderr()
        make_topics(there.kafka, ORDERS, TOTALS)
        text = JOB_TEXT.replace("SERVERS", there.kafka)
        self.run = JobRun(Run(JOB, text, replicas=2, store=there.store), folder)
        self.feeder, self.observer = Feeder(there.kafka, RATE), Observer(there.kafka)
        self.events: list[Event] = []

    def begin(self, warm_up_s: float) -> None:
        """Start, and wait until it is warm."""
        hosts = ", ".join(host.name for host in self._there.machines)
        self._say(f"hosts {hosts}, each with an agent; one broker and three ZooKeepers beside them")
        self.observer.start()
        self.feeder.start()
        started_s = self._until("both replicas to run on hosts of their own", self._live_apart)
        self._say(f"running after {started_s:.0f} s on {self._where()}; warming up for {warm_up_s:.0f} s")
        self._quiet(warm_up_s)

    def play(self, name: str) -> None:
        """One event, and what a reader of the output noticed of it."""
        acts: dict[str, Callable[[], Event]] = {
            "host": self._kill_host,
            "cable": self._cut_off,
            "leader": self._kill_leader,
            "coordinator": self._kill_coordinator,
            "member": self._kill_member,
            "broker": self._kill_broker,
            DISK: self._fill_disk,
        }
        self._quiet(BEFORE_S)
        event = acts[name]()
        self._quiet(max(0.0, AFTER_S - (wall_us() - event.at_us) / US_PER_S))
        gaps = disturbance(self.observer.seen(), event.at_us, BEFORE_S, AFTER_S)
        found = asdict(event) | {
            "ratio": gaps.ratio,
            "before_p99_s": gaps.before_p99_s,
            "after_max_s": gaps.after_max_s,
        }
        self.events.append(Event(**found))
        self._say(
            f"{event.text}: gap p99 {gaps.before_p99_s:.2f} s before, longest {gaps.after_max_s:.2f} s after "
            f"({gaps.ratio:.1f}x)" + (f", as before after {event.back_s:.1f} s" if event.back_s else "")
        )

    def finish(self) -> dict[str, Any]:
        """Stop sending, wait for the rest, stop the job, and compare."""
        self.feeder.finish()
        self._say(f"{self.feeder.sent:,} orders were sent; waiting for the rest of the output")
        wait_until_published(self.observer, self.feeder.sent, 120.0)
        self._quiet(3.0)
        words = [sys.executable, "-m", "lockstep", "--project", str(self.run.folder), "stop", JOB]
        stopped = subprocess.run(words, capture_output=True, text=True, check=False, env=self._there.environment)
        self._say((stopped.stderr.strip().splitlines() or ["stopped"])[0])
        self.observer.finish()
        rows = self.observer.rows()
        found = check(self.feeder.sent, [row for _, row in rows])
        divergences = len(self.run.store.divergences())
        return {
            "sent": self.feeder.sent,
            "rows": len(rows),
            "check": asdict(found) | {"complaints": found.complaints[:20]},
            "divergences": divergences,
            "events": [asdict(one) for one in self.events],
            "latencies": self._latencies(),
            "seen_us": [at_us for _, at_us in moments([at_us for at_us, _ in rows])],
            "stopped": stopped.returncode,
        }

    def _latencies(self) -> list[tuple[int, float]]:
        """When something was published, and how old the newest order in it was then, in milliseconds."""
        newest: dict[int, int] = {}
        for at_us, row in self.observer.rows():
            newest[at_us] = max(newest.get(at_us, -1), row["newest"])
        return [(at_us, (at_us - self.feeder.due_us(seq)) / 1000) for at_us, seq in sorted(newest.items())]

    def _kill_host(self) -> Event:
        victim = self._hosts_of_replicas()["r0"]
        at_us = wall_us()
        self._there.kill(victim)
        back_s = self._until(f"r0 to run elsewhere than on {victim}", lambda: self._moved("r0", victim))
        text = f"everything on {victim} killed with -9, r0 with it; r0 is on {self._hosts_of_replicas()['r0']} now"
        self._there.switch_on(victim)
        return Event("host", at_us, text, back_s=back_s)

    def _cut_off(self) -> Event:
        victim = self._hosts_of_replicas()["r1"]
        at_us = wall_us()
        self._there.host(victim).pull_cable()
        self._quiet(CUT_OFF_S)
        self._there.host(victim).plug_in()
        back_s = self._until("both replicas to run", self._live_apart)
        text = f"the cable of {victim} (r1) pulled for {CUT_OFF_S:.0f} s and put back; replicas on {self._where()}"
        return Event("cable", at_us, text, back_s=back_s + CUT_OFF_S)

    def _kill_leader(self) -> Event:
        nodes = self._there.servers["zookeeper"].nodes
        leader = next(one for one in nodes if one.zookeeper_mode() == "leader")
        writer = _Writer([one.address for one in nodes if one is not leader])
        writer.start()
        self._quiet(2.0)
        at_us = wall_us()
        leader.kill()
        self._quiet(8.0)
        seen = self.observer.seen()
        pause_s = gap_over(seen, at_us, max(at_us, writer.back_us), wall_us())
        usual_s = percentile(gaps_before(seen, at_us, BEFORE_S), 0.5)
        leader.start()
        leader.wait()
        writer.finish()
        figures = {"own_outage_s": writer.longest_s, "pause_s": pause_s, "pause_added_s": pause_s - usual_s}
        text = f"ZooKeeper's leader killed with -9; a plain writer beside it paused for {writer.longest_s:.2f} s"
        return Event("leader", at_us, text, figures=figures)

    def _kill_member(self) -> Event:
        nodes = self._there.servers["zookeeper"].nodes
        member = next(one for one in nodes if one.zookeeper_mode() == "follower")
        at_us = wall_us()
        member.kill()
        self._quiet(5.0)
        member.start()
        member.wait()
        return Event("member", at_us, "a ZooKeeper that does not lead killed with -9, and started again after 5 s")

    def _kill_broker(self) -> Event:
        (broker,) = self._there.servers["kafka"].nodes
        at_us = wall_us()
        broker.kill()
        broker.start()
        broker.wait()
        back_s = self._until("the output to go on", lambda: self.observer.seen()[-1][1] > wall_us() - US_PER_S)
        return Event("broker", at_us, "the broker killed with -9 and started again", back_s=back_s)

    def _fill_disk(self) -> Event:
        victim = self._hosts_of_replicas()["r1"]
        host = self._there.host(victim)
        assert isinstance(host, Host), "a folder has no disk of its own"
        at_us = wall_us()
        host.fill_disk()
        self._quiet(FULL_S)
        host.free_disk()
        back_s = self._until("both replicas to run", self._live_apart)
        text = f"the disk of {victim} (r1) full for {FULL_S:.0f} s; replicas on {self._where()}"
        return Event(DISK, at_us, text, back_s=back_s + FULL_S)

    def _kill_coordinator(self) -> Event:
        store = self.run.store
        before, holder = self._processes(), store.holder(LEASE)
        at_us = wall_us()
        self._end_coordinator(holder or "")
        back_s = self._until("another one to coordinate", lambda: store.holder(LEASE) not in (None, holder))
        self._quiet(5.0)
        restarted = float(len(set(self._processes()) - set(before)))
        text = (
            f"the coordinator ({holder}) killed with -9; now {store.holder(LEASE)}, {restarted:.0f} replicas restarted"
        )
        return Event("coordinator", at_us, text, back_s=back_s, figures={"replicas_restarted": restarted})

    def _end_coordinator(self, holder: str) -> None:
        host = next((one for one in self._there.machines if holder.startswith(f"{one.name}.")), None)
        if host is None:
            os.kill(self.run.pid, signal.SIGKILL)
            return
        words = host.command(["pkill", "-9", "-f", holder])
        subprocess.run(words, check=True)

    def _processes(self) -> list[tuple[str, int]]:
        return [(one.process, one.incarnation) for one in self.run.store.progress()]

    def _hosts_of_replicas(self) -> dict[str, str]:
        return {one.replica: one.host for one in self.run.store.progress()}

    def _where(self) -> str:
        return ", ".join(f"{host} ({replica})" for replica, host in self._hosts_of_replicas().items())

    def _live_apart(self) -> bool:
        said = self.run.store.progress()
        return [one.state for one in said] == ["running"] * 2 and len({one.host for one in said}) == 2

    def _moved(self, replica: str, host: str) -> bool:
        return self._live_apart() and self._hosts_of_replicas()[replica] != host

    def _until(self, what: str, condition: Callable[[], bool]) -> float:
        begun_s = time.monotonic()
        while not condition():
            if time.monotonic() > begun_s + GIVE_UP_S:
                raise TimeoutError(f"waiting for {what} took more than {GIVE_UP_S:.0f} s")
            time.sleep(_LOOK_S)
        return time.monotonic() - begun_s

    def _quiet(self, seconds: float) -> None:
        time.sleep(seconds)


class _Writer(threading.Thread):
    """Writes to the ensemble as fast as it answers, to see how long it does not."""

    def __init__(self, members: list[str]) -> None:
        super().__init__(name="writer", daemon=True)
        self._members = ",".join(members)
        self._ended = threading.Event()
        self.longest_s = 0.0
        self.back_us = 0
        """When the longest time between two answers was over."""

    def run(self) -> None:
        """Write, and remember the longest time between two answers."""
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException

        silent = logging.getLogger("lockstep.bench.writer")
        silent.setLevel(logging.CRITICAL + 1)
        # It asks as often as the store's own client: what it measures should be the ensemble's pause, not its own.
        client = KazooClient(hosts=self._members, timeout=4.0, connection_retry=connection_retry(), logger=silent)
        client.start(30)
        client.create("/writer", ephemeral=True)
        last_s = time.monotonic()
        while not self._ended.wait(_WRITE_S):
            with suppress(KazooException):
                client.set("/writer", b"")
                now_s = time.monotonic()
                if now_s - last_s > self.longest_s:
                    self.longest_s, self.back_us = now_s - last_s, wall_us()
                last_s = now_s
        client.stop()
        client.close()

    def finish(self) -> None:
        """Write no more."""
        self._ended.set()
        self.join()


def _played(there: Cluster, project: Path, names: Sequence[str], warm_up_s: float) -> dict[str, Any]:
    project.mkdir(parents=True)
    play = Play(there, project)
    try:
        play.begin(warm_up_s)
        for name in names:
            play.play(name)
        return play.finish()
    finally:
        play.run.kill()


def main() -> None:
    """Play the events that were asked for, and write down what was seen."""
    folder, names, warm_up_s = Path(sys.argv[1]), sys.argv[2].split(","), float(sys.argv[3])
    jars = sys.argv[4]
    # Only then: writing to a disk in memory takes no time, and benches measure it.
    with cluster(folder, disk_bytes=DISK_BYTES if DISK in names else 0) as there:
        results = _played(there, folder / "project", names, warm_up_s)
        if jars:
            results["by_hand"] = run_contrast(there, folder, jars, RATE, (warm_up_s, BEFORE_S, AFTER_S))
            say_to_stderr()(told(results["by_hand"]))
    (folder / RESULTS).write_text(json.dumps(results), encoding="utf-8")


if __name__ == "__main__":
    main()
