"""Two mistakes that Lockstep has made, to be made again: the matrix has to find each of them."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.connect.sinks import sqlite
from lockstep.runtime.state import checkpoint, snapshot


def _old_check_state(folder: Path, batch: int) -> None:
    """Looks for changes in the folder of a partition; a join keeps four stores below it, in folders of their own."""
    for partition in sorted((folder / "state").glob("[0-9]*/[0-9]*")):
        if partition.is_dir():
            _check_partition(folder, partition, version=batch + 1)


def _check_partition(folder: Path, partition: Path, version: int) -> None:
    base = max([0, *(number for number in _numbers(partition, r"(\d+)\.zip") if number <= version)])
    if base and not zipfile.is_zipfile(partition / f"{base}.zip"):
        raise checkpoint.damaged(folder, f"{partition.name}/{base}.zip is not a whole zip file")
    changes = set(_numbers(partition, r"(\d+)\.changelog"))
    missing = [number for number in range(base + 1, version + 1) if number not in changes]
    if missing:
        raise checkpoint.damaged(folder, f"state {partition.parent.name}/{partition.name} lacks version {missing[0]}")


def _numbers(folder: Path, pattern: str) -> list[int]:
    found = (re.fullmatch(pattern, path.name) for path in folder.iterdir())
    return [int(match.group(1)) for match in found if match]


def _old_upsert(table: str, names: list[str], key: tuple[str, ...]) -> str:
    """Of several rows of one key in an epoch, keeps the one whose text is the greatest."""
    columns = [*map(sqlite.quoted, names), sqlite.EPOCH_COLUMN]
    marks = ", ".join("?" for _ in columns)
    insert = f"INSERT INTO {sqlite.quoted(table)} AS held ({', '.join(columns)}) VALUES ({marks})"
    if not key:
        return insert
    others = [name for name in columns if name not in {sqlite.quoted(each) for each in key}]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    held = " || ',' || ".join(f"quote(held.{name})" for name in others)
    new = " || ',' || ".join(f"quote(excluded.{name})" for name in others)
    newer = f"held.{sqlite.EPOCH_COLUMN} < excluded.{sqlite.EPOCH_COLUMN} OR {held} < {new}"
    update = f"DO UPDATE SET {changes} WHERE {newer}"
    keys = ", ".join(map(sqlite.quoted, key))
    return f"{insert} ON CONFLICT ({keys}) {update} ON CONFLICT {sqlite._null_keys(key)} {update}"


@contextmanager
def _replaced(*places: tuple[object, str, Callable[..., object]]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    for module, name, value in places:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


PLANTS = {
    "old-check-state": lambda: _replaced(
        (checkpoint, "check_state", _old_check_state), (snapshot, "check_state", _old_check_state)
    ),
    "old-upsert": lambda: _replaced((sqlite, "_upsert", _old_upsert)),
}
"""By name; each is a context in which Lockstep does it the old way."""
