"""Live readers: what any consumer of an engine's output would see, as soon as it could."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.engines.contract import Row
from lockstep.connect.reading import Reader as SinkReader
from lockstep.errors import ConnectError


class WholeFiles:
    """Files (or folders of files) that appear whole, renamed into place; each is read once."""

    def __init__(self, folder: Path, row: Callable[[bytes], Row | None] = json.loads) -> None:
        self._folder = str(folder)
        self._row = row
        self._read: set[str] = set()

    def poll(self) -> list[Row]:
        """The rows of files that are new, older files first."""
        rows: list[Row] = []
        for path in sorted((path for path in _files(self._folder) if path not in self._read), key=_age):
            self._read.add(path)
            found = (self._row(line) for line in Path(path).read_bytes().splitlines())
            rows += [row for row in found if row is not None]
        return rows


def _age(path: str) -> tuple[int, list[tuple[int, str]]]:
    """When a file was written, then its name, in which numbers count as numbers: part-9 before part-10."""
    parts = [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path)]
    return Path(path).stat().st_mtime_ns, parts


class GrowingFiles:
    """Files that lines are appended to; a line is there when its end is."""

    def __init__(self, folder: Path, row: Callable[[bytes], Row | None] = json.loads) -> None:
        self._folder = str(folder)
        self._row = row
        self._read_to: dict[str, int] = {}

    def poll(self) -> list[Row]:
        """The rows of lines that are new and whole; after a file was cut back, those appended since, known or not."""
        rows: list[Row] = []
        for path in sorted(_files(self._folder)):
            size, known = Path(path).stat().st_size, self._read_to.get(path, 0)
            if size > known:
                found = (self._row(line) for line in self._new_lines(path, known))
                rows += [row for row in found if row is not None]
            else:
                self._read_to[path] = size
        return rows

    def _new_lines(self, path: str, known: int) -> list[bytes]:
        with Path(path).open("rb") as file:
            file.seek(known)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read_to[path] = known + len(whole) + len(newline)
        return whole.split(b"\n") if newline else []


class PublishedEpochs:
    """The epochs of a files sink of Lockstep, one after the other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._reader: SinkReader | None = None
        self._next: int | None = None

    def poll(self) -> list[Row]:
        """The rows of epochs that are new."""
        reader = self._opened()
        if reader is None:
            return []
        if self._next is None:
            epochs = reader.epochs()
            self._next = epochs[0] if epochs else None
        rows: list[Row] = []
        while self._next is not None and (publication := reader.publication(self._next)) is not None:
            # Most epochs of a window have no rows: their manifests say so without a file to read.
            if publication.rows:
                rows += reader.table(self._next).to_pylist()
            self._next += 1
        return rows

    def _opened(self) -> SinkReader | None:
        if self._reader is None:
            try:
                self._reader = SinkReader(self._folder)
            except ConnectError:
                # The sink makes its folder when its job first runs.
                return None
        return self._reader


def _files(folder: str) -> list[str]:
    """All files below a folder that are nobody's work under way."""
    found: list[str] = []
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return found
    for entry in entries:
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            found += _files(entry.path)
        else:
            found.append(entry.path)
    return found
