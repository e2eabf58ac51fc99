"""What a sink really holds of each epoch: its fences and its rows as they lie there, without asking its working side.

The working side answers for one epoch at a time, so it could never show an epoch that is there twice.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from lockstep.chaos.watching import SeenEpoch
from lockstep.connect.protocols import Publication
from lockstep.connect.reading import Reader
from lockstep.connect.remote.paths import AnyPath, location
from lockstep.connect.sinks.manifests import Layout, read_control_file
from lockstep.connect.sinks.sqlite import EPOCH_COLUMN, quoted
from lockstep.connect.specs import SqliteSink
from lockstep.errors import ConnectError
from lockstep.observe.promises import once, order
from lockstep.plan.steps import Sink

_FENCE = ("epoch", "digest", "rows", "by", "version")


@dataclass(frozen=True)
class SinkContents:
    """Everything that was found in one sink."""

    sink: str
    fences: tuple[Publication, ...]
    """All there are, in epoch order; an epoch that was published twice has two."""
    rows: Mapping[int, int]
    """Rows that can be read, of each epoch that has any or should have."""
    keyed: bool = False
    """Whether later epochs replace rows of earlier ones, which then have fewer than were published."""
    damage: tuple[str, ...] = ()
    """What could not be read, or is named twice."""

    @property
    def epochs(self) -> list[int]:
        """The epoch of each fence."""
        return [one.epoch for one in self.fences]

    @property
    def last(self) -> int:
        """The last epoch before the first gap, counted from epoch 0; -1 if there is none."""
        there, last = set(self.epochs), -1
        while last + 1 in there:
            last += 1
        return last


def sink_contents(sink: Sink, project: Path) -> SinkContents:
    """Look into a sink."""
    if isinstance(sink.spec, SqliteSink):
        return _in_database(sink.id, project / sink.spec.path, sink.spec)
    return _in_files(sink.id, location(str(sink.spec.to_json()["path"]), project))


def repeated(held: SinkContents) -> list[str]:
    """Epochs that a sink holds twice, or with other rows than were published."""
    found = [*once(held.epochs), *held.damage]
    said = {one.epoch: one.rows for one in held.fences}
    for epoch, count in sorted(held.rows.items()):
        if epoch not in said:
            found.append(f"once: {count} rows are of epoch {epoch}, which was never published")
        elif count > said[epoch] or (count < said[epoch] and not held.keyed):
            found.append(f"once: epoch {epoch} was published with {said[epoch]} rows and has {count}")
    return [f"{held.sink}: {one}" for one in found]


def gaps(held: SinkContents) -> list[str]:
    """Epochs that are missing between others."""
    return [f"{held.sink}: {one}" for one in order(sorted(held.epochs))]


def replaced(held: SinkContents, seen_epochs: Sequence[SeenEpoch]) -> list[str]:
    """Publications that were seen while the job ran, and are gone or are somebody else's at the end."""
    last = {one.epoch: one for one in held.fences}
    found = []
    for seen in seen_epochs:
        now = last.get(seen.epoch)
        if now is None:
            found.append(f"once: epoch {seen.epoch} was seen, published by {seen.by}, and is gone")
        elif (now.by or seen.by, now.digest, now.rows) != (seen.by, seen.digest, seen.rows):
            found.append(
                f"once: epoch {seen.epoch} was seen with {seen.rows} rows by {seen.by} (digest {seen.digest}), "
                f"and is now {now.rows} rows by {now.by} (digest {now.digest})"
            )
    return [f"{held.sink}: {one}" for one in found]


def _in_files(sink: str, folder: AnyPath) -> SinkContents:
    layout = Layout(folder)
    try:
        fences, twice = _manifests(layout)
    except (ConnectError, TypeError) as error:
        return SinkContents(sink, (), {}, damage=(f"a manifest cannot be read: {' '.join(str(error).split())}",))
    rows, damage = _readable(folder, sorted({one.epoch for one in fences}))
    return SinkContents(sink, tuple(fences), rows, damage=(*twice, *damage))


def _manifests(layout: Layout) -> tuple[list[Publication], list[str]]:
    """Every fence that lies in the folder, and data files that two epochs claim."""
    merged = [found for each in layout.ranges() if (found := layout.read_range(*each)) is not None]
    fences = [each.publication(epoch) for each in merged for epoch in range(each.first, each.last + 1)]
    # Compaction that was killed leaves single manifests beside their range; those are the same publication.
    known = {_compared(one) for one in fences}
    named: Counter[str] = Counter()
    for epoch in sorted(layout.singles()):
        data = read_control_file(layout.manifest_path(epoch)) or {}
        files = data.pop("files", [])
        fence = Publication(**data)
        if _compared(fence) not in known or fence.epoch != epoch:
            fences.append(fence)
            named.update(file["name"] for file in files)
    twice = [f"once: {count} epochs name the data file {name}" for name, count in named.items() if count > 1]
    return sorted(fences, key=lambda one: one.epoch), twice


def _compared(fence: Publication) -> tuple[object, ...]:
    """What stays of a publication when it is merged: of an epoch without rows, nobody notes who published it when."""
    return (fence.epoch, fence.digest, fence.version, fence if fence.rows else None)


def _readable(folder: AnyPath, epochs: Sequence[int]) -> tuple[dict[int, int], list[str]]:
    rows: dict[int, int] = {}
    damage: list[str] = []
    if not epochs:
        return rows, damage
    reader = Reader(folder)
    for epoch in epochs:
        try:
            rows[epoch] = reader.table(epoch).num_rows
        except (ConnectError, OSError, ValueError) as error:
            damage.append(f"epoch {epoch} cannot be read: {' '.join(str(error).split())}")
    return rows, damage


def _run(fence: Publication, first: int) -> list[Publication]:
    """The publications that one row of a database stands for."""
    empty = [Publication(epoch, fence.digest, 0, "", fence.version) for epoch in range(first, fence.epoch)]
    return [*empty, fence]


def _in_database(sink: str, path: Path, spec: SqliteSink) -> SinkContents:
    keyed = bool(spec.key)
    if not path.is_file():
        return SinkContents(sink, (), {}, keyed)
    columns = ", ".join(f'"{name}"' for name in _FENCE)
    columns += ', coalesce("first_epoch", "epoch")'
    fences_query = f'SELECT {columns} FROM _lockstep_epochs WHERE table_name = ? ORDER BY "epoch"'  # noqa: S608
    rows_query = f"SELECT {EPOCH_COLUMN}, count(*) FROM {quoted(spec.table)} GROUP BY 1"  # noqa: S608
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            found = connection.execute(fences_query, (spec.table.lower(),))
            fences = [one for *row, first in found for one in _run(Publication(*row), first)]
            counted = dict(connection.execute(rows_query))
    except sqlite3.Error as error:
        return SinkContents(sink, (), {}, keyed, (f"{path.name} cannot be read: {error}",))
    nothing = {one.epoch: 0 for one in fences}
    return SinkContents(sink, tuple(fences), {**nothing, **counted}, keyed)
