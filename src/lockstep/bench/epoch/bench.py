"""`lockstep bench epoch`: the warm stateful epoch and the restart of a replica, each split into its parts.

A count by key, 2,000 events/s through the journal, epochs sealed back to back, after hundreds of warm epochs: with one
replica and with two. Then kill -9 until the first epoch that the new incarnation has computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from lockstep.bench.children import journal_feeder, observer, running
from lockstep.bench.epoch.probe import ASK_FILE
from lockstep.bench.epoch.starting import is_complete, phases, read_steps, was_spare
from lockstep.bench.events import JOURNAL, SCHEMA, read_sent, waits_ms
from lockstep.bench.gaps import SeenEpoch, periods_ms
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, median, percentile
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S, wall_us
from lockstep.connect.reading import Reader
from lockstep.control.children import pass_by

RATE = 2000.0
EPOCH_LIMITS_MS = {1: 80.0, 2: 150.0}
RESTART_LIMIT_S = 8.0
REPORTS_KEPT = 2000
"""Spark's reports about this many batches are kept in the JVM and fetched once, after the measurement."""
SETTINGS = {"epoch_interval_s": "0"}
"""Back to back: the interval would hide an epoch that takes less."""
WAIT_TIMEOUT_S = 180.0
JOB = "bench-epoch"


@dataclass(frozen=True)
class Plan:
    """How long and how often."""

    warm_epochs: int
    measured_s: float
    restarts: int
    settle_s: float
    """Between a restart and the next kill."""


@dataclass(frozen=True)
class Measured:
    """One run: a number of replicas, warm, then killed."""

    replicas: int
    warm_epochs: int
    period_ms: Sequence[float]
    """From one visible epoch to the next."""
    took_ms: Sequence[float]
    """What the publishing replica says: from sealed, and the epoch before it done, to done."""
    waits_ms: Sequence[float]
    """From sending an event to seeing it."""
    parts: Sequence[Row]
    spark: Sequence[Row]
    restarts: Sequence[Row]


def job_text(folder: Path) -> str:
    """The job: events per customer so far, and the probe."""
    return f"""\
import lockstep as ls
from lockstep import F
from lockstep.bench.epoch.probe import attach

attach({str(folder)!r})
job = ls.Job("{JOB}")
(job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}"))
    .key_by("customer")
    .agg(events=F.count("*"), last_seq=F.max("seq"))
    .to(ls.files("{SINK_FOLDER}")))
"""


def run_epoch(folder: Path, say: Say, *, quick: bool) -> Report:
    """One replica, then two."""
    plan = Plan(200, 20.0, 1, 10.0) if quick else Plan(300, 40.0, 3, 30.0)
    found = []
    for replicas in EPOCH_LIMITS_MS:
        place = folder / f"replicas-{replicas}"
        (place / "probe").mkdir(parents=True)
        found.append(_measured(place, plan, replicas, say))
    return _report(plan, found, quick=quick)


def _measured(folder: Path, plan: Plan, replicas: int, say: Say) -> Measured:
    config = f'[spark.conf]\n"spark.sql.streaming.numRecentProgressUpdates" = "{REPORTS_KEPT}"\n'
    (folder / "lockstep.toml").write_text(config, encoding="utf-8")
    seen_log = folder / "seen.log"
    with (
        running(JobRun(Run(JOB, job_text(folder / "probe"), replicas, settings=SETTINGS), folder)) as run,
        running(observer(folder, run.manifests, ".json")) as observing,
        running(journal_feeder(folder, run.store_folder, RATE)) as feeder,
    ):
        say(f"replicas {replicas}: running after {run.wait_running():.1f} s; {plan.warm_epochs} epochs to warm up")
        warmed = len(read_seen_epochs(seen_log))
        run.wait_until(
            lambda: len(read_seen_epochs(seen_log)) >= warmed + plan.warm_epochs, WAIT_TIMEOUT_S, "warming up"
        )
        from_us = wall_us()
        pass_by((run, observing, feeder), plan.measured_s)
        until_us = wall_us()
        seen = read_seen_epochs(seen_log)
        counted = [one for one in seen if from_us <= one[1] <= until_us]
        took = run.store.published(counted[0][0], counted[-1][0])
        parts, spark = _collected(folder / "probe", run, from_us)
        say(f"  median {median(periods_ms(counted)):.0f} ms from epoch to epoch ({len(counted)} of them)")
        for row in (*parts, *spark):
            say(f"  {_one_line(row)}")
        restarts = _restarts(run, plan, folder / "probe", say)
    visible = _visible(folder, seen)
    return Measured(
        replicas=replicas,
        warm_epochs=len(seen) - len(counted),
        period_ms=periods_ms(counted),
        took_ms=[one.epoch_s * 1000 for one in took],
        waits_ms=waits_ms(read_sent(folder / "sent.log"), visible, from_us).tolist(),
        parts=parts,
        spark=spark,
        restarts=restarts,
    )


def _visible(folder: Path, seen: Sequence[SeenEpoch]) -> list[tuple[int, int]]:
    """Per epoch, the highest event number in it and when it was seen."""
    reader = Reader(folder / SINK_FOLDER)
    found = [(pc.max(reader.table(epoch)["last_seq"]).as_py(), at) for epoch, at in seen]
    return [(-1 if last is None else int(last), at) for last, at in found]


def _collected(folder: Path, run: JobRun, from_us: int) -> tuple[list[Row], list[Row]]:
    """Ask the probes; per replica the medians of our parts and of Spark's."""
    (folder / ASK_FILE).write_text("1", encoding="utf-8")
    replicas = sorted(run.store.progress(), key=lambda one: one.replica)
    parts, spark = [], []
    for one in replicas:
        answer = folder / f"{one.pid}.1.json"
        run.wait_until(answer.exists, WAIT_TIMEOUT_S, "asking the probe")
        document = json.loads(answer.read_text(encoding="utf-8"))
        parts.append({"replica": one.replica, **part_medians(document["spans"], from_us)})
        spark.append({"replica": one.replica, **spark_medians(document["reports"], from_us)})
    return parts, spark


def part_medians(spans: Sequence[tuple[str, int, float]], from_us: int) -> Row:
    """The median of each part, from what ended since ``from_us``.

    >>> part_medians([("seal", 5, 9.0), ("seal", 20, 2.0), ("compute", 21, 40.0)], from_us=10)
    {'seal_ms': 2.0, 'compute_ms': 40.0}
    """
    found: dict[str, list[float]] = {}
    for part, ended_us, took_ms in spans:
        if ended_us >= from_us:
            found.setdefault(part, []).append(took_ms)
    return {f"{part}_ms": median(values) for part, values in found.items()}


def spark_medians(reports: Sequence[Mapping[str, Any]], from_us: int) -> Row:
    """The median of each of Spark's own parts, and of the time it was busy: all but the wait for a sealed epoch."""
    found: dict[str, list[float]] = {}
    for report in reports:
        if datetime.fromisoformat(report["at"]).timestamp() * US_PER_S < from_us:
            continue
        durations = report["duration_ms"]
        busy_ms = durations.get("triggerExecution", 0) - durations.get("latestOffset", 0)
        for part, took_ms in {**durations, "busy": busy_ms}.items():
            found.setdefault(part, []).append(float(took_ms))
    return {f"{part}_ms": median(values) for part, values in found.items()}


def _restarts(run: JobRun, plan: Plan, folder: Path, say: Say) -> list[Row]:
    """Kill the last replica, wait for the first epoch that its next incarnation computes; again."""
    victim = f"r{run.run.replicas - 1}"
    done: list[Row] = []
    for number in range(plan.restarts):
        old, kill_us = run.kill_replica(victim)
        run.wait_until(lambda gone=old: _is_back(run, victim, gone, folder), WAIT_TIMEOUT_S, f"bringing {victim} back")  # type: ignore[misc]
        said = run.progress(victim)
        assert said is not None
        steps = read_steps(folder / f"{said.pid}.jsonl")
        done.append({"spare": was_spare(steps, kill_us), **phases(steps, kill_us)})
        say(f"  restart {number + 1} of {plan.restarts} to the first computed epoch: {_one_line(done[-1])}")
        if number + 1 < plan.restarts:
            pass_by((run,), plan.settle_s)
    return done


def _one_line(row: Mapping[str, Any]) -> str:
    """A row for the person who waits: a long bench should not have to end before it says anything."""
    return ", ".join(
        f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}" for name, value in row.items()
    )


def _is_back(run: JobRun, replica: str, old_pid: int, folder: Path) -> bool:
    said = run.progress(replica)
    if said is None or said.pid == old_pid or said.records == 0:
        return False
    return is_complete(read_steps(folder / f"{said.pid}.jsonl"))


def _report(plan: Plan, found: Sequence[Measured], *, quick: bool) -> Report:
    parts = [{"replicas": one.replicas, **row} for one in found for row in one.parts]
    spark = [{"replicas": one.replicas, **row} for one in found for row in one.spark]
    restarts: list[Row] = [{"replicas": one.replicas, **restart} for one in found for restart in one.restarts]
    return Report(
        bench="epoch",
        quick=quick,
        settings={"events_per_s": RATE, **asdict(plan), "job": job_text(Path("probe")), "set": SETTINGS},
        tables=[
            Figures("the warm epoch", [_row(one) for one in found]),
            Figures("where the time goes in Lockstep, medians", same_columns(parts)),
            Figures("where the time goes in Spark, medians (addBatch holds ours)", same_columns(spark)),
            Figures("kill -9 to the first epoch computed by the new incarnation", same_columns(restarts)),
        ],
        verdicts=[verdict for one in found for verdict in _verdicts(one)],
        notes=[
            "period is from one visible epoch to the next; with two replicas it holds the pacing of 1.3 epochs",
            "busy is Spark's triggerExecution without the wait for a sealed epoch (latestOffset)",
            "ours = compute + digests + publish + report; compute is the one Spark action of the epoch",
            "until_sealed is from ready for the next epoch to sealed: the wait for data and pacing, then seal",
            "the seconds of a restart add up; what a spare process had done before the kill counts 0",
        ],
    )


def _row(one: Measured) -> Row:
    return {
        "replicas": one.replicas,
        "period_p50_ms": median(one.period_ms),
        "period_p90_ms": percentile(one.period_ms, 0.9),
        "period_p99_ms": percentile(one.period_ms, 0.99),
        "epoch_p50_ms": median(one.took_ms),
        "epoch_p90_ms": percentile(one.took_ms, 0.9),
        "end_to_end_p50_ms": median(one.waits_ms),
        "end_to_end_p99_ms": percentile(one.waits_ms, 0.99),
        "epochs": len(one.period_ms),
        "epochs_before": one.warm_epochs,
    }


def same_columns(rows: Sequence[Row]) -> list[Row]:
    """All rows with all columns, in the order of their first appearance: a part may be missing in one of them.

    >>> same_columns([{"a": 1}, {"b": 2}])
    [{'a': 1, 'b': None}, {'a': None, 'b': 2}]
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [{name: row.get(name) for name in names} for row in rows]


def _verdicts(one: Measured) -> list[Verdict]:
    who = "one replica" if one.replicas == 1 else f"{one.replicas} replicas"
    restart_s = median([float(restart["total_s"] or 0) for restart in one.restarts])
    return [
        Verdict(f"{who}: median ms from epoch to epoch", median(one.period_ms), EPOCH_LIMITS_MS[one.replicas]),
        Verdict(f"{who}: median seconds from kill -9 to the first computed epoch", restart_s, RESTART_LIMIT_S),
    ]
