"""The layout of a files sink: which epochs are published, and which data files they name.

::

    <folder>/_lockstep/sink.json                        whose it is, and the schema
    <folder>/_lockstep/manifests/000000000042.json      epoch 42 is published, and this is its data
    <folder>/_lockstep/compacted/compacted-<a>-<b>.json epochs a to b, merged; wins over single manifests inside it
    <folder>/data/...                                   seen only if a manifest names it

A manifest appears as one atomic act (``link``), so there is nothing half-published to see.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lockstep.connect.disk import disk_trouble, inside, put_if_absent
from lockstep.connect.protocols import Publication
from lockstep.errors import ConnectError

FORMAT_VERSION = 1
EPOCH_COLUMN = "__epoch"
"""In compacted files: which epoch a row belongs to."""
_SINGLE = re.compile(r"(\d{12})\.json")
_COMPACTED = re.compile(r"compacted-(\d{12})-(\d{12})\.json")


@dataclass(frozen=True)
class DataFile:
    """A file that a manifest names. ``first`` and ``last`` are the epochs in it, of compacted ones only."""

    name: str
    rows: int
    bytes: int
    first: int | None = None
    last: int | None = None


@dataclass(frozen=True)
class Manifest:
    """One epoch as it was published; in a compacted range its rows are among others in ``files``."""

    publication: Publication
    files: tuple[DataFile, ...]
    compacted: bool = False


@dataclass(frozen=True)
class Compacted:
    """A range of epochs merged into common files, with every epoch's fence."""

    publications: tuple[Publication, ...]
    files: tuple[DataFile, ...]

    @property
    def first(self) -> int:
        """The oldest epoch in it."""
        return self.publications[0].epoch

    @property
    def last(self) -> int:
        """The newest epoch in it."""
        return self.publications[-1].epoch


@dataclass(frozen=True)
class Identity:
    """Whose sink it is: what ``sink.json`` says."""

    job: str
    sink: str
    format: str
    schema: pa.Schema


class Layout:
    """Paths and small files of one sink's folder. Keeps no state but the newest compacted range it has read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.control = folder / "_lockstep"
        self.manifests = self.control / "manifests"
        self.compacted = self.control / "compacted"
        self.sink_file = self.control / "sink.json"
        self._range: Compacted | None = None

    def identity(self) -> Identity | None:
        """Whose sink this is, None if nobody has made one here."""
        data = read_control_file(self.sink_file)
        if data is None:
            return None
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(data["arrow_schema"])))
        return Identity(data["job"], data["sink"], data["format"], schema)

    def claim(self, identity: Identity, holder: str) -> bool:
        """Write ``sink.json`` unless it is there; False if it was."""
        data = {
            "job": identity.job,
            "sink": identity.sink,
            "format": identity.format,
            "schema": [{"name": field.name, "type": str(field.type)} for field in identity.schema],
            "arrow_schema": base64.b64encode(identity.schema.serialize()).decode(),
        }
        return put_if_absent(self.sink_file, self.control / f"sink.json.{holder}.tmp", control_bytes(data))

    def manifest_path(self, epoch: int) -> Path:
        """Where the manifest of one epoch stands."""
        return self.manifests / f"{epoch:012}.json"

    def publish(self, manifest: Manifest, holder: str) -> bool:
        """Put the manifest unless its epoch has one; False if it has."""
        final = self.manifest_path(manifest.publication.epoch)
        data = {**asdict(manifest.publication), "files": _files_json(manifest.files)}
        return put_if_absent(final, self.manifests / f"{final.name}.{holder}.tmp", control_bytes(data))

    def publish_compacted(self, merged: Compacted, holder: str) -> bool:
        """Put the manifest of a compacted range unless it is there; False if it is."""
        final = self.compacted / f"compacted-{merged.first:012}-{merged.last:012}.json"
        publications = [asdict(publication) for publication in merged.publications]
        data = {"publications": publications, "files": _files_json(merged.files)}
        return put_if_absent(final, self.compacted / f"{final.name}.{holder}.tmp", control_bytes(data))

    def manifest(self, epoch: int) -> Manifest | None:
        """What is published of ``epoch``. A compacted range is the truth for every epoch inside it."""
        # First the single one: compaction publishes the range before it removes the single ones, so an epoch that is
        # missing here and published at all is found there.
        single = read_control_file(self.manifest_path(epoch))
        merged = self.range_of(epoch)
        if merged is not None:
            return _manifest_in(merged, epoch)
        return _manifest_from(single) if single is not None else None

    def range_of(self, epoch: int) -> Compacted | None:
        """The compacted range that ``epoch`` is in."""
        for first, last in self.ranges():
            if first <= epoch <= last:
                return self.read_range(first, last)
        return None

    def read_range(self, first: int, last: int) -> Compacted:
        """The manifest of one compacted range."""
        if self._range is None or (self._range.first, self._range.last) != (first, last):
            path = self.compacted / f"compacted-{first:012}-{last:012}.json"
            data = read_control_file(path)
            if data is None:
                raise damaged(path, "it was listed and is gone")
            publications = tuple(Publication(**each) for each in data["publications"])
            self._range = Compacted(publications, _files_from(data["files"]))
        return self._range

    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of every compacted range, in order. Ranges inside another are left out."""
        found = _numbers_in(self.compacted, _COMPACTED)
        ranges: list[tuple[int, int]] = []
        for first, last in sorted(found, key=lambda pair: (pair[0], -pair[1])):
            if not ranges or first > ranges[-1][1]:
                ranges.append((first, last))
        return ranges

    def singles(self) -> set[int]:
        """Epochs that have a manifest of their own."""
        return {numbers[0] for numbers in _numbers_in(self.manifests, _SINGLE)}

    def published(self) -> list[int]:
        """The published epochs, in order, up to the first gap. Lists folders: not for every epoch."""
        epochs = self.singles()  # before the ranges: see manifest()
        for first, last in self.ranges():
            epochs.update(range(first, last + 1))
        in_order: list[int] = []
        for epoch in sorted(epochs):
            if in_order and epoch != in_order[-1] + 1:
                break
            in_order.append(epoch)
        return in_order

    def newest_from(self, epoch: int) -> int:
        """The newest published epoch, looking forward from one that is known to be published."""
        while True:
            if self.manifest_path(epoch + 1).exists():
                epoch += 1
                continue
            ahead = [last for first, last in self.ranges() if first <= epoch + 1 <= last]
            if not ahead:
                return epoch
            epoch = ahead[0]

    def data_path(self, file: DataFile) -> Path:
        """Where a data file stands; a name that leads elsewhere is refused."""
        return inside(self.data, file.name)


def control_bytes(data: Mapping[str, Any]) -> bytes:
    """A small file of ours: JSON that begins with its format version."""
    return json.dumps({"format_version": FORMAT_VERSION, **data}).encode()


def read_control_file(path: Path) -> dict[str, Any] | None:
    """What :func:`control_bytes` wrote, None if the file is not there."""
    try:
        with disk_trouble(path):
            try:
                text = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
        data: dict[str, Any] = json.loads(text)
        version = data.pop("format_version")
    except (ValueError, KeyError, AttributeError) as error:
        raise damaged(path, str(error)) from error
    if version > FORMAT_VERSION:
        raise newer_version(str(path), version, FORMAT_VERSION)
    return data


def newer_version(place: str, version: int, known: int) -> ConnectError:
    """The error for something that a newer Lockstep wrote."""
    return ConnectError(
        "LS0502",
        f"{place} was written by a newer version of Lockstep",
        why=f"its format version is {version}, this version knows formats up to {known}.",
        hint="upgrade Lockstep here too.",
    )


def damaged(path: Path, reason: str) -> ConnectError:
    """The error for a control file that is not what we wrote."""
    return ConnectError(
        "LS0514",
        f"{path} is damaged",
        why=f"{reason}. Lockstep writes such a file once, whole, and never changes it.",
        hint="restore it from a backup; deleting it would make its epochs vanish or come again.",
    )


def _numbers_in(folder: Path, pattern: re.Pattern[str]) -> list[tuple[int, ...]]:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
    matches = (pattern.fullmatch(name) for name in names)
    return [tuple(int(number) for number in match.groups()) for match in matches if match]


def _manifest_in(merged: Compacted, epoch: int) -> Manifest:
    files = tuple(
        file
        for file in merged.files
        if file.first is not None and file.last is not None and file.first <= epoch <= file.last
    )
    return Manifest(merged.publications[epoch - merged.first], files, compacted=True)


def _manifest_from(data: dict[str, Any]) -> Manifest:
    files = _files_from(data.pop("files"))
    return Manifest(Publication(**data), files)


def _files_json(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(file).items() if value is not None} for file in files]


def _files_from(data: list[dict[str, Any]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**file) for file in data)
