"""Reading a folder that is watched: files are read once, in an order that all replicas agree on.

The position is an index into one list of chunks, which grows in the ledger: whoever seals an epoch seals with it the
chunks that it reads, each with path, size, time and hash. So what an epoch holds is fixed before anyone reads it, and
a file that changed afterwards is recognised. Nothing is ever moved or deleted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from lockstep.connect.disk import disk_trouble, inside
from lockstep.connect.formats import BadRecord, CorruptContent, SetAside, csv_table, json_lines_table, parquet_table
from lockstep.connect.lazy_store import LazyStore
from lockstep.connect.letters import letter_writer
from lockstep.connect.protocols import Advance, Place, Slice
from lockstep.connect.sources.chunks import (
    ChangedUnderway,
    Chunk,
    FileLook,
    chunk_bytes,
    content_hash,
    next_chunk,
    parquet_hash,
)
from lockstep.connect.sources.ranges import BATCH_ROWS
from lockstep.connect.sources.watch import Watch
from lockstep.connect.specs import FilesSource
from lockstep.errors import ConnectError
from lockstep.store.arrow import arrow_schema
from lockstep.store.dead_letters import RECORD_CHARACTERS_MAX, Letter, raw_bytes, readable
from lockstep.store.protocols import Item, Positions

ITEMS_PER_EPOCH_MAX = 2000
"""Bounds an epoch over many files with hardly a record in each: every item is a row in the ledger."""


@dataclass
class _Known:
    """The files that are in the sealed list, up to a position: path -> newest chunk."""

    chunks: dict[str, Chunk]
    until: int
    newest: Chunk | None = None


class FilesSide:
    """The working side of :func:`lockstep.connect.specs.files` as a source."""

    def __init__(self, spec: FilesSource, place: Place, source: str) -> None:
        self._spec = spec
        self._source = source
        self._folder = place.project / spec.path
        self._schema = arrow_schema(spec.schema)
        self._store = LazyStore(place)
        self._dead_letters = letter_writer(place)
        self._watch = Watch(self._folder, spec.pattern, spec.still_for_us)
        self._known: _Known | None = None
        self._trimmed_to = 0
        self._only: frozenset[str] | None = None

    def start(self) -> Positions:
        """The beginning of the list."""
        return {"0": 0}

    def advance(self, since: Positions, records_max: int, now_us: int) -> Advance:
        """The next chunks: first the rest of a file already begun, then files that are finished, oldest first."""
        looks = [look for look in self._watch.look(now_us) if self._only is None or look.path in self._only]
        known = self._known_unchanged(looks, since.get("0", 0))
        chunks: list[Chunk] = []
        changed_us: list[int] = []
        for look, after in self._to_read(looks, known):
            self._take(look, after, records_max, chunks, changed_us)
            if sum(chunk.records for chunk in chunks) >= records_max or len(chunks) >= ITEMS_PER_EPOCH_MAX:
                break
        items = [Item(self._source, known.until + index, chunk.to_json()) for index, chunk in enumerate(chunks)]
        return Advance(
            {"0": known.until + len(items)},
            sum(chunk.records for chunk in chunks),
            items,
            min(now_us, *changed_us) if changed_us else None,
            min(now_us, max(changed_us)) if changed_us else None,
            finished=_all_read(looks, known, chunks),
        )

    def stop_here(self, now_us: int) -> None:
        """The files that are there now are all, those that are still being written included."""
        self._watch.look_soon()
        self._only = frozenset(look.path for look in self._watch.look(now_us))

    def slices(self, start: Positions, end: Positions) -> list[Slice]:
        """One piece per chunk; it carries the chunk, so that workers need no store."""
        first, last = start.get("0", 0), end.get("0", 0)
        items = self._store.get().items(self._source, first, last)
        assert len(items) == last - first, (
            f"chunks {first} to {last} of {self._source} are sealed, {len(items)} are kept"
        )
        return [
            Slice("0", item.position, item.position + 1, int(item.body["records"]), dict(item.body)) for item in items
        ]

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The records of one chunk, without those that are bad: these become dead letters.

        What is bad is a function of the sealed bytes alone, so every replica sets the same records aside.
        """
        chunk = Chunk.from_json(piece.detail)
        letters: list[Letter] = []

        def set_aside(bad: BadRecord) -> None:
            letters.append(self._letter(chunk, bad))

        try:
            table = self._table(chunk, set_aside)
        except CorruptContent as corrupt:
            table = self._schema.empty_table()
            letters = [self._letter_of_all(chunk, corrupt)]
        if letters:
            self._keep(piece.start, letters)
        yield from table.to_batches(max_chunksize=BATCH_ROWS)

    def trim(self, positions: Positions) -> None:
        """Drop items of files that are gone. While a file is there, its items keep it from being read again."""
        position = positions.get("0", 0)
        if position <= self._trimmed_to or not self._folder.is_dir():
            return
        store = self._store.get()
        newest = store.last_item(self._source)
        items = store.items(self._source, 0, min(position, newest.position if newest else 0))
        there = {path: inside(self._folder, path).exists() for path in {str(item.body["path"]) for item in items}}
        gone = [item.position for item in items if not there[str(item.body["path"])]]
        store.drop_items(self._source, gone)
        self._trimmed_to = position

    def close(self) -> None:
        """Close the store if it was opened."""
        self._store.close()

    def _known_files(self, until: int) -> _Known:
        """The sealed list up to ``until``, from memory and from what others have sealed since."""
        store = self._store.get()
        if self._known is None or until < self._known.until:
            bodies = [Chunk.from_json(body) for body in store.item_bodies(self._source)]
            self._known = _Known({chunk.path: chunk for chunk in bodies}, until, bodies[-1] if bodies else None)
        for item in store.items(self._source, self._known.until, until):
            chunk = Chunk.from_json(item.body)
            self._known.chunks[chunk.path] = chunk
            self._known.newest = chunk
        self._known.until = until
        return self._known

    def _known_unchanged(self, looks: list[FileLook], until: int) -> _Known:
        """The sealed list, LS0504 if a file in it looks different now.

        Before that is said, the list is read afresh: another replica may have trimmed a file that was gone, and its
        name may be used again.
        """
        known = self._known_files(until)
        if _first_changed(looks, known) is not None:
            self._known = None
            known = self._known_files(until)
        look = _first_changed(looks, known)
        if look is not None:
            chunk = known.chunks[look.path]
            raise self._changed(chunk, _difference(chunk, look.size, look.mtime_ns))
        return known

    def _to_read(self, looks: list[FileLook], known: _Known) -> Iterator[tuple[FileLook, Chunk | None]]:
        begun = known.newest if known.newest is not None and not known.newest.last else None
        if begun is not None:
            yield FileLook(begun.path, begun.size, begun.mtime_ns, self._changed_us(looks, begun)), begun
        for look in looks:
            if look.path not in known.chunks and self._watch.is_finished(look):
                yield look, None

    def _changed_us(self, looks: list[FileLook], chunk: Chunk) -> int:
        return next((look.changed_us for look in looks if look.path == chunk.path), chunk.mtime_ns // 1000)

    def _take(
        self, look: FileLook, after: Chunk | None, records_max: int, chunks: list[Chunk], changed_us: list[int]
    ) -> None:
        """Append the chunks of one file, until it ends or the epoch is full."""
        while len(chunks) < ITEMS_PER_EPOCH_MAX:
            left = records_max - sum(chunk.records for chunk in chunks)
            if left <= 0 and chunks:
                return
            following = self._next_chunk(look, after, max(1, left))
            if following is None:
                self._watch.look_soon()
                return
            after = following
            chunks.append(after)
            changed_us.append(look.changed_us)
            if after.last:
                return

    def _next_chunk(self, look: FileLook, after: Chunk | None, records_max: int) -> Chunk | None:
        """None if the file is not to be read yet: it is new, and changed or vanished since the look."""
        path = inside(self._folder, look.path)
        with disk_trouble(path):
            try:
                _check_unchanged(path, look)
                chunk = next_chunk(self._folder, look, self._spec.format, after, records_max)
                _check_unchanged(path, look)
            except FileNotFoundError:
                return self._lost_rest(after) if after is not None else None
            except ChangedUnderway as error:
                if after is None:
                    return None
                raise self._changed(after, "its size or its time is another.") from error
        return chunk

    def _lost_rest(self, after: Chunk) -> Chunk:
        """What stands for the rest of a file that vanished before it was read to its end."""
        if self._spec.on_bad_record == "stop":
            raise self._missing(after)
        reason = "the file was removed before it was read to its end"
        rest = replace(after, start=after.end, end=after.size, first_line=after.next_line, hash="", records=0)
        return replace(rest, lines=0, last=True, broken=reason)

    def _table(self, chunk: Chunk, set_aside: SetAside) -> pa.Table:
        if chunk.broken:
            raise CorruptContent(chunk.broken, chunk.first_line)
        path = inside(self._folder, chunk.path)
        try:
            stat = path.stat()
            if (stat.st_size, stat.st_mtime_ns) != (chunk.size, chunk.mtime_ns):
                raise self._changed(chunk, _difference(chunk, stat.st_size, stat.st_mtime_ns))
            if self._spec.format == "parquet":
                self._check_hash(chunk, parquet_hash(path, chunk.size))
                return parquet_table(path, range(chunk.start, chunk.end), self._schema)
            data = chunk_bytes(self._folder, chunk)
        except FileNotFoundError as error:
            raise self._missing(chunk) from error
        self._check_hash(chunk, content_hash(data))
        if self._spec.format == "csv":
            return csv_table(data, chunk.header, self._schema, chunk.first_line, set_aside)
        return json_lines_table(data, self._schema, chunk.first_line, set_aside)

    def _check_hash(self, chunk: Chunk, found: str) -> None:
        if found != chunk.hash:
            raise self._changed(chunk, "its content is another, although size and time are the same.")

    def _letter(self, chunk: Chunk, bad: BadRecord) -> Letter:
        """The dead letter of one record; a CSV row carries its header, to be read on its own."""
        self._stop_if_asked(chunk, bad.line, bad.reason)
        record = readable(bad.data)
        cut = (
            f" (of {len(bad.data):,} bytes only the first are kept here)"
            if len(record) == RECORD_CHARACTERS_MAX
            else ""
        )
        if self._spec.format == "csv":
            record = f"{chunk.header}\n{record}"
        raw = raw_bytes(bad.data)
        return Letter(self._source, self._source, chunk.path, bad.line, record, bad.reason + cut, raw=raw)

    def _letter_of_all(self, chunk: Chunk, corrupt: CorruptContent) -> Letter:
        """One letter for a whole chunk that nobody can read: its records cannot even be told from each other."""
        line = corrupt.line if corrupt.line is not None else chunk.first_line
        self._stop_if_asked(chunk, line, corrupt.reason)
        unit = "row groups" if self._spec.format == "parquet" else "bytes"
        many = f", about {chunk.records:,} records" if chunk.records else ""
        where = f"{unit} {chunk.start} to {chunk.end} of the file{many}"
        return Letter(self._source, self._source, chunk.path, line, "", f"{corrupt.reason} ({where})")

    def _stop_if_asked(self, chunk: Chunk, line: int, reason: str) -> None:
        if self._spec.on_bad_record == "stop":
            raise ConnectError(
                "LS0506",
                f"{self._folder / chunk.path}, line {line} cannot be read",
                why=f"{reason}.",
                hint='mend the producer; with on_bad_record="skip" such records become dead letters, '
                "and the job goes on.",
            )

    def _keep(self, position: int, letters: list[Letter]) -> None:
        """Once, although every replica reads the chunk, and again after a crash: the key is its sealed position."""
        if self._dead_letters.keep(f"{self._source}/{position}", letters):
            first = letters[0]
            more = f", and {len(letters) - 1:,} more of this part" if len(letters) > 1 else ""
            where = f"{self._folder / first.partition}, line {first.offset}"
            self._store.get().add_event("dead-letter", f"{self._source}: {where}: {first.error}{more}")

    def _changed(self, chunk: Chunk, difference: str) -> ConnectError:
        return ConnectError(
            "LS0504",
            f"{self._folder / chunk.path} changed after it was sealed",
            why=f"{difference} Epochs that hold it could no longer be computed again with the same result.",
            hint="put the old file back, or remove it if nobody needs it any more; give new content a new name.",
        )

    def _missing(self, chunk: Chunk) -> ConnectError:
        return ConnectError(
            "LS0505",
            f"{self._folder / chunk.path} is missing",
            why="it was sealed into an epoch that a replica still has to read.",
            hint="put it back, unchanged and with its old modification time; remove files only below the job's floor.",
        )


def _all_read(looks: list[FileLook], known: _Known, chunks: list[Chunk]) -> bool:
    """Whether every file that is there has been read to its end, those that are still being written included."""
    newest = chunks[-1] if chunks else known.newest
    read = {*known.chunks, *(chunk.path for chunk in chunks)}
    return (newest is None or newest.last) and all(look.path in read for look in looks)


def _first_changed(looks: list[FileLook], known: _Known) -> FileLook | None:
    for look in looks:
        chunk = known.chunks.get(look.path)
        if chunk is not None and (chunk.size, chunk.mtime_ns) != (look.size, look.mtime_ns):
            return look
    return None


def _check_unchanged(path: Path, look: FileLook) -> None:
    stat = path.stat()
    if (stat.st_size, stat.st_mtime_ns) != (look.size, look.mtime_ns):
        raise ChangedUnderway


def _difference(chunk: Chunk, size: int, mtime_ns: int) -> str:
    if size != chunk.size:
        return f"it had {chunk.size} bytes and now has {size}."
    return f"its modification time moved by {(mtime_ns - chunk.mtime_ns) / 1e9:g} s."
