"""The layout of a files sink: which epochs are published, and which data files they name.

::

    <folder>/_lockstep/sink.json                        whose it is, and the schema
    <folder>/_lockstep/manifests/000000000042.json      epoch 42 is published, and this is its data
    <folder>/_lockstep/compacted/<m>/compacted-<a>-<b>.json  epochs a to b, merged; wins over single manifests inside it
    <folder>/data/...                                   seen only if a manifest names it

A manifest appears as one atomic act (``link``; on HDFS a rename, in S3 a put with a condition), so there is nothing
half-published to see. Only the newest epochs have one of their own. Merged ones are in folders of a million epochs each
(``m`` is the first), so that whoever looks for the newest, or for one, lists little; in a range, epochs without rows
are a few numbers, however many there are.
"""

from __future__ import annotations

import base64
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import pyarrow as pa

from lockstep.connect.disk import disk_trouble, entries, inside, make_folders, put_if_absent
from lockstep.connect.protocols import Publication
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import ConnectError

FORMAT_VERSION = 2
"""1: all ranges in one folder, with a fence for each epoch. They are read as they are, and never written any more."""
SHARD_EPOCHS = 1_000_000
LOOKS_MAX = 10
"""A file can vanish under a reader only by compaction, every few hundred epochs: a second look is enough."""
EPOCH_COLUMN = "__epoch"
"""In compacted files: which epoch a row belongs to."""
_SINGLE = re.compile(r"(\d{12})\.json")
_SHARD = re.compile(r"(\d{12})")
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
class EmptyRun:
    """Epochs one after the other that were published without rows; who did it when is not kept."""

    first: int
    last: int
    digest: str
    version: str


@dataclass(frozen=True)
class Compacted:
    """A range of epochs merged into common files: the fences of those with rows, and runs of those without."""

    publications: tuple[Publication, ...]
    empty: tuple[EmptyRun, ...]
    files: tuple[DataFile, ...]

    @property
    def first(self) -> int:
        """The oldest epoch in it."""
        return min(one.epoch if isinstance(one, Publication) else one.first for one in self._at(0))

    @property
    def last(self) -> int:
        """The newest epoch in it."""
        return max(one.epoch if isinstance(one, Publication) else one.last for one in self._at(-1))

    def _at(self, end: int) -> list[Publication | EmptyRun]:
        return [each[end] for each in (self.publications, self.empty) if each]

    def publication(self, epoch: int) -> Publication:
        """The fence of one epoch in it."""
        at = bisect_left(self.publications, epoch, key=lambda one: one.epoch)
        if at < len(self.publications) and self.publications[at].epoch == epoch:
            return self.publications[at]
        run = self.empty[bisect_right(self.empty, epoch, key=lambda one: one.first) - 1]
        return Publication(epoch, run.digest, 0, "", run.version)


def merged_range(publications: Iterable[Publication], files: Sequence[DataFile], before: Compacted | None) -> Compacted:
    """A range of these epochs, which follow each other and ``before``."""
    with_rows = list(before.publications) if before is not None else []
    runs = list(before.empty) if before is not None else []
    for one in publications:
        if one.rows:
            with_rows.append(one)
        elif runs and (runs[-1].last, runs[-1].digest, runs[-1].version) == (one.epoch - 1, one.digest, one.version):
            runs[-1] = replace(runs[-1], last=one.epoch)
        else:
            runs.append(EmptyRun(one.epoch, one.epoch, one.digest, one.version))
    return Compacted(tuple(with_rows), tuple(runs), tuple(files))


@dataclass(frozen=True)
class Identity:
    """Whose sink it is: what ``sink.json`` says."""

    job: str
    sink: str
    format: str
    schema: pa.Schema


class Layout:
    """Paths and small files of one sink's folder. Keeps no state but the compacted range that it has read last."""

    def __init__(self, folder: AnyPath) -> None:
        self.folder = folder
        self.data: AnyPath = folder / "data"
        self.control: AnyPath = folder / "_lockstep"
        self.manifests: AnyPath = self.control / "manifests"
        self.compacted: AnyPath = self.control / "compacted"
        self.sink_file: AnyPath = self.control / "sink.json"
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

    def manifest_path(self, epoch: int) -> AnyPath:
        """Where the manifest of one epoch stands."""
        return self.manifests / f"{epoch:012}.json"

    def publish(self, manifest: Manifest, holder: str) -> bool:
        """Put the manifest unless its epoch has one; False if it has."""
        final = self.manifest_path(manifest.publication.epoch)
        data = {**asdict(manifest.publication), "files": _files_json(manifest.files)}
        return put_if_absent(final, self.manifests / f"{final.name}.{holder}.tmp", control_bytes(data))

    def publish_compacted(self, merged: Compacted, holder: str) -> bool:
        """Put the manifest of a compacted range unless it is there; False if it is."""
        final = self.range_path(merged.first, merged.last)
        make_folders(final.parent)
        publications = [asdict(publication) for publication in merged.publications]
        empty = [astuple(run) for run in merged.empty]
        data = {"publications": publications, "empty": empty, "files": _files_json(merged.files)}
        return put_if_absent(final, final.with_name(f"{final.name}.{holder}.tmp"), control_bytes(data))

    def manifest(self, epoch: int) -> Manifest | None:
        """What is published of ``epoch``. A compacted range is the truth for every epoch inside it."""
        if self._range is not None and self._range.first <= epoch <= self._range.last:
            return _manifest_in(self._range, epoch)
        # First the single one: compaction publishes the range before it removes the single ones, so an epoch that is
        # missing here and published at all is found there.
        single = read_control_file(self.manifest_path(epoch))
        merged = self.range_of(epoch)
        if merged is not None:
            return _manifest_in(merged, epoch)
        return _manifest_from(single) if single is not None else None

    def range_of(self, epoch: int) -> Compacted | None:
        """The compacted range that ``epoch`` is in."""
        for _ in range(LOOKS_MAX):
            span = next((pair for pair in self.ranges_near(epoch) if pair[0] <= epoch <= pair[1]), None)
            if span is None:
                return None
            if (found := self.read_range(*span)) is not None:
                return found
        raise damaged(self.compacted, f"the range of epoch {epoch} was listed and is gone")

    def read_range(self, first: int, last: int) -> Compacted | None:
        """The manifest of one compacted range, None if it has become part of a longer one."""
        if self._range is None or (self._range.first, self._range.last) != (first, last):
            data = read_control_file(self.range_path(first, last)) or read_control_file(self._old_path(first, last))
            if data is None:
                return None
            publications, files = [Publication(**each) for each in data["publications"]], _files_from(data["files"])
            if "empty" in data:
                runs = tuple(EmptyRun(*each) for each in data["empty"])
                self._range = Compacted(tuple(publications), runs, files)
            else:
                self._range = merged_range(publications, files, None)
        return self._range

    def forget(self) -> None:
        """Read the range anew at the next look: a file that it names is gone."""
        self._range = None

    def range_path(self, first: int, last: int) -> AnyPath:
        """Where the manifest of a range stands. No range goes beyond its folder's million."""
        return self.compacted / shard_name(first) / f"compacted-{first:012}-{last:012}.json"

    def ranges(self) -> list[tuple[int, int]]:
        """(first, last) of every compacted range, in order. Ranges inside another are left out. Lists everything."""
        shards = [pair for shard in self.shards() for pair in self._spans(self.compacted / shard_name(shard))]
        return _outermost([*shards, *self._spans(self.compacted)])

    def ranges_near(self, epoch: int) -> list[tuple[int, int]]:
        """The same for the million that ``epoch`` is in, and for what the older format kept in one folder."""
        return _outermost([*self._spans(self.compacted / shard_name(epoch)), *self._spans(self.compacted)])

    def newest_range(self) -> tuple[int, int] | None:
        """(first, last) of the newest compacted range."""
        shards = self.shards()
        found = self.ranges_near(shards[-1] if shards else 0)
        return found[-1] if found else None

    def oldest_range(self) -> tuple[int, int] | None:
        """(first, last) of the oldest compacted range."""
        shards = self.shards()
        found = self.ranges_near(shards[0] if shards else 0)
        return found[0] if found else None

    def shards(self) -> list[int]:
        """The first epoch of each folder of ranges, in order."""
        return sorted(numbers[0] for numbers in _numbers_in(self.compacted, _SHARD))

    def _spans(self, folder: AnyPath) -> list[tuple[int, int]]:
        return [(first, last) for first, last in _numbers_in(folder, _COMPACTED)]

    def _old_path(self, first: int, last: int) -> AnyPath:
        return self.compacted / f"compacted-{first:012}-{last:012}.json"

    def singles(self) -> set[int]:
        """Epochs that have a manifest of their own."""
        return {numbers[0] for numbers in _numbers_in(self.manifests, _SINGLE)}

    def published(self) -> range:
        """The published epochs, up to the first gap after the merged ones. Lists folders: not for every epoch."""
        singles = sorted(self.singles())  # before the ranges: see manifest()
        oldest, newest = self.oldest_range(), self.newest_range()
        if oldest is None or newest is None:
            first, end = (singles[0], singles[0]) if singles else (0, 0)
        else:
            first, end = oldest[0], newest[1] + 1
        for epoch in singles[bisect_left(singles, end) :]:
            if epoch != end:
                break
            end += 1
        return range(first, end)

    def newest_from(self, epoch: int) -> int:
        """The newest published epoch, looking forward from one that is known to be published."""
        while True:
            if self.manifest_path(epoch + 1).exists():
                epoch += 1
                continue
            newest = self.newest_range()
            if newest is None or newest[1] <= epoch:
                return epoch
            epoch = newest[1]

    def data_path(self, file: DataFile) -> AnyPath:
        """Where a data file stands; a name that leads elsewhere is refused."""
        return inside(self.data, file.name)


def shard_name(epoch: int) -> str:
    """The folder of the million that an epoch is in.

    >>> shard_name(31_536_000)
    '000031000000'
    """
    return f"{epoch // SHARD_EPOCHS * SHARD_EPOCHS:012}"


def control_bytes(data: Mapping[str, Any]) -> bytes:
    """A small file of ours: JSON that begins with its format version."""
    return json.dumps({"format_version": FORMAT_VERSION, **data}).encode()


def read_control_file(path: AnyPath) -> dict[str, Any] | None:
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


def damaged(path: AnyPath, reason: str) -> ConnectError:
    """The error for a control file that is not what we wrote."""
    return ConnectError(
        "LS0514",
        f"{path} is damaged",
        why=f"{reason}. Lockstep writes such a file once, whole, and never changes it.",
        hint="restore it from a backup; deleting it would make its epochs vanish or come again.",
    )


def _numbers_in(folder: AnyPath, pattern: re.Pattern[str]) -> list[tuple[int, ...]]:
    matches = (pattern.fullmatch(entry.name) for entry in entries(folder))
    return [tuple(int(number) for number in match.groups()) for match in matches if match]


def _outermost(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(spans, key=lambda pair: (pair[0], -pair[1])):
        if not found or first > found[-1][1]:
            found.append((first, last))
    return found


def _manifest_in(merged: Compacted, epoch: int) -> Manifest:
    files = tuple(
        file
        for file in merged.files
        if file.first is not None and file.last is not None and file.first <= epoch <= file.last
    )
    publication = merged.publication(epoch)
    return Manifest(publication, files if publication.rows else (), compacted=True)


def _manifest_from(data: dict[str, Any]) -> Manifest:
    files = _files_from(data.pop("files"))
    return Manifest(Publication(**data), files)


def _files_json(files: Sequence[DataFile]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(file).items() if value is not None} for file in files]


def _files_from(data: list[dict[str, Any]]) -> tuple[DataFile, ...]:
    return tuple(DataFile(**file) for file in data)
