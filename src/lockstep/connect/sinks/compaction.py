"""Merging the many small files of many small epochs into few.

The steps, any of which may be the last one before a crash:

1. write the merged files (nobody sees them: no manifest names them);
2. put the manifest of the range with ``link``: from here on it is the truth for its epochs;
3. remove the single manifests in the range, then the data files of its epochs.

A crash after 1 leaves files that no manifest names, a crash after 2 or within 3 leaves files that nobody looks at any
more. Both are found and removed at the beginning of the next compaction.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from lockstep.connect.disk import disk_trouble, remove_files, sync_folder
from lockstep.connect.protocols import StagedFile, StageFormat
from lockstep.connect.reading import compacted_schema, epoch_batches
from lockstep.connect.sinks.manifests import Compacted, DataFile, Identity, Layout, Manifest
from lockstep.connect.sinks.staging import FileStager, parse_staged
from lockstep.errors import ConnectError

KEEP_LAST = 100
"""Epochs left as they are: readers and replicas that compare rows are mostly there."""
RANGE_EPOCHS_MAX = 1000
"""Bounds one range's manifest (about 250 bytes per epoch), which is read whole."""
FILE_ROWS = 100_000
_MERGED = re.compile(r"compacted-(\d{12})-(\d{12})-[0-9a-f]+-\d+\.(?:parquet|jsonl)")


def compact(folder: str | Path, keep_last: int = KEEP_LAST) -> int:
    """Merge all epochs but the newest ``keep_last``; returns how many. Safe beside publishers and readers."""
    layout = Layout(Path(folder))
    identity = layout.identity()
    if identity is None:
        raise ConnectError(
            "LS0513", f"nothing was ever published in {folder}", why="it is not the folder of a files sink."
        )
    merged = 0
    with disk_trouble(layout.folder), _alone(layout) as got_it:
        if not got_it:
            return 0
        remove_leftovers(layout)
        for epochs in _ranges_to_merge(layout, keep_last):
            _merge(layout, identity, epochs)
            merged += len(epochs)
    return merged


def remove_leftovers(layout: Layout) -> int:
    """Remove what an interrupted compaction, or a late publisher of a compacted epoch, left behind."""
    ranges = layout.ranges()
    singles = [layout.manifest_path(epoch) for epoch in layout.singles() if _is_in(epoch, ranges)]
    removed = remove_files(singles + list(layout.compacted.glob("*.tmp")))
    sync_folder(layout.manifests)
    known = set(ranges)
    leftovers = [path for path in layout.data.iterdir() if _is_leftover(path.name, ranges, known)]
    return removed + remove_files(leftovers)


def _is_leftover(name: str, ranges: Sequence[tuple[int, int]], known: set[tuple[int, int]]) -> bool:
    """Whether a data file was left by a compaction that did not get to its manifest, or belongs to a merged epoch.

    The range in a merged file's name is enough: compactions come one after the other and each begins with this.
    """
    merged = _MERGED.fullmatch(name)
    if merged is not None:
        return (int(merged.group(1)), int(merged.group(2))) not in known
    staged = parse_staged(name)
    return staged is not None and _is_in(staged[0], ranges)


def _ranges_to_merge(layout: Layout, keep_last: int) -> list[Sequence[int]]:
    published = layout.published()
    ranges = layout.ranges()
    merged_to = ranges[-1][1] if ranges else -1
    waiting = [epoch for epoch in published[: len(published) - max(1, keep_last)] if epoch > merged_to]
    pieces = [waiting[at : at + RANGE_EPOCHS_MAX] for at in range(0, len(waiting), RANGE_EPOCHS_MAX)]
    return [piece for piece in pieces if len(piece) > 1]


def _merge(layout: Layout, identity: Identity, epochs: Sequence[int]) -> None:
    token = secrets.token_hex(4)
    manifests = [_single(layout, epoch) for epoch in epochs]
    files = _write_merged(layout, identity, manifests, token)
    sync_folder(layout.data)
    merged = Compacted(tuple(manifest.publication for manifest in manifests), tuple(files))
    layout.publish_compacted(merged, token)
    remove_files([layout.manifest_path(epoch) for epoch in epochs])
    sync_folder(layout.manifests)
    remove_files([layout.data_path(file) for manifest in manifests for file in manifest.files])


def _single(layout: Layout, epoch: int) -> Manifest:
    manifest = layout.manifest(epoch)
    assert manifest is not None, f"epoch {epoch} was listed as published"
    return manifest


@dataclass
class _Open:
    """The merged file that is being written."""

    stager: FileStager
    first: int
    rows: int = 0


def _write_merged(layout: Layout, identity: Identity, manifests: Sequence[Manifest], token: str) -> list[DataFile]:
    """One file per about ``FILE_ROWS`` rows, in epoch order, each row with its epoch."""
    schema = compacted_schema(identity.schema)
    first, last = manifests[0].publication.epoch, manifests[-1].publication.epoch
    stem = f"compacted-{first:012}-{last:012}-{token}"
    format: StageFormat = "parquet" if identity.format == "parquet" else "jsonl"
    files: list[DataFile] = []
    current: _Open | None = None
    for manifest in manifests:
        epoch = manifest.publication.epoch
        for batch in epoch_batches(layout, identity, manifest):
            if current is None:
                current = _Open(FileStager(layout.data, f"{stem}-{len(files)}", format, schema), epoch)
            current.stager.write(batch.append_column(schema.names[-1], pa.array([epoch] * batch.num_rows, pa.int64())))
            current.rows += batch.num_rows
            if current.rows >= FILE_ROWS:
                files += _finished(current, epoch)
                current = None
    return files + (_finished(current, last) if current is not None else [])


def _finished(current: _Open, last: int) -> list[DataFile]:
    staged: StagedFile | None = current.stager.finish()
    if staged is None:
        return []
    return [DataFile(Path(staged.path).name, staged.rows, staged.bytes, current.first, last)]


def _is_in(epoch: int, ranges: Sequence[tuple[int, int]]) -> bool:
    at = bisect_right(ranges, epoch, key=lambda pair: pair[0]) - 1
    return at >= 0 and epoch <= ranges[at][1]


@contextmanager
def _alone(layout: Layout) -> Iterator[bool]:
    """Whether this is the only compaction under way. The lock goes with its process, however that ends."""
    handle = os.open(layout.control / "compaction.lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        yield _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
