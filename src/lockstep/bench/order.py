"""`lockstep bench order`: epochs that are agreed on beside epochs that are derived, from and with real servers.

One Kafka broker has the input, three members of ZooKeeper the store. What is killed is the leader of the ensemble, then
the replica that was first with the newest epoch; what counts is what a reader of the sink sees of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.compute as pc

from lockstep import services
from lockstep.bench.children import Child, kafka_feeder, observer, running
from lockstep.bench.events import KAFKA_SCHEMA, read_sent
from lockstep.bench.gaps import Disturbance, SeenEpoch, disturbance
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, percentile
from lockstep.bench.topics import PARTITIONS, make_topics
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S, wall_us
from lockstep.connect.reading import Reader, read

RATE = 500.0
INTERVAL_S = 0.3
BEFORE_S = 15.0
AFTER_S = 15.0
BACK_TIMEOUT_S = 180.0
CAUGHT_UP_EPOCHS = 10
CAUGHT_UP_S = 2.0
CAUGHT_UP_TIMEOUT_S = 180.0
DRAIN_TIMEOUT_S = 90.0
JOB = "bench-order"
JOB_TEXT = f"""\
import lockstep as ls

job = ls.Job("{JOB}")
(job.source("events", ls.kafka("TOPIC", servers="SERVERS", schema="{KAFKA_SCHEMA}", timestamp_column="appended"))
    .select("seq", "appended")
    .to(ls.files("{SINK_FOLDER}")))
"""
PAPER: Sequence[Row] = (
    {"algorithm": "KaZoo: a leader, Kafka and ZooKeeper", "leader_lost_s": "0.6 to 0.9", "cpu_times": 2.7},
    {"algorithm": "LiveRobin: leaderless, deterministic merge", "leader_lost_s": None, "cpu_times": 1.7},
)
"""Active replication in Flink (SRDS'21), from its code and stored results. Another engine, 37 servers."""


@dataclass(frozen=True)
class Plan:
    """One run: how epochs are ordered, how long it is watched and what is killed how often."""

    order: str
    replicas: int
    steady_s: float
    kills: int
    warm_up_s: float


@dataclass(frozen=True)
class Outcome:
    """What one run showed."""

    plan: Plan
    steady: Row
    leader_kills: Sequence[Disturbance]
    replica_kills: Sequence[Disturbance]
    sent: int
    lost: int
    repeated: int
    disagreements: int


def run_order(folder: Path, say: Say, *, quick: bool) -> Report:
    """Both orders with two replicas and kills, then one replica for what it costs alone."""
    steady_s, kills, warm_up_s = (20.0, 1, 20.0) if quick else (40.0, 3, 40.0)
    plans = [
        Plan("agreed", 2, steady_s, kills, warm_up_s),
        Plan("derived", 2, steady_s, kills, warm_up_s),
        Plan("agreed", 1, steady_s, 0, warm_up_s),
    ]
    outcomes = []
    with services.running("kafka", "zookeeper=3") as started:
        there: dict[str, services.Service] = {str(name): one for name, one in started.items()}
        for plan in plans:
            place = folder / f"{plan.order}-{plan.replicas}"
            place.mkdir()
            say(f"order {plan.order}, {plan.replicas} replicas: starting, {RATE:.0f} events/s")
            outcomes.append(_measured(plan, place, there, say))
    return _report(outcomes, quick=quick)


def _measured(plan: Plan, folder: Path, there: Mapping[str, services.Service], say: Say) -> Outcome:
    topic, servers = f"order-{plan.order}-{plan.replicas}", there["kafka"].address
    make_topics(servers, topic, config={"message.timestamp.type": "LogAppendTime"})
    text = JOB_TEXT.replace("TOPIC", topic).replace("SERVERS", servers)
    # A spare boots for a minute or more, beside one run's steady time and not beside another's: none has one.
    settings = {"order": plan.order, "epoch_interval_s": str(INTERVAL_S), "compact_sinks": "false", "spares": "0"}
    store = f"zookeeper://{there['zookeeper'].address}/{topic}"
    with running(JobRun(Run(JOB, text, plan.replicas, settings=settings, store=store), folder)) as run:
        bench = _Ordered(plan, run, there, say)
        with (
            running(observer(folder, run.manifests, ".json")) as observing,
            running(kafka_feeder(folder, servers, topic, PARTITIONS, RATE)) as feeder,
        ):
            bench.helpers = (observing, feeder)
            steady = bench.steady()
            leader_kills = [bench.kill_leader() for _ in range(plan.kills)]
            replica_kills = [bench.kill_replica() for _ in range(plan.kills)]
        sent = sum(one.count for one in read_sent(folder / "sent.log"))
        lost, repeated = bench.compared(sent)
        disagreements = len(run.store.digest_mismatches())
    return Outcome(plan, steady, leader_kills, replica_kills, sent, lost, repeated, disagreements)


class _Ordered:
    """One run under way."""

    def __init__(self, plan: Plan, run: JobRun, there: Mapping[str, services.Service], say: Say) -> None:
        self._plan = plan
        self._run = run
        self._there = there
        self._say = say
        self.helpers: Sequence[Child] = ()

    def steady(self) -> Row:
        """Nothing happens: how old records are when they are seen, and what that costs."""
        started_s = self._run.wait_running()
        ran_s = time.monotonic()
        self._say(f"running after {started_s:.0f} s; warming up for {self._plan.warm_up_s:.0f} s")
        self._watch(self._plan.warm_up_s)
        caught_up_s = self._run.wait_until(self._is_caught_up, CAUGHT_UP_TIMEOUT_S, "catching up with the start")
        self._say(f"caught up after {caught_up_s:.0f} s more")
        ran_s = time.monotonic() - ran_s
        begun_us, job_s, servers_s = wall_us(), self._run.usage().cpu_s, self._servers_cpu_s()
        self._watch(self._plan.steady_s)
        took_s = (wall_us() - begun_us) / US_PER_S
        job_s, servers_s = self._run.usage().cpu_s - job_s, self._servers_cpu_s() - servers_s
        seen = [one for one in self._seen() if one[1] >= begun_us]
        waited_ms = waits_ms(Reader(self._run.folder / SINK_FOLDER), seen)
        return {
            "order": self._plan.order,
            "replicas": self._plan.replicas,
            "warm_s": ran_s,
            "p50_ms": percentile(waited_ms, 0.5),
            "p99_ms": percentile(waited_ms, 0.99),
            "epochs_per_s": len(seen) / took_s,
            "job_cores": job_s / took_s,
            "servers_cores": servers_s / took_s,
        }

    def kill_leader(self) -> Disturbance:
        """Kill -9 the ensemble's leader; it comes back as a follower afterwards."""
        nodes = self._there["zookeeper"].nodes
        leader = next(node for node in nodes if node.zookeeper_mode() == "leader")
        self._watch(BEFORE_S)
        at_us = wall_us()
        leader.kill()
        self._watch(AFTER_S)
        leader.start()
        leader.wait()
        return self._told("the store's leader", at_us)

    def kill_replica(self) -> Disturbance:
        """Kill -9 the replica that was first with the newest epoch, and wait until it is back."""
        self._watch(BEFORE_S)
        victim = self._run.newest_sealer()
        pid, at_us = self._run.kill_replica(victim)
        self._watch(AFTER_S)
        found = self._told(f"replica {victim}", at_us)
        self._run.wait_until(lambda: self._is_back(victim, pid), BACK_TIMEOUT_S, f"bringing {victim} back")
        return found

    def compared(self, sent: int) -> tuple[int, int]:
        """How many of the events that were sent are not there, and how many are there again."""
        self.helpers = ()
        sink, begun_s = self._run.folder / SINK_FOLDER, time.monotonic()
        while time.monotonic() - begun_s < DRAIN_TIMEOUT_S and read(sink).num_rows < sent:
            self._watch(1.0)
        self._watch(2.0)  # repeats would come now
        numbers = read(sink)["seq"].to_pylist()
        return len(set(range(sent)) - set(numbers)), len(numbers) - len(set(numbers))

    def _told(self, what: str, at_us: int) -> Disturbance:
        found = disturbance(self._seen(), at_us, BEFORE_S, AFTER_S)
        self._say(f"killed {what}: gap p99 {found.before_p99_s:.2f} s before, longest {found.after_max_s:.2f} s after")
        return found

    def _seen(self) -> list[SeenEpoch]:
        return read_seen_epochs(self._run.folder / "seen.log")

    def _is_caught_up(self) -> bool:
        """Whether records are seen soon after they came; what came during the start was computed by then."""
        reader = Reader(self._run.folder / SINK_FOLDER)
        newest = [(at_us, reader.publication(epoch)) for epoch, at_us in self._seen()[-CAUGHT_UP_EPOCHS:]]
        oldest_us = [(at_us, one.ingested_oldest_us) for at_us, one in newest if one is not None]
        return bool(oldest_us) and all(at - (came or at) < CAUGHT_UP_S * US_PER_S for at, came in oldest_us)

    def _is_back(self, replica: str, old_pid: int) -> bool:
        said = self._run.progress(replica)
        return said is not None and said.pid != old_pid and self._run.all_run()

    def _servers_cpu_s(self) -> float:
        times = [psutil.Process(node.pid).cpu_times() for one in self._there.values() for node in one.nodes]
        return float(sum(one.user + one.system for one in times))

    def _watch(self, seconds: float) -> None:
        """Let time pass, looking every quarter second whether all is still there."""
        deadline_s = time.monotonic() + seconds
        while (left_s := deadline_s - time.monotonic()) > 0:
            for child in (self._run, *self.helpers):
                child.check()
            time.sleep(min(left_s, 0.25))


def waits_ms(reader: Reader, seen: Sequence[SeenEpoch]) -> list[float]:
    """How long before it was seen each record was appended, by the broker's stamp."""
    waited: list[float] = []
    for epoch, seen_us in seen:
        appended = pc.cast(reader.table(epoch)["appended"], pa.int64()).to_pylist()
        waited += [(seen_us - at_us) / 1000 for at_us in appended]
    return waited


def _report(outcomes: Sequence[Outcome], *, quick: bool) -> Report:
    alone = float(outcomes[-1].steady["job_cores"] or 0)
    for one in outcomes:
        one.steady["cpu_of_one"] = float(one.steady["job_cores"] or 0) / alone if alone else None
    killed = [one for one in outcomes if one.plan.kills]
    return Report(
        bench="order",
        quick=quick,
        settings={
            "events_per_s": RATE,
            "partitions": PARTITIONS,
            "epoch_interval_s": INTERVAL_S,
            "before_s": BEFORE_S,
            "after_s": AFTER_S,
            "plans": [asdict(one.plan) for one in outcomes],
            "job": JOB_TEXT,
        },
        tables=[
            Figures(
                "from append to publication, and the processor, while nothing happens", [o.steady for o in outcomes]
            ),
            Figures("gaps between epochs after a kill", [row for one in killed for row in _kill_rows(one)]),
            Figures("output against what was sent", [_check_row(one) for one in outcomes]),
            Figures("active replication in Flink (SRDS'21), beside it", PAPER),
        ],
        verdicts=[
            Verdict("events lost", sum(one.lost for one in outcomes), 0),
            Verdict("events published twice", sum(one.repeated for one in outcomes), 0),
            Verdict("epochs with different digests", sum(one.disagreements for one in outcomes), 0),
        ],
        notes=[
            "p50 and p99 are of records: from the broker's stamp until a separate process saw their epoch",
            "job cores are supervisor and replicas, without a spare; cpu of one is against one replica, agreed",
            "warm s is how long replicas had run: a JVM gets cheaper for minutes, so compare cores at like times only",
            "the paper's figures are Flink's on 37 servers, from its code and stored results; they are no target here",
        ],
    )


def _kill_rows(one: Outcome) -> list[Row]:
    kills = [("store's leader", gaps) for gaps in one.leader_kills]
    kills += [("replica that was first", gaps) for gaps in one.replica_kills]
    return [
        {
            "order": one.plan.order,
            "killed": what,
            "gap_p50_before_s": gaps.before_p50_s,
            "gap_p99_before_s": gaps.before_p99_s,
            "gap_max_after_s": gaps.after_max_s,
            "at_s": gaps.after_max_at_s,
            "ratio": gaps.ratio,
        }
        for what, gaps in kills
    ]


def _check_row(one: Outcome) -> Row:
    return {
        "order": one.plan.order,
        "replicas": one.plan.replicas,
        "events_sent": one.sent,
        "lost": one.lost,
        "repeated": one.repeated,
        "different_digests": one.disagreements,
    }
