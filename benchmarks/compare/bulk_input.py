"""Input that is there at once, for throughput: written once, given to every engine, the right results beside it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engines.contract import Row, Workload
from benchmarks.engines.input import INPUT, make_folders, read_input, write_all


@dataclass(frozen=True)
class Bulk:
    """The files in the order in which they are given, and what has to come out."""

    files: Sequence[tuple[str, Path]]
    """Source and file."""
    records: int
    expected: Sequence[Row]

    def give(self, folder: Path, first: int, last: int) -> None:
        """Put the files from number ``first`` up to ``last`` into an engine's input: as links, so it takes no time."""
        for source, path in self.files[first:last]:
            os.link(path, folder / INPUT / source / path.name)


def bulk_of(workload: Workload, folder: Path, count: int) -> Bulk:
    """Make the input of a workload, or find it made: all engines of a table get the very same files."""
    place = folder / f"bulk-{workload.name}-{count}"
    if place not in _MADE:
        # Only the newest is remembered: millions of records take their room.
        _MADE.clear()
        _MADE[place] = _made(workload, place, count)
    return _MADE[place]


_MADE: dict[Path, Bulk] = {}


def _made(workload: Workload, place: Path, count: int) -> Bulk:
    make_folders(workload, place)
    records = write_all(workload, place, count)
    files = [
        (one.source, path) for one in workload.inputs for path in sorted((place / INPUT / one.source).glob("*.jsonl"))
    ]
    # Sources side by side: the first files of all of them come first.
    files.sort(key=lambda file: file[1].name)
    return Bulk(files, records, workload.expected(read_input(workload, place)))
