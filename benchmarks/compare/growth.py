"""How Lockstep's epoch grows: with the number of keys in state, and with the number of shuffle partitions.

A count by key with one replica, epochs sealed back to back. Every key is in state before anything is measured; then
2,000 events/s, each of any key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.compare import keyed_events as many
from benchmarks.compare.measures import Outcome
from benchmarks.compare.plan import Size
from benchmarks.compare.process_trees import TreeMeter, between
from lockstep.bench.children import Child, observer, running
from lockstep.bench.events import read_sent
from lockstep.bench.gaps import SeenEpoch
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, median, percentile
from lockstep.clock import US_PER_S, wall_us
from lockstep.config import STORE_FOLDER
from lockstep.connect.reading import read
from lockstep.control.children import pass_by

RATE = 2000.0
STATE_KEYS = (10_000, 100_000, 1_000_000)
PARTITION_COUNTS = (1, 2, 4, 8)
PARTITIONS_KEYS = 10_000
FILL_TIMEOUT_S = 300.0
ENGINE = "lockstep-1"
JOB = "bench-growth"
JOB_TEXT = f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("events", ls.journal("{many.JOURNAL}", schema="{many.SCHEMA}"))
    .key_by("key")
    .agg(events=F.count("*"), last_seq=F.max("seq"))
    .to(ls.files("{SINK_FOLDER}")))
"""


@dataclass(frozen=True)
class Point:
    """One size."""

    keys: int
    partitions: int


def sizes(measure: str, *, quick: bool) -> tuple[int, ...]:
    """The sizes of a growth measure; quickly only the ends.

    >>> sizes("partitions", quick=False), sizes("state", quick=True)
    ((1, 2, 4, 8), (10000, 1000000))
    """
    every = STATE_KEYS if measure == "state" else PARTITION_COUNTS
    return (every[0], every[-1]) if quick else every


def grow(measure: str, number: int, folder: Path, size: Size) -> Outcome:
    """Measure one size."""
    point = Point(number, 1) if measure == "state" else Point(PARTITIONS_KEYS, number)
    folder.mkdir(parents=True)
    config = f'[spark.conf]\n"spark.sql.shuffle.partitions" = "{point.partitions}"\n'
    (folder / "lockstep.toml").write_text(config, encoding="utf-8")
    many.fill(folder / STORE_FOLDER, point.keys)
    run = JobRun(Run(JOB, JOB_TEXT, master="local[2]", settings={"epoch_interval_s": "0"}), folder)
    with running(run), running(observer(folder, run.manifests, ".json")), TreeMeter(run.pid) as meter:
        run.wait_running()
        filled_s = run.wait_until(lambda: _published(run) >= point.keys, FILL_TIMEOUT_S, "filling the state")
        with running(_feeder(folder, run, point.keys)) as feeder:
            pass_by((run, feeder), size.warm_up_s)
            from_us = wall_us()
            pass_by((run, feeder), size.measured_s)
            until_us = wall_us()
        seen = [one for one in read_seen_epochs(folder / "seen.log") if from_us <= one[1] <= until_us]
        took = [one.epoch_s * 1000 for one in run.store.published(seen[0][0], seen[-1][0])] if seen else []
        sent = read_sent(folder / "sent.log")
        total = point.keys + sum(one.count for one in sent)
        run.wait_until(lambda: _published(run) >= total, FILL_TIMEOUT_S, "publishing everything")
        meter.sample()
    cpu_s, memory = between(meter.costs, from_us / US_PER_S, until_us / US_PER_S)
    figures: Row = {
        "keys": point.keys,
        "partitions": point.partitions,
        **_period_figures(seen),
        "epoch_p50_ms": median(took),
        "cpu_cores": cpu_s / ((until_us - from_us) / US_PER_S),
        "memory_peak_mb": memory / 1e6,
        "fill_s": filled_s,
    }
    return Outcome(figures=figures, check=check(folder / SINK_FOLDER, many.expected_counts(sent, point.keys)))


def _period_figures(seen: Sequence[SeenEpoch]) -> Row:
    periods = [(later - earlier) / 1000 for (_, earlier), (_, later) in pairwise(seen)]
    return {"period_p50_ms": median(periods), "period_p90_ms": percentile(periods, 0.9), "epochs": len(periods)}


def _published(run: JobRun) -> int:
    """Records in everything that is published: counts never go down, so the newest progress tells."""
    return sum(one.records for one in run.store.progress())


def _feeder(folder: Path, run: JobRun, keys: int) -> Child:
    words = [str(run.store_folder), str(folder / "sent.log"), str(keys), str(RATE)]
    return Child("the feeder", ["-m", "benchmarks.compare.keyed_events", *words], folder / "feeder.log", folder)


def check(sink: Path, expected: many.Numbers) -> dict[str, Any]:
    """The last count of every key against the events that were sent; an epoch's update of a key comes once."""
    table = read(sink)
    frame = table.to_pandas()
    last = frame.groupby("key")["events"].max()
    wrong = int((last != expected[last.index.to_numpy()]).sum())
    lost = len(expected) - len(last)
    repeated = int(frame.duplicated(["key", "events"]).sum())
    return {
        "expected": len(expected),
        "published": table.num_rows,
        "lost": lost,
        "repeated": repeated,
        "wrong": wrong,
        "live_repeated": repeated,
        "live_wrong": wrong,
        "right": not (lost or repeated or wrong),
        "examples": [],
    }
