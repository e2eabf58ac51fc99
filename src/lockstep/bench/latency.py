"""`lockstep bench latency`: time per epoch and from end to end, beside the same query hand-written in PySpark.

Both sides count events per customer, 2,000 events/s from the same feeder, each record carrying a number from which its
sending time is known; both write one Parquet file per epoch. Ours reads the durable journal, the hand-written one a
socket, which costs Spark less than any source it could read again. The sides run one after the other, in alternating
blocks, each block in fresh processes with a warm-up that does not count.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.bench.children import Child, journal_feeder, killed, observer, running, socket_feeder
from lockstep.bench.events import JOURNAL, SCHEMA, read_sent, waits_ms
from lockstep.bench.gaps import SeenEpoch, periods_ms
from lockstep.bench.observer import epoch_file, read_seen_epochs
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.statistics import Row, median, percentile, spread
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.connect.reading import Reader
from lockstep.control.children import pass_by
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spec import replica_folder

RATE = 2000.0
RATIO_LIMIT = 0.5
START_TIMEOUT_S = 180.0
EPOCHS_MIN = 5
EXTENSIONS_MAX = 4
"""A side whose batches take half a minute is measured up to four times as long."""
JOB = "bench-latency"
JOB_TEXT = f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}"))
    .key_by("customer")
    .agg(events=F.count("*"), last_seq=F.max("seq"))
    .to(ls.files("{SINK_FOLDER}")))
"""
SETTINGS = {"epoch_interval_s": "0"}
"""Back to back, as Spark's default trigger does: the interval would hide an epoch that takes less."""
OURS = "lockstep, one replica"
DEFAULTS = "by hand, Spark's defaults"
FEW_PARTITIONS = "by hand, shuffle partitions = cores"


@dataclass(frozen=True)
class Plan:
    """How long, how often."""

    rounds: int
    warm_up_s: float
    measured_s: float


@dataclass(frozen=True)
class Block:
    """One side, measured once, warm."""

    side: str
    epoch_ms: Sequence[float]
    """Ours: from one published epoch to the next, everything included. By hand: Spark's triggerExecution."""
    period_ms: Sequence[float]
    """From one visible batch to the next."""
    waits_ms: npt.NDArray[Any]
    parts_ms: Row
    """Where the time of an epoch goes: medians."""


def run_latency(folder: Path, say: Say, *, quick: bool) -> Report:
    """Alternate the sides, block by block, and compare."""
    plan = Plan(1, 25.0, 25.0) if quick else Plan(2, 60.0, 60.0)
    sides: dict[str, Callable[[Path, Plan], Block]] = {
        OURS: _ours,
        DEFAULTS: lambda place, plan: _by_hand(place, plan, DEFAULTS, partitions=0),
        FEW_PARTITIONS: lambda place, plan: _by_hand(place, plan, FEW_PARTITIONS, partitions=os.cpu_count() or 1),
    }
    blocks: list[Block] = []
    for turn in range(plan.rounds):
        for number, (side, measure) in enumerate(sides.items()):
            place = folder / f"{turn}-{number}"
            place.mkdir()
            say(f"round {turn + 1} of {plan.rounds}, {side}: {plan.warm_up_s:.0f} s warm-up, {plan.measured_s:.0f} s")
            block = measure(place, plan)
            blocks.append(block)
            say(f"  median {median(block.epoch_ms):.0f} ms over {len(block.epoch_ms)} epochs")
    return _report(plan, blocks, quick=quick)


def _ours(folder: Path, plan: Plan) -> Block:
    with (
        running(JobRun(Run(JOB, JOB_TEXT, settings=SETTINGS), folder)) as run,
        running(observer(folder, run.manifests, ".json")),
    ):
        with running(journal_feeder(folder, run.store_folder, RATE)) as feeder:
            run.wait_running()
            from_us = _measure((run, feeder), plan, folder / "seen.log")
        everything = read_seen_epochs(folder / "seen.log")
        seen = _warm(everything, from_us)
        took_ms = [one.epoch_s * 1000 for one in run.store.published(seen[0][0], seen[-1][0])]
    reader = Reader(folder / SINK_FOLDER)
    checkpoint = replica_folder(run.store_folder, JOB, "r0") / "checkpoint"
    visible = [(_last(reader.table(epoch)), at) for epoch, at in everything]
    period_ms = periods_ms(seen)
    return Block(
        side=OURS,
        epoch_ms=period_ms,
        period_ms=period_ms,
        waits_ms=waits_ms(read_sent(folder / "sent.log"), visible, from_us),
        parts_ms={**_our_parts(reader, seen, checkpoint), "sealed_to_published": median(took_ms)},
    )


def _our_parts(reader: Reader, seen: Sequence[SeenEpoch], checkpoint: Path) -> Row:
    """Between the traces that an epoch leaves: its manifest says when it was sealed, the files of the checkpoint when
    Spark had noted the batch and when it had committed it (batch and epoch have the same number in a fresh job).

    Spark forgets old batches, so only the newest ones tell.
    """
    parts: dict[str, list[float]] = {}
    for epoch, seen_us in seen:
        publication = reader.publication(epoch)
        noted_us, committed_us = (_changed_us(checkpoint / log / str(epoch)) for log in ("offsets", "commits"))
        before_us = _changed_us(checkpoint / "commits" / str(epoch - 1))
        if publication is None or noted_us is None or committed_us is None or before_us is None:
            continue
        begun_us = max(before_us, publication.epoch_time_us)
        for name, part_us in (
            ("noted_by_spark", noted_us - begun_us),
            ("computed_and_published", seen_us - noted_us),
            ("committed", committed_us - seen_us),
        ):
            parts.setdefault(name, []).append(part_us / 1000)
    return {name: median(values) for name, values in parts.items()}


def _changed_us(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns // 1000
    except FileNotFoundError:
        return None


def _by_hand(folder: Path, plan: Plan, side: str, *, partitions: int) -> Block:
    out = folder / "out"
    feeder, port = socket_feeder(folder, RATE)
    with running(feeder), running(observer(folder, out / "batches", ".parquet")):
        arguments = ["-m", "lockstep.bench.latency_by_hand", str(port), str(out), str(partitions)]
        query = Child("the hand-written query", arguments, folder / "query.log", folder, process_environment())
        with killed(query):
            query.wait_until(lambda: bool(read_seen_epochs(folder / "seen.log")), START_TIMEOUT_S, "the first batch")
            from_us = _measure((query, feeder), plan, folder / "seen.log")
            # The reports are fetched once a second.
            time.sleep(1.5)
    everything = read_seen_epochs(folder / "seen.log")
    seen = _warm(everything, from_us)
    visible = [(_last(pq.read_table(epoch_file(out / "batches", batch, ".parquet"))), at) for batch, at in everything]
    reports = _reports(out / "progress.jsonl", {batch for batch, _ in seen})
    return Block(
        side=side,
        epoch_ms=[float(one["triggerExecution"]) for one in reports],
        period_ms=periods_ms(seen),
        waits_ms=waits_ms(read_sent(folder / "sent.log"), visible, from_us),
        parts_ms={
            name: median([float(one.get(name, 0)) for one in reports]) for name in (reports[0] if reports else ())
        },
    )


def _measure(children: Sequence[Child], plan: Plan, seen_log: Path) -> int:
    """Let the warm-up and the measured time pass, and more of it until some epochs were seen; when it began."""
    pass_by(children, plan.warm_up_s)
    from_us = wall_us()
    for _ in range(EXTENSIONS_MAX):
        pass_by(children, plan.measured_s)
        if len(_warm(read_seen_epochs(seen_log), from_us)) >= EPOCHS_MIN:
            break
    return from_us


def _warm(seen: Sequence[SeenEpoch], from_us: int) -> list[SeenEpoch]:
    return [one for one in seen if one[1] >= from_us]


def _last(table: pa.Table) -> int:
    """The highest event number in a batch's output, -1 if it has none."""
    found = pc.max(table["last_seq"]).as_py()
    return -1 if found is None else int(found)


def _reports(path: Path, batches: set[int]) -> list[dict[str, Any]]:
    """Spark's times for the batches that count."""
    reports = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [report["durationMs"] for report in reports if report["batchId"] in batches]


def _report(plan: Plan, blocks: Sequence[Block], *, quick: bool) -> Report:
    sides = {side: [block for block in blocks if block.side == side] for side in (OURS, DEFAULTS, FEW_PARTITIONS)}
    ours_ms, default_ms, few_ms = (median(_all(found)) for found in sides.values())
    parts = [Figures(f"{side}: where the time goes, ms", [_merged(found)]) for side, found in sides.items()]
    return Report(
        bench="latency",
        quick=quick,
        settings={"events_per_s": RATE, **asdict(plan), "job": JOB_TEXT, "set": SETTINGS, "master": "local[1]"},
        tables=[
            Figures("time per epoch and from end to end", [_row(side, found) for side, found in sides.items()]),
            *parts,
        ],
        verdicts=[
            Verdict("median epoch time against by hand with Spark's defaults", ours_ms / default_ms, RATIO_LIMIT),
            Verdict("the same against by hand with shuffle partitions = cores", ours_ms / few_ms, RATIO_LIMIT),
        ],
        notes=[
            "Spark's default of 200 shuffle partitions suits no small machine: look at the second comparison",
            "ours counts from one visible epoch to the next, everything included; by hand it is triggerExecution alone",
            "by hand reads a socket and cannot replay it; ours reads the journal, and every record is on disk first",
            "end to end is from the feeder's sending to the moment a separate process sees the output",
        ],
    )


def _all(blocks: Sequence[Block]) -> list[float]:
    return [value for block in blocks for value in block.epoch_ms]


def _row(side: str, blocks: Sequence[Block]) -> Row:
    waits = np.concatenate([block.waits_ms for block in blocks])
    return {
        "side": side,
        "epoch_p50_ms": median(_all(blocks)),
        "epoch_p99_ms": percentile(_all(blocks), 0.99),
        "spread_of_medians": spread([median(block.epoch_ms) for block in blocks]),
        "period_p50_ms": median([value for block in blocks for value in block.period_ms]),
        "end_to_end_p50_ms": percentile(waits.tolist(), 0.5),
        "end_to_end_p99_ms": percentile(waits.tolist(), 0.99),
        "epochs": len(_all(blocks)),
        "events": len(waits),
    }


def _merged(blocks: Sequence[Block]) -> Row:
    """The parts' medians, averaged over the blocks."""
    names = blocks[0].parts_ms
    return {name: float(np.mean([float(block.parts_ms.get(name) or 0) for block in blocks])) for name in names}
