"""`lockstep bench buckets`: what a small epoch of a keyed Python step costs, by the number of its buckets.

The same job with 16, 64, 128 and 256 buckets in one Spark session, an epoch of each in turn, so that whatever else the
machine does falls on all of them alike: quiet epochs (one record, so all buckets but one have nothing to do) and busy
ones (200 records of as many keys, what 2,000 events/s are at ten epochs a second).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from lockstep.api.job import Job
from lockstep.bench.report import Figures, Report
from lockstep.bench.statistics import Row, median, percentile
from lockstep.bench.workspace import Say
from lockstep.connect.specs import files, journal
from lockstep.testing.session import opened_session
from lockstep.testing.trial import Trial

BUCKETS = (16, 64, 128, 256)
LOADS = {"quiet": 1, "busy": 200}
"""Records of an epoch; each has another key."""
JOURNAL = "events"


def run_buckets(folder: Path, say: Say, *, quick: bool) -> Report:
    """Warm epochs of all numbers of buckets, interleaved."""
    warm, measured = (5, 20) if quick else (40, 100)
    with opened_session(folder, cores=1, conf={}) as session, ExitStack() as stack:
        trials = {}
        for buckets in BUCKETS:
            trial = Trial(session, _job(), folder / f"buckets-{buckets}", {"buckets": buckets, "replicas": 1})
            stack.callback(trial.close)
            trial.start(tasks=1)
            trials[buckets] = trial
        rows: list[Row] = []
        for load, records in LOADS.items():
            _epochs(trials, records, warm)
            took = _epochs(trials, records, measured)
            rows += [_row(load, buckets, took) for buckets in BUCKETS]
            for row in rows[-len(BUCKETS) :]:
                say(f"{load}: {row['buckets']} buckets {row['epoch_p50_ms']:.1f} ms, {row['ratio']:.2f} times 16")
    return Report(
        bench="buckets",
        quick=quick,
        settings={"warm_epochs": warm, "measured_epochs": measured, "records": dict(LOADS)},
        tables=[Figures("a small epoch of a keyed fold, one replica with one core", rows)],
        notes=[
            "epochs of all numbers of buckets in turn, in one session; ratios are to 16 buckets",
            "ratio is that of the medians, min_ratio that of the shortest epochs, which a busy machine disturbs least",
        ],
    )


def _job() -> Job:
    job = Job("bench-buckets")
    (
        job.source("events", journal(JOURNAL, schema="user bigint, amount bigint"))
        .key_by("user")
        .fold(0, lambda total, record: total + record.amount, schema="total bigint")
        .to(files("out"))
    )
    return job


def _epochs(trials: Mapping[int, Trial], records: int, epochs: int) -> dict[int, list[float]]:
    took: dict[int, list[float]] = {buckets: [] for buckets in trials}
    for number in range(epochs):
        # Whose turn is first changes: the first of a round comes after a pause, and would always be the quickest.
        for buckets in (*BUCKETS[number % len(BUCKETS) :], *BUCKETS[: number % len(BUCKETS)]):
            trial = trials[buckets]
            trial.put(JOURNAL, [{"user": user, "amount": 1} for user in range(records)])
            begun_s = time.perf_counter()
            trial.run(1)
            took[buckets].append((time.perf_counter() - begun_s) * 1000)
    return took


def _row(load: str, buckets: int, took: Mapping[int, Sequence[float]]) -> Row:
    return {
        "load": load,
        "buckets": buckets,
        "epoch_min_ms": min(took[buckets]),
        "epoch_p50_ms": median(took[buckets]),
        "epoch_p90_ms": percentile(took[buckets], 0.9),
        "ratio": median(took[buckets]) / median(took[BUCKETS[0]]),
        "min_ratio": min(took[buckets]) / min(took[BUCKETS[0]]),
    }
