"""Where records come from and where they go: every source, every sink, every guarantee."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lockstep as ls
from lockstep import F
from lockstep.testing import Trial
from lockstep.testing.trial import START_US
from tests.matrix.case import Case, Expected, Given, Inputs, Row, Rows
from tests.matrix.inputs import SCHEMA, epochs_of, event, events, only
from tests.matrix.jobs.rolling import in_order

NARROW = "k string, n bigint, at timestamp"
ARROW = pa.schema([("k", pa.string()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
FORMATS = ("jsonl", "csv", "parquet")
PER_SECOND, LIMIT = 3, 30


def _narrow(chance: Random, epoch: int) -> Row:
    """In a CSV file nothing tells an empty text from none."""
    row = event(chance, epoch)
    return {"k": row["k"] or None, "n": row["n"], "at": row["at"]}


def by_format(chance: Random, epochs: int) -> Inputs:
    """A file of each format in each epoch, but for empty ones."""
    return {name: epochs_of(chance, epochs, _narrow, at_most=4) for name in FORMATS}


def write_files(trial: Trial, given: Given, epoch: int) -> None:
    """The files of an epoch, old enough to be read. One line of text is no record: it must not cost the others."""
    for name in FORMATS:
        rows = given.inputs[name][epoch]
        if rows:
            path = trial.folder / "in" / name / f"part-{epoch:02}.{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, rows)
            at_s = START_US / 1e6 - 600 + epoch
            os.utime(path, (at_s, at_s))


def _write(path: Path, rows: list[Row]) -> None:
    plain = [{**row, "at": row["at"] and row["at"].isoformat()} for row in rows]
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(f"{json.dumps(row)}\n" for row in plain) + '{"k": "half a line\n', encoding="utf-8")
        case ".csv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, ["k", "n", "at"], quoting=csv.QUOTE_MINIMAL)
                writer.writeheader()
                writer.writerows(plain)
        case _:
            pq.write_table(pa.Table.from_pylist(rows, ARROW), path)


def files(_: Given) -> ls.Job:
    """A folder in each format, and totals over all."""
    job = ls.Job("files")
    streams = [job.source(name, ls.files(f"in/{name}", schema=NARROW, format=name)) for name in FORMATS]  # type: ignore[call-overload]
    for name, stream in zip(FORMATS, streams, strict=True):
        stream.to(ls.files(f"out/{name}", format="parquet" if name == "parquet" else "jsonl"), name=f"{name}_rows")
    united = streams[0].union(*streams[1:])
    united.key_by("k").agg(n=F.count("*")).to(ls.sqlite("out/counts.db", table="counts", key="k"), name="counts")
    return job


def files_expected(given: Given) -> Expected:
    """What was written."""
    counts: dict[Any, int] = defaultdict(int)
    for name in FORMATS:
        for _, row in given.records(name):
            counts[row["k"]] += 1
    rows: dict[str, Rows] = {
        f"{name}_rows": [(epoch, *row.values()) for epoch, row in given.records(name)] for name in FORMATS
    }
    return {**rows, "counts": [(given.end, key, n) for key, n in counts.items()]}


def made_up(given: Given) -> ls.Job:
    """Records that come with the job: at a steady pace, and from a list."""
    job = ls.Job("made-up")
    ticks = job.source("ticks", ls.rate(PER_SECOND, limit=LIMIT))
    ticks.select("seq").to(ls.files("out/ticks"), name="tick_rows")
    ticks.key_by(rest="seq % 4").agg(n=F.count("*")).to(ls.files("out/rests"), name="rests")
    listed = job.source("listed", ls.collection(epochs=given.inputs["listed"], schema=NARROW))
    listed.to(ls.sqlite("out/listed.db", table="listed"), name="listed_rows")
    return job


def one_list(chance: Random, epochs: int) -> Inputs:
    """Lists without empty ones: an epoch without records is nothing that a list can have."""
    made = epochs_of(chance, epochs, _narrow, at_most=4)
    return {"listed": [rows or [_narrow(chance, epoch)] for epoch, rows in enumerate(made)]}


def feed_nothing(trial: Trial, given: Given, epoch: int) -> None:
    """The records come by themselves."""
    del trial, given, epoch


def made_up_expected(given: Given) -> Expected:
    """The first tick is in epoch 0, then some in every second."""
    ticks = [(-(-seq // PER_SECOND), seq) for seq in range(LIMIT)]
    rests: Rows = []
    counts: dict[int, int] = defaultdict(int)
    for epoch in range(given.end):
        new = [seq for at, seq in ticks if at == epoch]
        for seq in new:
            counts[seq % 4] += 1
        rests += [(epoch, rest, counts[rest]) for rest in {seq % 4 for seq in new}]
    return {
        "tick_rows": list(ticks),
        "rests": rests,
        "listed_rows": [(epoch, *row.values()) for epoch, row in given.records("listed")],
    }


def keyed(_: Given) -> ls.Job:
    """Sinks that keep the newest row of a key: by position, by event time, and as they were emitted."""
    job = ls.Job("keyed")
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    source.select("k", "n", "big").to(ls.sqlite("out/k.db", table="by_position", key="k"), name="by_position")
    timed = source.event_time("at", out_of_order="3 seconds", idle_after=None)
    timed.select("k", "n", "at").to(ls.sqlite("out/k.db", table="by_time", key="k"), name="by_time")
    counted = timed.key_by("k").agg(count=F.count("*"), total=F.sum("n"), per_record=True)
    counted.to(ls.sqlite("out/k.db", table="counted", key=("k",)), name="counted")
    timed.select("k", "n").to(ls.sqlite("out/k.db", table="appended"), name="appended")
    return job


def keyed_expected(given: Given) -> Expected:
    """The last one of each key: epoch by epoch, in an epoch by time (if it has one) and position."""
    newest: dict[str, dict[Any, tuple[Any, ...]]] = defaultdict(dict)
    history: dict[Any, list[Row]] = defaultdict(list)
    for records in given.inputs["events"]:
        for row in records:
            newest["by_position"][row["k"]] = only(row, "k", "n", "big")
        for row in in_order(records):
            history[row["k"]].append(row)
            newest["by_time"][row["k"]] = only(row, "k", "n", "at")
            numbers = [one["n"] for one in history[row["k"]] if one["n"] is not None]
            total = sum(numbers) if numbers else None
            newest["counted"][row["k"]] = (row["k"], len(history[row["k"]]), total)
    found = {name: [(given.end, *values) for values in rows.values()] for name, rows in newest.items()}
    return {**found, "appended": [(epoch, *only(row, "k", "n")) for epoch, row in given.records()]}


def printed(_: Given) -> ls.Job:
    """A sink without a fence: at least once, or at most once."""
    job = ls.Job("printed")
    source = job.source("events", ls.journal("events", schema=SCHEMA))
    source.select("k", "n").to(ls.files("out/rows"), name="rows")
    source.select("n").to(ls.console(), name="at_least_once", guarantee="at-least-once")
    source.select("k").to(ls.console(), name="at_most_once", guarantee="at-most-once")
    return job


def printed_expected(given: Given) -> Expected:
    """All of them."""
    rows = list(given.records())
    return {
        "rows": [(epoch, *only(row, "k", "n")) for epoch, row in rows],
        "at_least_once": [(epoch, row["n"]) for epoch, row in rows],
        "at_most_once": [(epoch, row["k"]) for epoch, row in rows],
    }


CASES = [
    Case("files of every format", "ends", files, by_format, files_expected, feed=write_files),
    Case("rate and collection", "ends", made_up, one_list, made_up_expected, feed=feed_nothing, by_itself=True),
    Case("keyed sinks", "ends", keyed, events, keyed_expected),
    Case("console", "ends", printed, events, printed_expected),
]
