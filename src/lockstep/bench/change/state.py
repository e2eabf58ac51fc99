"""`lockstep bench state`: what each step of a rescale takes with 10 MB, 100 MB and 1 GB of state.

The state is filled with keys that have a payload of a kilobyte each; then 1,000 events/s flow for a few keys, and the
job goes from one partition to two by the command that users have.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from lockstep.bench.change.ours import JOB, Operated
from lockstep.bench.change.sides import RATE, Change, Changed, Plan, Watching
from lockstep.bench.children import Child, observer, running
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row
from lockstep.bench.workspace import Say
from lockstep.plan.schema import parse_schema
from lockstep.runtime.spec import replica_folder
from lockstep.store.arrow import arrow_schema
from lockstep.store.journal import open_journal

JOURNAL = "filled"
SCHEMA = "key bigint, payload string"
PAYLOAD_BYTES = 1000
KEYS_PER_APPEND = 10_000
LIVE_KEYS = 250
FILL_TIMEOUT_S = 900.0
SIZES_MB = (10, 100, 1000)
CHANGE = Change("1 to 2 partitions", 2)
ON_DISK_MIN = 0.5
"""Less than this share of the payloads in the checkpoint means that they are not in the state at all."""


def job_text() -> str:
    """The newest payload of each key; what comes out is of the live keys alone.

    Something of the payload has to come out: Spark keeps no state for an aggregate that nobody reads.
    """
    return f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}"))
    .key_by("key")
    .agg(events=F.count("*"), payload=F.max("payload"), name="newest")
    .filter("key < {LIVE_KEYS}")
    .select("key", "events", F.length("payload").alias("bytes"))
    .to(ls.files("{SINK_FOLDER}"), name="sink"))
"""


def payloads(first: int, count: int) -> pa.RecordBatch:
    """Keys from ``first`` on, each with a payload that no compression shortens by much; a function of the keys.

    >>> one = payloads(5, 2)
    >>> one["key"].to_pylist(), {len(text) for text in one["payload"].to_pylist()}
    ([5, 6], {1000})
    """
    random = np.random.default_rng(first)
    letters = random.integers(ord("0"), ord("z"), size=(count, PAYLOAD_BYTES), dtype=np.uint8)
    offsets = np.arange(0, (count + 1) * PAYLOAD_BYTES, PAYLOAD_BYTES, dtype=np.int32)
    text = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters.tobytes()))
    keys = pa.array(np.arange(first, first + count, dtype=np.int64))
    return pa.record_batch([keys, text], schema=arrow_schema(parse_schema(SCHEMA)))


def run_state(folder: Path, say: Say, *, quick: bool, sizes_mb: tuple[int, ...] = ()) -> Report:
    """One job after the other, each with more state."""
    sizes = sizes_mb or (SIZES_MB[:1] if quick else SIZES_MB)
    rows: list[Row] = []
    for size_mb in sizes:
        place = folder / f"{size_mb}-mb"
        place.mkdir()
        rows.append(_measured(place, say, size_mb, quick=quick))
    return Report(
        bench="state",
        quick=quick,
        settings={"events_per_s": RATE, "payload_bytes": PAYLOAD_BYTES, "sizes_mb": list(sizes), "job": job_text()},
        tables=[Figures("a rescale from one partition to two, seconds of each step", rows)],
        verdicts=[
            Verdict("epochs with different digests", sum(int(row["different"] or 0) for row in rows), 0),
            Verdict("state on disk / payloads, smallest", min(map(_on_disk_share, rows)), ON_DISK_MIN, at_least=True),
        ],
        notes=_NOTES,
    )


_NOTES = (
    "state is the payloads of all keys; on_disk is the folder of the replica's checkpoint, with the changes that Spark "
    "keeps beside its newest snapshot",
    "fill is from the first append until all keys were in the state; copy, repartition, first_epoch, catch_up and "
    "agree are of the replica that joins, replace_r0 and leave follow",
    "free cores are those that nobody used during the rescale",
)


def _measured(folder: Path, say: Say, size_mb: int, *, quick: bool) -> Row:
    plan = Plan((CHANGE,), warm_up_s=5.0, before_s=8.0 if quick else 15.0)
    side = f"{size_mb} MB"
    watching = Watching(side, say, plan, lambda: read_seen_epochs(folder / "seen.log"))
    with (
        running(JobRun(Run(JOB, job_text()), folder)) as run,
        running(observer(folder, run.manifests, ".json")) as eyes,
    ):
        operated = Operated(run)
        watching.look = lambda: operated.look(eyes)
        fill_s = _fill(run, say, size_mb)
        with running(_live_feeder(folder, run.store_folder)) as feeder:
            watching.look = lambda: operated.look(eyes, feeder)
            watching.wait(plan.warm_up_s)
            operated.settle(watching)
            on_disk_mb = _bytes_below(replica_folder(run.store_folder, JOB, "r0") / "checkpoint") / 1e6
            changed = watching.around(CHANGE, lambda: operated.change(CHANGE, watching))
    return _row(size_mb, fill_s, on_disk_mb, changed, len(operated.different))


def _row(size_mb: int, fill_s: float, on_disk_mb: float, changed: Changed, different: int) -> Row:
    return {
        "state_mb": size_mb,
        "on_disk_mb": round(on_disk_mb),
        "fill_s": fill_s,
        "took_s": changed.took_s,
        **{f"{name}_s": took_s for name, took_s in changed.steps.items()},
        "gap_p99_before_s": changed.gaps.before_p99_s,
        "gap_max_during_s": changed.gaps.after_max_s,
        "ratio": changed.gaps.ratio,
        "free_cores_during": changed.free_cores_during,
        "different": different,
    }


def _on_disk_share(row: Row) -> float:
    return float(row["on_disk_mb"] or 0) / float(row["state_mb"] or 1)


def _fill(run: JobRun, say: Say, size_mb: int) -> float:
    """Append all keys, and wait until the job has computed them."""
    keys, begun_s = size_mb * 1_000_000 // PAYLOAD_BYTES, time.monotonic()
    journal = open_journal(run.store_folder, JOURNAL, parse_schema(SCHEMA))
    try:
        for first in range(0, keys, KEYS_PER_APPEND):
            journal.append(payloads(first, min(KEYS_PER_APPEND, keys - first)), 0)
    finally:
        journal.close()
    say(f"{size_mb} MB: {keys:,} keys were appended")
    run.wait_until(lambda: _read_to(run) >= keys, FILL_TIMEOUT_S, f"filling the state with {size_mb} MB")
    took_s = time.monotonic() - begun_s
    say(f"{size_mb} MB: in the state after {took_s:.0f} s")
    return took_s


def _read_to(run: JobRun) -> int:
    """How many records the epochs have taken in that were published."""
    head, said = run.store.head(), run.progress("r0")
    if head is None or said is None or said.epoch < 0:
        return 0
    entry = run.store.entry(said.epoch)
    return sum(int(end) for end in entry.cut["events"].values()) if entry is not None else 0


def _live_feeder(folder: Path, store: Path) -> Child:
    arguments = ["-m", "lockstep.bench.change.live_feeder", str(store), str(RATE)]
    return Child("the feeder", arguments, folder / "feeder.log", folder)


def _bytes_below(folder: Path) -> int:
    return sum(one.stat().st_size for one in folder.rglob("*") if one.is_file())
