"""Merging the many small files of many small epochs into few.

Old epochs become *ranges*: common files for their rows, one manifest for all of them. The newest range grows until it
holds a thousand epochs with rows; epochs without rows only lengthen it. The steps, any of which may be the last one
before a crash:

1. write the merged files (nobody sees them: no manifest names them);
2. put the manifest of the range, created and never replaced: from here on it is the truth for its epochs;
3. remove the single manifests in the range, the range that it continues, and the data files of both.

A crash after 1 leaves files that no manifest names, a crash after 2 or within 3 leaves files that nobody looks at any
more. Both belong to the newest range or to the one after it, and the next process that compacts begins there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.connect.disk import disk_trouble, entries, make_folders, remove_files, sync_folder
from lockstep.connect.protocols import StagedFile, StageFormat
from lockstep.connect.reading import compacted_schema, epoch_batches
from lockstep.connect.remote.paths import AnyPath, location
from lockstep.connect.sinks.compaction_turn import Turn, TurnLost, turn
from lockstep.connect.sinks.manifests import (
    EPOCH_COLUMN,
    SHARD_EPOCHS,
    Compacted,
    DataFile,
    Identity,
    Layout,
    Manifest,
    merged_range,
    shard_name,
)
from lockstep.connect.sinks.staging import FileStager, parse_staged, read_batches
from lockstep.errors import ConnectError

KEEP_LAST = 100
"""Epochs left as they are: readers and replicas that compare rows are mostly there."""
RANGE_EPOCHS_MAX = 1000
"""Epochs with rows in a range. Bounds its manifest (about 250 bytes for each), which is read whole."""
STEP_EPOCHS_MAX = 1000
"""Epochs merged at a time."""
FILE_ROWS = 100_000
_MERGED = re.compile(r"compacted-(\d{12})-(\d{12})-[0-9a-f]+-\d+(?:-\d+)?\.(?:parquet|jsonl)")


def compact(folder: str | AnyPath, keep_last: int = KEEP_LAST, at_least: int = 2, *, tidy: bool = True) -> int:
    """Merge all epochs but the newest ``keep_last``; returns how many. Safe beside publishers and readers.

    Fewer than ``at_least`` are not worth it. ``tidy``: first remove what an interrupted compaction left.
    """
    layout = Layout(location(folder) if isinstance(folder, str) else folder)
    identity = layout.identity()
    if identity is None:
        raise ConnectError(
            "LS0513", f"nothing was ever published in {folder}", why="it is not the folder of a files sink."
        )
    if not tidy and len(_waiting(layout, keep_last)) < at_least:
        return 0  # without a turn: it is asked every few seconds
    merged = 0
    with suppress(TurnLost), disk_trouble(layout.folder), turn(layout.control) as mine:
        if mine is None:
            return 0
        if tidy:
            remove_leftovers(layout, mine)
        waiting = _waiting(layout, keep_last)
        if len(waiting) < at_least:
            return 0
        for epochs in _steps(waiting):
            _merge(layout, identity, epochs, mine)
            merged += len(epochs)
    return merged


def remove_leftovers(layout: Layout, mine: Turn) -> int:
    """Remove what an interrupted compaction, or a late publisher of a compacted epoch, left behind."""
    newest = layout.newest_range()
    first, last = newest if newest is not None else (0, -1)
    singles = [layout.manifest_path(epoch) for epoch in layout.singles() if epoch <= last]
    shards = {shard_name(first), shard_name(last + 1)}
    inside = [path for shard in shards for path in _shadowed(layout.compacted / shard, first, last)]
    mine.check()
    removed = remove_files([*singles, *inside])
    sync_folder(layout.manifests)
    staged = [path for path in entries(layout.data) if _is_merged(path.name, last)]
    merged = layout.read_range(first, last) if newest is not None else None
    named = {layout.data_path(file) for file in merged.files} if merged is not None else set()
    written = [path for shard in shards for path in _merged_from(layout.data / shard, first)]
    mine.check()
    return removed + remove_files([*staged, *(path for path in written if path not in named)])


def _shadowed(folder: AnyPath, first: int, last: int) -> list[AnyPath]:
    """Manifests of ranges that became part of the newest one, and those that nobody finished writing."""
    own, older = f"compacted-{first:012}-{last:012}.json", f"compacted-{first:012}-*.json"
    found = [path for path in entries(folder) if path.name != own]
    return [path for path in found if path.name.endswith(".tmp") or fnmatchcase(path.name, older)]


def _is_merged(name: str, last: int) -> bool:
    staged = parse_staged(name)
    return staged is not None and staged[0] <= last


def _merged_from(folder: AnyPath, first: int) -> list[AnyPath]:
    """Merged files of ranges that begin at ``first`` or later: compaction goes forward, so older ones are whole."""
    found = [(path, _MERGED.fullmatch(path.name)) for path in entries(folder)]
    return [path for path, match in found if match is not None and int(match.group(1)) >= first]


def _waiting(layout: Layout, keep_last: int) -> range:
    """The epochs that are old enough and have manifests of their own."""
    published = layout.published()
    newest = layout.newest_range()
    first = newest[1] + 1 if newest is not None else published.start
    return range(first, max(first, published.stop - max(1, keep_last)))


def _steps(waiting: range) -> Iterator[range]:
    """Pieces of bounded size, none of which goes beyond a folder's million."""
    first = waiting.start
    while first < waiting.stop:
        stop = min(waiting.stop, first + STEP_EPOCHS_MAX, (first // SHARD_EPOCHS + 1) * SHARD_EPOCHS)
        yield range(first, stop)
        first = stop


def _merge(layout: Layout, identity: Identity, epochs: range, mine: Turn) -> None:
    manifests = [_single(layout, epoch) for epoch in epochs]
    while manifests:
        before = _continued(layout, epochs.start)
        room = RANGE_EPOCHS_MAX - (len(before.publications) if before is not None else 0)
        piece = _taken(manifests, room)
        _merge_into(layout, identity, before, piece, mine)
        manifests = manifests[len(piece) :]
        epochs = epochs[len(piece) :]


def _taken(manifests: Sequence[Manifest], room: int) -> Sequence[Manifest]:
    """The first of them, with at most so many that have rows."""
    for count, manifest in enumerate(manifests):
        room -= manifest.publication.rows > 0
        if room < 0:
            return manifests[:count]
    return manifests


def _continued(layout: Layout, epoch: int) -> Compacted | None:
    """The range that ``epoch`` is to become part of; None if it begins a new one."""
    newest = layout.newest_range()
    if newest is None or newest[1] != epoch - 1 or shard_name(newest[0]) != shard_name(epoch):
        return None
    if not layout.range_path(*newest).exists():
        return None  # of the older format, whose folder it stays in
    before = layout.read_range(*newest)
    return before if before is not None and len(before.publications) < RANGE_EPOCHS_MAX else None


def _merge_into(
    layout: Layout, identity: Identity, before: Compacted | None, manifests: Sequence[Manifest], mine: Turn
) -> None:
    """Publish a range of ``before`` and these epochs; its last file is written anew if there is room in it."""
    first, last = manifests[0].publication.epoch, manifests[-1].publication.epoch
    first = before.first if before is not None else first
    old = list(before.files) if before is not None else []
    again = [old.pop()] if old and old[-1].rows < FILE_ROWS and any(one.files for one in manifests) else []
    token = secrets.token_hex(4)
    writer = _Writer(layout, identity, f"compacted-{first:012}-{last:012}-{token}", shard_name(first))
    fresh = writer.written(again, manifests)
    merged = merged_range((manifest.publication for manifest in manifests), [*old, *fresh], before)
    mine.check()
    if not layout.publish_compacted(merged, token):
        remove_files([layout.data_path(file) for file in fresh])
        raise TurnLost(f"epochs {first} to {last} were merged by another one")
    mine.check()
    remove_files([layout.manifest_path(manifest.publication.epoch) for manifest in manifests])
    sync_folder(layout.manifests)
    if before is not None:
        remove_files([layout.range_path(before.first, before.last)])
    remove_files([layout.data_path(file) for file in [*again, *(each for one in manifests for each in one.files)]])


def _single(layout: Layout, epoch: int) -> Manifest:
    manifest = layout.manifest(epoch)
    assert manifest is not None, f"epoch {epoch} was listed as published"
    return manifest


@dataclass
class _Open:
    """The merged file that is being written."""

    stager: FileStager
    first: int
    last: int
    rows: int = 0


class _Writer:
    """Writes merged files: about ``FILE_ROWS`` rows each, in epoch order, each row with its epoch."""

    def __init__(self, layout: Layout, identity: Identity, stem: str, shard: str) -> None:
        self._layout = layout
        self._identity = identity
        self._schema = compacted_schema(identity.schema)
        self._stem = stem
        self._shard = shard
        self._files: list[DataFile] = []
        self._open: _Open | None = None

    def written(self, again: Sequence[DataFile], manifests: Sequence[Manifest]) -> list[DataFile]:
        """The rows of older merged files and of these epochs, on disk; if that fails, nothing stays of them."""
        folder = self._layout.data / self._shard
        make_folders(folder)
        try:
            for batch in self._batches(again, manifests):
                self._write(batch)
            self._close()
            sync_folder(folder)
        except BaseException:
            if self._open is not None:
                self._open.stager.abandon()
            remove_files([self._layout.data_path(file) for file in self._files])
            raise
        return self._files

    def _batches(self, again: Sequence[DataFile], manifests: Sequence[Manifest]) -> Iterator[pa.RecordBatch]:
        for file in again:
            yield from read_batches(self._layout.data_path(file), self._identity.format, self._schema)
        for manifest in manifests:
            epoch = manifest.publication.epoch
            for batch in epoch_batches(self._layout, self._identity, manifest):
                yield batch.append_column(EPOCH_COLUMN, pa.array([epoch] * batch.num_rows, pa.int64()))

    def _write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows == 0:
            return
        first, last = (pc.min_max(batch.column(EPOCH_COLUMN))[end].as_py() for end in ("min", "max"))
        if self._open is not None and self._open.rows >= FILE_ROWS:
            self._close()
        if self._open is None:
            format: StageFormat = "parquet" if self._identity.format == "parquet" else "jsonl"
            name = f"{self._stem}-{len(self._files)}"
            stager = FileStager(self._layout.data / self._shard, name, format, self._schema)
            self._open = _Open(stager, first, last)
        self._open.stager.write(batch)
        self._open.rows += batch.num_rows
        self._open.last = last

    def _close(self) -> None:
        if self._open is None:
            return
        staged: StagedFile | None = self._open.stager.finish()
        assert staged is not None, "a merged file is begun with its first row"
        name = f"{self._shard}/{PurePosixPath(staged.path).name}"
        self._files.append(DataFile(name, staged.rows, staged.bytes, self._open.first, self._open.last))
        self._open = None
