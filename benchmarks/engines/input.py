"""The input of a measurement: JSON-lines files, each moved into place whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks.engines.contract import Records, Row, Workload
from lockstep.clock import US_PER_S

INPUT, OUTPUT, WORK, STAGING = "input", "output", "work", "staging"
RECORDS_PER_FILE = 20_000
BEGIN_US = 1_704_067_200_000_000
"""2024-01-01: what ``sent_us`` counts from in input that nobody waits for."""


def make_folders(workload: Workload, folder: Path) -> None:
    """The folders of one measurement; those that are there stay as they are."""
    for name in (OUTPUT, WORK, STAGING, *(f"{INPUT}/{one.source}" for one in workload.inputs)):
        (folder / name).mkdir(parents=True, exist_ok=True)


class Writer:
    """Writes the files of one source, numbered, each whole from the moment it is there."""

    def __init__(self, folder: Path, source: str) -> None:
        self._target = folder / INPUT / source
        self._staged = folder / STAGING / f"{source}.jsonl"
        self._number = len(list(self._target.glob("*.jsonl")))

    def write(self, rows: Iterable[Row]) -> None:
        """One file more."""
        with self._staged.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
        os.replace(self._staged, self._target / f"{self._number:08d}.jsonl")  # noqa: PTH105 (called twenty times a second)
        self._number += 1


def write_all(workload: Workload, folder: Path, count: int | None = None, *, closing: bool = True) -> int:
    """Put ``count`` records of each source there (default: the workload's own number); returns how many in all.

    Records get the ``sent_us`` that they would have at the workload's rates. ``closing=False`` leaves the end open, so
    that more can be written afterwards.
    """
    wanted = count if count is not None else workload.bounded_records
    assert wanted is not None, f"{workload.name} has no number of records of its own: say how many"
    total = 0
    for one in workload.inputs:
        writer, pace_us = Writer(folder, one.source), US_PER_S / one.rate_per_s
        for first in range(0, wanted, RECORDS_PER_FILE):
            writer.write(_paced(workload, one.source, range(first, min(first + RECORDS_PER_FILE, wanted)), pace_us))
        if closing and (last := workload.closing(one.source, wanted, BEGIN_US + round(wanted * pace_us))):
            writer.write(last)
        total += wanted
    return total


def _paced(workload: Workload, source: str, numbers: range, pace_us: float) -> Iterator[Row]:
    if workload.bounded_records is not None:
        # Nobody asks when these were sent, and some are made much faster together.
        yield from workload.records(source, numbers.start, len(numbers), BEGIN_US)
        return
    for number in numbers:
        yield from workload.records(source, number, 1, BEGIN_US + round(number * pace_us))


def read_input(workload: Workload, folder: Path) -> Records:
    """All that was fed, read from the files themselves."""
    return {one.source: list(_read(folder / INPUT / one.source)) for one in workload.inputs}


def _read(folder: Path) -> Iterator[Row]:
    for path in sorted(folder.glob("*.jsonl")):
        with path.open(encoding="utf-8") as file:
            yield from map(json.loads, file)
