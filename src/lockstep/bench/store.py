"""`lockstep bench store`: rates of the journal and the ledger, and memory while millions of records pass through."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from lockstep.bench.children import Child
from lockstep.bench.events import JOURNAL, SCHEMA, Sent, batch
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.statistics import Row, percentile
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import open_journal

BATCH_RECORDS = (1, 100, 10_000)
WRITERS = (1, 4)
SEALERS = (1, 4)
MEMORY_GROWTH_LIMIT = 1.1
"""Flat: at the end at most 10 % above what it was when a fifth had passed (until then caches fill)."""
WORKER_TIMEOUT_S = 900.0


def run_store(folder: Path, say: Say, *, quick: bool) -> Report:
    """Measure the journal, the ledger and memory, one after the other."""
    seconds = 1.0 if quick else 4.0
    passing = 500_000 if quick else 5_000_000
    appends = _appends(folder, seconds, say)
    say("journal: reading")
    reads = [_read_rate(folder / "journals", size) for size in BATCH_RECORDS]
    seals = [_seal_rate(folder, count, seconds, say) for count in SEALERS]
    say(f"memory: {passing:,} records appended, read and trimmed")
    memory = _memory(folder, passing)
    return Report(
        bench="store",
        quick=quick,
        settings={"seconds_each": seconds, "schema": SCHEMA, "records_passing": passing, "synchronous": "FULL"},
        tables=[
            Figures("journal: append, on disk when it returns", appends),
            Figures("journal: read", reads),
            Figures("ledger: seal (put-if-absent), on disk when it returns", seals),
            Figures("memory of a process while records pass through", memory),
        ],
        verdicts=[
            Verdict("memory at the end / after a fifth of the records", _growth(memory), MEMORY_GROWTH_LIMIT),
        ],
        notes=[
            "several writers of one process share a commit; several processes wait for each other",
            "several sealers propose the same epochs, as replicas do: each epoch is sealed once, and all calls count",
        ],
    )


def _appends(folder: Path, seconds: float, say: Say) -> list[Row]:
    rows = []
    for size in BATCH_RECORDS:
        for writers in WRITERS:
            say(f"journal: appending {size:,} at a time, {writers} writers")
            store = folder / "journals" / str(size) if writers == 1 else folder / "contended" / str(size)
            rows.append(_append_rate(store, size, writers, seconds))
    return rows


def _append_rate(store: Path, size: int, writers: int, seconds: float) -> Row:
    journal = open_journal(store, JOURNAL, parse_schema(SCHEMA))
    took_s: list[float] = []
    records = batch(Sent(0, size, wall_us()))

    def write(deadline_s: float) -> None:
        while (begun_s := time.monotonic()) < deadline_s:
            journal.append(records, 0)
            took_s.append(time.monotonic() - begun_s)

    begun_s = time.monotonic()
    _together([lambda: write(begun_s + seconds)] * writers)
    elapsed_s = time.monotonic() - begun_s
    journal.close()
    return {
        "records_per_append": size,
        "writer_threads": writers,
        "appends_per_s": len(took_s) / elapsed_s,
        "records_per_s": len(took_s) * size / elapsed_s,
        "append_p50_ms": percentile(took_s, 0.5) * 1000,
        "append_p99_ms": percentile(took_s, 0.99) * 1000,
    }


def _together(tasks: Sequence[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=task) for task in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _read_rate(stores: Path, size: int) -> Row:
    journal = open_journal(stores / str(size), JOURNAL)
    try:
        end = journal.ends()[0]
        begun_s = time.monotonic()
        read = sum(found.num_rows for found in journal.read(0, 0, end))
        elapsed_s = time.monotonic() - begun_s
    finally:
        journal.close()
    assert read == end, f"{end} records were appended, {read} read"
    return {"records_per_append": size, "records": read, "records_per_s": read / elapsed_s}


def _seal_rate(folder: Path, sealers: int, seconds: float, say: Say) -> Row:
    say(f"ledger: {sealers} processes seal")
    place = folder / f"ledger-{sealers}"
    place.mkdir()
    begin_us = wall_us() + 2_000_000
    children = [_sealer(place, number, begin_us, seconds) for number in range(sealers)]
    try:
        for child in children:
            child.wait_end(WORKER_TIMEOUT_S)
    finally:
        for child in children:
            child.kill()
    took_ms: list[float] = []
    won = 0
    for child in children:
        said = json.loads(child.log.read_text(encoding="utf-8"))
        took_ms += said["took_ms"]
        won += said["won"]
    return {
        "processes": sealers,
        "epochs_per_s": won / seconds,
        "calls_per_s": len(took_ms) / seconds,
        "call_p50_ms": percentile(took_ms, 0.5),
        "call_p99_ms": percentile(took_ms, 0.99),
        "call_max_ms": max(took_ms),
    }


def _sealer(place: Path, number: int, begin_us: int, seconds: float) -> Child:
    arguments = ["-m", "lockstep.bench.store_workers", "seal", str(place), f"r{number}", str(begin_us), str(seconds)]
    return Child("a sealer", arguments, place / f"sealer-{number}.log", place)


def _memory(folder: Path, records: int) -> list[Row]:
    place = folder / "memory"
    place.mkdir()
    arguments = ["-m", "lockstep.bench.store_workers", "pass", str(place), str(records)]
    child = Child("the process that passes records through", arguments, place / "worker.log", place)
    try:
        child.wait_end(WORKER_TIMEOUT_S)
    finally:
        child.kill()
    samples: list[Row] = json.loads(child.log.read_text(encoding="utf-8"))
    return samples


def _growth(samples: Sequence[Row]) -> float:
    """The memory at the end against that when a fifth had passed."""
    fifth = samples[len(samples) // 5]
    return float(samples[-1]["memory_mb"] or 0) / float(fifth["memory_mb"] or 1)
