"""The input of `lockstep bench throughput`: sales as JSON lines in files, made by number, so always the same."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from lockstep.clock import US_PER_S

SCHEMA = "ts timestamp, key string, amount bigint, price double"
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
KEYS = 10_000
WINDOW_S = 60
OUT_OF_ORDER_S = 5
DISORDER_MS = 2_000
"""Less than is allowed for: no record is late, so the result is a function of the records alone."""
CLOSING_KEY = "closing"
CLOSING_FILES = 4
"""Records far in the future close all windows: of two batches the first moves event time, the second acts."""
_LINES = 10_000


@dataclass(frozen=True)
class Sales:
    """How much input there is: files of the same size, some of them read before the clock starts."""

    records_per_file: int
    warm_up_files: int
    measured_files: int

    @property
    def files(self) -> int:
        """All of them."""
        return self.warm_up_files + self.measured_files

    @property
    def records(self) -> int:
        """All of them."""
        return self.files * self.records_per_file

    @property
    def warm_up_records(self) -> int:
        """Those that are read before the clock starts."""
        return self.warm_up_files * self.records_per_file


def write_sales(folder: Path, sales: Sales) -> None:
    """Write the files, with modification times in their order and in the past: readers take the oldest first."""
    folder.mkdir(parents=True)
    # A minute ago: nobody has to wait until the files have been still for a while.
    base_s = datetime.now(UTC).timestamp() - 60 - sales.files
    for number in range(sales.files):
        path = folder / f"sales-{number:03d}.jsonl"
        first = number * sales.records_per_file
        with path.open("w", encoding="utf-8") as file:
            for start in range(first, first + sales.records_per_file, _LINES):
                file.writelines(lines(start, min(_LINES, first + sales.records_per_file - start)))
        os.utime(path, (base_s + number, base_s + number))
    for number in range(CLOSING_FILES):
        path = folder / f"sales-closing-{number}.jsonl"
        at = BEGIN + timedelta(days=1, minutes=number)
        path.write_text(_line(at, CLOSING_KEY, 0, 0.0), encoding="utf-8")
        os.utime(path, (base_s + sales.files + number, base_s + sales.files + number))


def lines(first: int, count: int) -> Iterator[str]:
    """Some of the records, one every millisecond of event time, out of order by up to two seconds.

    >>> print(*lines(1, 1), end="")
    {"ts":"2024-01-01T00:00:00.001Z","key":"k5761","amount":13,"price":0.13}
    """
    number = np.arange(first, first + count, dtype=np.int64)
    mixed = number * 2_654_435_761 % (1 << 32)
    late_ms = np.where(number > DISORDER_MS, mixed % DISORDER_MS, 0)
    for at_ms, mix in zip((number - late_ms).tolist(), mixed.tolist(), strict=True):
        at = BEGIN + timedelta(milliseconds=at_ms)
        # From other bits than the key: every key has all amounts.
        amount = (mix >> 14) % 1000
        yield _line(at, f"k{mix % KEYS:04d}", amount, amount / 100)


def _line(at: datetime, key: str, amount: int, price: float) -> str:
    # By hand: json.dumps would take longer than everything that is measured.
    stamp = f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z"
    return f'{{"ts":"{stamp}","key":{json.dumps(key)},"amount":{amount},"price":{price}}}\n'


def expected(folder: Path) -> pa.Table:
    """The windows of all files, computed by Arrow alone: key, window_start (us), events, total; in their order."""
    tables = [pa.json.read_json(path) for path in sorted(folder.glob("sales-[0-9]*.jsonl"))]
    table = pa.concat_tables(tables)
    at_us = pc.cast(pc.cast(table["ts"], pa.timestamp("us", "UTC")), pa.int64())
    window_us = WINDOW_S * US_PER_S
    start = pc.multiply(pc.divide(at_us, window_us), window_us)
    grouped = (
        pa.table({"key": table["key"], "window_start": start, "amount": table["amount"]})
        .group_by(["key", "window_start"])
        .aggregate([("amount", "count"), ("amount", "sum")])
    )
    return in_order(grouped.rename_columns(["key", "window_start", "events", "total"]))


def in_order(table: pa.Table) -> pa.Table:
    """The rows without the closing records, as plain numbers, in a fixed order: ready to be compared."""
    columns = {
        "key": pc.cast(table["key"], pa.string()),
        "window_start": _microseconds(table["window_start"]),
        "events": pc.cast(table["events"], pa.int64()),
        "total": pc.cast(table["total"], pa.int64()),
    }
    rows = pa.table(columns)
    rows = rows.filter(pc.not_equal(rows["key"], CLOSING_KEY))
    return rows.sort_by([("window_start", "ascending"), ("key", "ascending")]).combine_chunks()


def _microseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Spark's Parquet files hold nanoseconds, ours microseconds; plain numbers are microseconds already."""
    if pa.types.is_timestamp(times.type):
        times = pc.cast(times, pa.timestamp("us", times.type.tz))
    return pc.cast(times, pa.int64())


def differing(found: pa.Table, wanted: pa.Table) -> int:
    """How many rows are in one of the tables and not in the other (both as :func:`in_order` gives them)."""
    if found.equals(wanted):
        return 0
    mine, theirs = ({tuple(row.values()) for row in table.to_pylist()} for table in (found, wanted))
    repeated = len(found) - len(mine)
    return len(mine ^ theirs) + repeated
