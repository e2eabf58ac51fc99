"""The input of `python -m benchmarks api`: JSON lines, one file for each epoch."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

SCHEMA = "key string, n bigint, at timestamp"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
EPOCH_S = 20
"""How much event time the records of an epoch span: two windows of ten seconds."""
_OLD_S = 1_600_000_000
"""The files' times: long ago, so that they count as finished, and one second apart, so that their order is known."""


@dataclass(frozen=True)
class Size:
    """How much is measured: the epochs of the warm-up come first."""

    records: int
    warm_up: int
    epochs: int

    @property
    def files(self) -> int:
        """One for each epoch."""
        return self.warm_up + self.epochs


def write_events(folder: Path, size: Size, keys: int, seed: int) -> list[Path]:
    """Write the files and return them in order."""
    folder.mkdir(parents=True)
    chance = random.Random(seed)  # noqa: S311  (repeatable, not secret)
    return [_write(folder / f"{number:03}.jsonl", number, size.records, keys, chance) for number in range(size.files)]


def _write(path: Path, number: int, records: int, keys: int, chance: random.Random) -> Path:
    # In steps of a thousandth of the epoch: formatting a time costs more than all the rest of a line.
    times = [
        (BEGIN + timedelta(seconds=EPOCH_S * (number + step / 1000))).isoformat(timespec="milliseconds")
        for step in range(1000)
    ]
    numbers = [chance.randrange(keys) for _ in range(records)]
    lines = [
        f'{{"key": "k{key}", "n": {index % 1000}, "at": "{times[index * 1000 // records]}"}}\n'
        for index, key in enumerate(numbers)
    ]
    path.write_text("".join(lines), encoding="utf-8")
    os.utime(path, (_OLD_S + number, _OLD_S + number))
    return path


def write_rules(folder: Path, count: int) -> list[Path]:
    """A control stream: so many rules, all in the first epoch."""
    folder.mkdir(parents=True)
    path = folder / "000.jsonl"
    lines = [json.dumps({"rule": f"r{number}", "least": 990 + number}) for number in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.utime(path, (_OLD_S, _OLD_S))
    return [path]


def hand_over(path: Path, folder: Path) -> None:
    """Let a watched folder have a file, whole and old."""
    folder.mkdir(parents=True, exist_ok=True)
    os.link(path, folder / path.name)
