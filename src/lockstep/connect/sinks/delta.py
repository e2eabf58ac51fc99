"""Publishing epochs into a Delta table: one commit for each epoch that has rows, which only one replica can make.

Tasks write Parquet files into the table's folder, where nobody sees them; the publisher's commit names them. With a
key, tasks stage rows beside the store instead, and the publisher merges them into the table in one commit.

An epoch without rows costs no commit: that it is over is noted in the job's store, put-if-absent. All replicas compute
the same rows, so an epoch is either noted or committed, never both.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from lockstep.clock import Clock, wall_us
from lockstep.connect.disk import disk_trouble, make_folders, remove_files, sync_folder
from lockstep.connect.protocols import Output, Place, Publication, Stager
from lockstep.connect.sinks.arrow_stage import ArrowStage
from lockstep.connect.sinks.delta_files import (
    DATA,
    EPOCH_COLUMN,
    LIST_SCHEMA,
    DataFile,
    DeltaStager,
    check_columns,
    listed_files,
    partition_text,
    with_epoch,
)
from lockstep.connect.sinks.delta_table import (
    FORMAT_VERSION,
    Table,
    commit_properties,
    explained,
    import_deltalake,
    replica_app,
)
from lockstep.connect.sinks.order import (
    Owner,
    check_not_retired,
    check_order,
    check_owner,
    made_by_others,
    run_name,
    schema_of,
    schema_text,
)
from lockstep.connect.sinks.publication_memory import PublicationMemory, comparable
from lockstep.connect.sinks.schemas import check_key, check_names, check_unchanged, without_nullability
from lockstep.connect.sinks.staging import FileStager, parse_staged, staged_stem
from lockstep.connect.specs import DeltaSink
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

COMMITS_MAX = 30
"""Attempts at a commit: one that fails because files were merged meanwhile succeeds on top of that."""
_AGAIN_S = 0.02


class DeltaSinkSide:
    """The working side of :func:`lockstep.connect.specs.delta`."""

    def __init__(self, spec: DeltaSink, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._sink = sink_id
        self._job = place.job
        self._app = f"lockstep/{place.job}/{sink_id}"
        self._stage = ArrowStage(place, sink_id)
        self._table = Table(place.project / spec.path, place.publications_kept)
        self._data = place.project / spec.path / DATA
        self._empty = PublicationMemory(f"delta-empty:{sink_id}", place)
        self._clock = clock

    def open(self, schema: pa.Schema) -> None:
        """Make the table, or recognise it as ours."""
        import_deltalake()
        wanted = without_nullability(schema)
        check_names(self._table.place, wanted, EPOCH_COLUMN)
        check_key(self._table.place, self._spec.key, wanted)
        check_key(f"the partitions of {self._table.place}", self._spec.partition_by, wanted)
        check_columns(self._table.place, wanted, self._spec.key, self._spec.partition_by)
        self._stage.open(schema)
        mine = self._owner(wanted)
        with disk_trouble(self._data):
            make_folders(self._data)
        if not self._table.is_there():
            properties = self._spec.table_properties()
            self._table.create(with_epoch(wanted), self._spec.partition_by, mine, properties)
        self._check_mine(mine)
        self._check_table(wanted)

    def last_published(self) -> int | None:
        """The newest published epoch, with rows or without."""
        noted = self._empty.last()
        self._table.refresh()
        return self._newest(noted)

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``. Of an epoch published long ago only that is known: its digest is empty."""
        found = self._find(epoch)
        return found[0] if found is not None else None

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """Files in the table's folder that no commit names yet; with a key a file beside the store."""
        if self._spec.key:
            return self._stage.stager(epoch, holder, task)
        return self._file_stager(epoch, holder, task)

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Commit the rows and the fence, or nothing if the fence is there."""
        files = [] if self._spec.key else [file for each in output.files for file in self._listed(each.path)]
        mark = secrets.token_hex(8)
        if self._find(wanted.epoch) is None:
            files += self._write(wanted.epoch, output, holder)
        try:
            held, by_mark = self._published(wanted, output, files, holder, mark)
        except ConnectError:
            # Only while it is certain that no commit names them.
            if self._find(wanted.epoch) is None:
                remove_files([self._data / file.name for file in files])
            raise
        if by_mark != mark:
            remove_files([self._data / file.name for file in files])
        self._stage.remove(output)
        return comparable(held, wanted)

    def rows(self, epoch: int) -> pa.Table | None:
        """The published rows of one epoch; with a key they may have been replaced since."""
        if self._spec.key or self.publication(epoch) is None:
            return None
        return self._table.rows(self._stage.schema(), [epoch])

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged and never published.

        A file whose epoch its own holder published stays, also if it is no longer part of the table: whoever reads an
        older version needs it until the vacuum. So does one of an epoch so old that nobody knows who published it.
        """
        count = self._stage.sweep(dead)
        orphans: list[Path] = []
        for path in self._data.iterdir() if self._data.exists() else ():
            staged = parse_staged(path.name)
            if staged is not None and staged[1] in dead:
                held = self.publication(staged[0])
                if held is None or held.by not in ("", staged[1]):
                    orphans.append(path)
        return count + remove_files(orphans)

    def close(self) -> None:
        """Close the store, if it was opened."""
        self._empty.close()

    def _owner(self, schema: pa.Schema) -> Owner:
        run = run_name(self._empty.store, f"delta-run:{self._sink}")
        return Owner(self._job, self._sink, schema_text(schema), self._spec.key, FORMAT_VERSION, run)

    def _check_mine(self, mine: Owner) -> None:
        place, stored = self._table.place, self._table.owner()
        if stored is None:
            raise made_by_others(place, "choose another folder for the table.")
        check_owner(place, stored, mine, "remove the folder of the table while no job runs")
        partitions = tuple(self._table.refresh().metadata().partition_columns)
        if partitions != self._spec.partition_by:
            by = json.dumps(partitions)
            raise ConnectError("LS0512", f"{place} was made with partition_by={by}", hint="write to a new place.")

    def _check_table(self, schema: pa.Schema) -> None:
        """LS0512 if somebody changed the table since: each column has to be there, in its type."""
        from deltalake import Schema

        there = _types(self._table.refresh().schema().to_json())
        wanted = _types(Schema.from_arrow(with_epoch(schema)).to_json())
        check_unchanged(self._table.place, there, wanted, "change it back")

    def _find(self, epoch: int) -> tuple[Publication, str] | None:
        """What holds for an epoch, and the mark of the call that committed it; None if it is free."""
        # The store first: what is noted there came after the commits of the epochs before.
        noted = self._empty.find(epoch)
        self._table.refresh()
        committed = self._table.transaction_version(self._app)
        if (fence := self._table.fence(epoch)) is not None:
            return fence
        if noted is not None:
            return noted, ""
        return (Publication(epoch, "", 0, "", ""), "") if committed is not None and epoch <= committed else None

    def _newest(self, noted: int | None) -> int | None:
        known = (noted, self._table.transaction_version(self._app))
        return max((epoch for epoch in known if epoch is not None), default=None)

    def _published(
        self, wanted: Publication, output: Output, files: Sequence[DataFile], holder: Holder, mark: str
    ) -> tuple[Publication, str]:
        """What holds for the epoch in the end, from here or from another. An attempt whose outcome is not known is
        followed by a look at the fence: nothing is committed twice.
        """
        from deltalake.exceptions import CommitFailedError, DeltaError

        failed: DeltaError | None = None
        for _ in range(COMMITS_MAX):
            noted = self._empty.last()
            if (held := self._find(wanted.epoch)) is not None:
                self._table.make_durable()
                return held
            # From here to the commit nothing is read again: what comes in between has to be in the way of the commit.
            check_order(self._table.place, wanted.epoch, self._newest(noted))
            incarnation = self._table.transaction_version(replica_app(self._app, holder))
            check_not_retired(self._table.place, holder, incarnation or 0)
            published = replace(wanted, published_us=self._clock())
            if wanted.rows == 0:
                self._empty.put(published, self._clock)
                continue
            try:
                self._commit(published, output, files, holder, mark)
            except DeltaError as error:
                if failed is not None and not isinstance(error, CommitFailedError):
                    raise explained(self._table.place, error) from error
                failed = error
                time.sleep(_AGAIN_S)
        raise explained(self._table.place, failed or RuntimeError("the commit is not to be seen"))

    def _commit(
        self, published: Publication, output: Output, files: Sequence[DataFile], holder: Holder, mark: str
    ) -> None:
        properties = commit_properties(self._app, published, holder, mark)
        if self._spec.key:
            self._table.merge(self._newest_rows(output, published.epoch), self._spec.key, properties)
        else:
            with disk_trouble(self._data):
                sync_folder(self._data)
            self._table.append(files, properties, self._spec.partition_by)

    def _newest_rows(self, output: Output, epoch: int) -> pa.Table:
        """Of each key the last row, with the epoch."""
        schema, key = self._stage.schema(), list(self._spec.key)
        rows = pa.Table.from_batches(self._stage.batches(output), schema)
        for name in self._spec.partition_by:
            for value in pc.unique(rows[name]).to_pylist():
                partition_text(name, value)
        for name in key:
            if pa.types.is_floating(rows[name].type):
                rows = rows.set_column(rows.column_names.index(name), name, _one_zero(rows[name]))
        numbered = rows.append_column("", pa.array(range(rows.num_rows), pa.int64()))
        last = numbered.group_by(key).aggregate([("", "max")])["_max"]
        newest = rows.take(last)
        epochs = pa.array([epoch] * newest.num_rows, pa.int64())
        return newest.append_column(EPOCH_COLUMN, epochs).cast(with_epoch(schema))

    def _write(self, epoch: int, output: Output, holder: Holder) -> list[DataFile]:
        """Rows in memory, as files; with a key they are merged as they are."""
        if self._spec.key or output.table is None or output.table.num_rows == 0:
            return []
        stager = self._file_stager(epoch, holder, 0)
        try:
            for batch in self._stage.batches(output):
                stager.write(batch)
            return stager.files()
        except ConnectError:
            stager.abandon()
            raise

    def _file_stager(self, epoch: int, holder: Holder, task: int) -> DeltaStager:
        stem, lists = staged_stem(epoch, holder, task), self._stage.folder
        return DeltaStager(
            self._data,
            stem,
            epoch,
            self._stage.schema(),
            self._spec.partition_by,
            lambda: FileStager(lists, stem, "arrow", LIST_SCHEMA),
        )

    def _listed(self, path: str) -> list[DataFile]:
        return listed_files(self._stage.checked(path))


def read_delta(folder: Path, epochs: Iterable[int] | None = None) -> pa.Table:
    """The published rows of a Delta sink, in epoch order, in the types they were written with."""
    import_deltalake()
    table = Table(folder, 0)
    owner = table.owner()
    if owner is None:
        raise ConnectError(
            "LS0513", f"nothing was ever published in {folder}", why="the Delta table there is no sink's."
        )
    return table.rows(schema_of(owner.columns), None if epochs is None else sorted(set(epochs)))


def _one_zero(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Two zeros are one key, and so are all that are not a number."""
    nan = pa.scalar(float("nan"), column.type)
    return pc.if_else(pc.is_nan(column), nan, pc.add(column, pa.scalar(0.0, column.type)))


def _types(schema: str) -> dict[str, str]:
    return {field["name"]: json.dumps(field["type"]) for field in json.loads(schema)["fields"]}
