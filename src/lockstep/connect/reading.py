"""Reading what was published: only whole epochs, in order, up to the first gap.

A reader takes no locks and may run beside publishing and compaction: where a file that it was about to read has been
merged into another one, it looks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.connect.protocols import Publication
from lockstep.connect.remote.paths import AnyPath, is_remote, location
from lockstep.connect.sinks.manifests import (
    EPOCH_COLUMN,
    LOOKS_MAX,
    DataFile,
    Identity,
    Layout,
    Manifest,
    damaged,
)
from lockstep.connect.sinks.staging import read_batches
from lockstep.connect.specs import is_postgres
from lockstep.errors import ConnectError

Result = TypeVar("Result")


def read(path: str | Path, epochs: Iterable[int] | None = None, *, table: str | None = None) -> pa.Table:
    """Everything that is published at ``path`` (files, a Delta table, or a database and its ``table``), in epoch order.

    Files may be on HDFS or in S3 (``hdfs:``, ``s3a:``). A database is the path of a SQLite one, or the address of a
    Postgres server as :func:`lockstep.postgres` takes it (the password is where its client finds it: ``PGPASSWORD``, a
    password file, a service file).

    >>> read("no/such/place")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ConnectError: LS0513 nothing was ever published in no/such/place
      why:  it is not the folder of a files sink.
      try:  check the path; a sink makes its folder when its job first runs.
    """
    if table is not None and is_postgres(str(path)):
        from lockstep.connect.sinks.postgres import read_postgres

        return read_postgres(str(path), table, epochs)
    if table is not None:
        from lockstep.connect.sinks.sqlite import read_sqlite

        return read_sqlite(Path(path), table, epochs)
    if not is_remote(str(path)) and (Path(path) / "_delta_log").is_dir():
        from lockstep.connect.sinks.delta import read_delta

        return read_delta(Path(path), epochs)
    reader = Reader(path)
    there = reader.epochs()
    if epochs is None:
        tables = reader.tables(there)
    else:
        tables = (reader.table(epoch) for epoch in sorted(set(epochs)) if epoch in there)
    return pa.concat_tables([reader.schema.empty_table(), *tables])


class Reader:
    """One files sink, read epoch by epoch."""

    def __init__(self, path: str | AnyPath) -> None:
        self._layout = Layout(location(path) if isinstance(path, str) else path)
        identity = self._layout.identity()
        if identity is None:
            raise ConnectError(
                "LS0513",
                f"nothing was ever published in {path}",
                why="it is not the folder of a files sink.",
                hint="check the path; a sink makes its folder when its job first runs.",
            )
        self._identity = identity
        self._cache = _FileCache()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the sink."""
        return self._identity.schema

    def epochs(self) -> range:
        """The published epochs, in order, up to the first gap."""
        return self._layout.published()

    def last_with_rows(self, count: int) -> int:
        """The epoch to begin with so that ``count`` epochs with rows follow: heartbeats without rows are many."""
        published = self.epochs()
        begin, epoch = published.stop, published.stop - 1
        while count and epoch >= published.start:
            merged = self._layout.range_of(epoch)
            if merged is None:
                publication = self.publication(epoch)
                found = [epoch] if publication is not None and publication.rows else []
            else:
                found = [one.epoch for one in reversed(merged.publications)][:count]
            if found:
                begin, count = found[-1], count - len(found)
            epoch = (merged.first if merged is not None else epoch) - 1
        return begin

    def publication(self, epoch: int) -> Publication | None:
        """The fence of one epoch."""
        manifest = self._layout.manifest(epoch)
        return manifest.publication if manifest is not None else None

    def publications(self, first: int | None = None) -> Iterator[Publication]:
        """The fences from ``first`` on (default: the oldest), up to the newest there is."""
        epoch = self._first(first)
        while epoch is not None and (publication := self.publication(epoch)) is not None:
            yield publication
            epoch += 1

    def table(self, epoch: int) -> pa.Table:
        """The rows of one epoch, LS0513 if it is not published."""
        found = epoch_table(self._layout, self._identity, epoch, self._cache)
        if found is None:
            raise ConnectError("LS0513", f"epoch {epoch} is not published in {self._layout.folder}")
        return found

    def tables(self, epochs: range) -> Iterator[pa.Table]:
        """The rows of epochs that follow each other; merged ones come together."""
        epoch = epochs.start
        while epoch < epochs.stop:
            span = span_table(self._layout, self._identity, epoch, epochs.stop)
            last, table = span if span is not None else (epoch, self.table(epoch))
            yield table
            epoch = last + 1

    def follow(
        self, from_epoch: int | None = None, poll_s: float = 0.05, timeout_s: float | None = None
    ) -> Iterator[tuple[Publication, pa.Table]]:
        """Each epoch with its rows as it is published; ends when nothing came for ``timeout_s`` (None: never)."""
        epoch: int | None = None
        waiting_since_s = time.monotonic()
        while True:
            epoch = self._first(from_epoch) if epoch is None else epoch
            publication = self.publication(epoch) if epoch is not None else None
            if epoch is not None and publication is not None:
                yield publication, self.table(epoch)
                epoch += 1
                waiting_since_s = time.monotonic()
            elif timeout_s is not None and time.monotonic() - waiting_since_s >= timeout_s:
                return
            else:
                time.sleep(poll_s)

    def _first(self, asked: int | None) -> int | None:
        """The epoch to begin with: the sink may have begun later than asked; None if it has not begun."""
        if asked is not None and self.publication(asked) is not None:
            return asked
        published = self.epochs()
        if not published:
            return None
        return published[0] if asked is None else max(asked, published[0])


class _FileCache:
    """The newest compacted file that was read, because its neighbours in time are mostly asked for next."""

    def __init__(self) -> None:
        self._name = ""
        self._table: pa.Table | None = None

    def get(self, name: str, read_file: Callable[[], pa.Table]) -> pa.Table:
        """The table of file ``name``, from memory if it was the last one."""
        if self._table is None or self._name != name:
            self._table, self._name = read_file(), name
        return self._table


def epoch_table(layout: Layout, identity: Identity, epoch: int, cache: _FileCache | None = None) -> pa.Table | None:
    """The rows of one epoch, None if it is not published."""
    cache = cache or _FileCache()

    def attempt() -> pa.Table | None:
        manifest = layout.manifest(epoch)
        if manifest is None:
            return None
        tables = [_file_table(layout, identity, manifest, file, cache) for file in manifest.files]
        found = pa.concat_tables([identity.schema.empty_table(), *tables])
        if found.num_rows != manifest.publication.rows:
            raise damaged(
                layout.data,
                f"epoch {epoch} was published with {manifest.publication.rows} rows and has {found.num_rows}",
            )
        return found

    return _looking_again(layout, attempt)


def span_table(layout: Layout, identity: Identity, first: int, stop: int) -> tuple[int, pa.Table] | None:
    """The rows from ``first`` to the end of its compacted range or to ``stop``, and the range's last epoch.

    None if it is in no range.
    """

    def attempt() -> tuple[int, pa.Table] | None:
        merged = layout.range_of(first)
        if merged is None:
            return None
        schema = compacted_schema(identity.schema)
        files = [read_batches(layout.data_path(file), identity.format, schema) for file in merged.files]
        table = pa.Table.from_batches([batch for file in files for batch in file], schema)
        if table.num_rows != sum(one.rows for one in merged.publications):
            raise damaged(layout.data, f"epochs {merged.first} to {merged.last} were published with other rows")
        wanted = pc.and_(pc.greater_equal(table[EPOCH_COLUMN], first), pc.less(table[EPOCH_COLUMN], stop))
        return merged.last, table.filter(wanted).select(identity.schema.names)

    return _looking_again(layout, attempt)


def epoch_batches(layout: Layout, identity: Identity, manifest: Manifest) -> Iterator[pa.RecordBatch]:
    """The rows of an epoch that was not compacted, a bounded batch at a time."""
    for file in manifest.files:
        yield from read_batches(layout.data_path(file), identity.format, identity.schema)


def compacted_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of compacted files: those of the sink, and the epoch."""
    return schema.append(pa.field(EPOCH_COLUMN, pa.int64()))


def _file_table(layout: Layout, identity: Identity, manifest: Manifest, file: DataFile, cache: _FileCache) -> pa.Table:
    schema = compacted_schema(identity.schema) if manifest.compacted else identity.schema

    def whole() -> pa.Table:
        return pa.Table.from_batches(read_batches(layout.data_path(file), identity.format, schema), schema)

    if not manifest.compacted:
        return whole()
    table = cache.get(file.name, whole)
    return table.filter(pc.equal(table[EPOCH_COLUMN], manifest.publication.epoch)).select(identity.schema.names)


def _looking_again(layout: Layout, attempt: Callable[[], Result]) -> Result:
    for _ in range(LOOKS_MAX):
        try:
            return attempt()
        except FileNotFoundError as error:
            missing = error.filename or error
            layout.forget()
    raise damaged(layout.data, f"a manifest names {missing}, which is not there")
