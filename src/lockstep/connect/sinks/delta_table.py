"""A handle on a Delta table: its fences as the log has them, and commits that nobody else can make as well.

Every epoch with rows is one commit. It carries the epoch as the version of the application's transaction (``txn`` in
the log), and its fence in the commit's own metadata. Delta does not refuse an old version by itself: whoever commits
has looked at the version through the same handle, and a commit that came in between is refused for the same
application.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lockstep.connect.disk import sync_folder
from lockstep.connect.protocols import Publication
from lockstep.connect.sinks.delta_files import DATA, EPOCH_COLUMN, DataFile, with_epoch
from lockstep.connect.sinks.order import Owner
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

FORMAT_VERSION = 1
OWNER = "lockstep.owner"
FENCE = "lockstep"
LOG = "_delta_log"
_OTHERS_MAX = 50
"""Commits of others (merging of files) that may stand between the fences that are looked for."""


def import_deltalake() -> None:
    """LS0541 if the client is not installed."""
    if find_spec("deltalake") is None:
        raise ConnectError(
            "LS0541",
            "the Delta sink needs deltalake",
            why="it is not installed with Lockstep itself.",
            hint='pip install "lockstep[delta]"',
        )


class Table:
    """One table, and the newest of one sink's fences in it."""

    def __init__(self, folder: Path, kept: int) -> None:
        self.folder = folder
        self._kept = kept
        self._table: DeltaTable | None = None
        self._read = -1
        self._fences: dict[int, tuple[Publication, str]] = {}

    @property
    def place(self) -> str:
        """The table in words."""
        return f"the Delta table {self.folder}"

    def is_there(self) -> bool:
        """Whether there is a table at all."""
        from deltalake import DeltaTable

        return DeltaTable.is_deltatable(str(self.folder))

    def create(self, schema: pa.Schema, partition_by: Sequence[str], owner: Owner, more: Mapping[str, str]) -> None:
        """Make the table, unless somebody else has meanwhile."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            self._table = DeltaTable.create(
                str(self.folder),
                schema,
                mode="error",
                partition_by=list(partition_by),
                configuration={OWNER: json.dumps(asdict(owner)), **more},
                raise_if_key_not_exists=False,
            )
        except DeltaError as error:
            if not self.is_there():
                raise explained(self.place, error) from error

    def owner(self) -> Owner | None:
        """Whose table it is, None if Lockstep did not make it."""
        text = self.refresh().metadata().configuration.get(OWNER)
        if text is None:
            return None
        data = json.loads(text)
        return Owner(**{**data, "key": tuple(data["key"])})

    def refresh(self) -> DeltaTable:
        """Read what was committed since; the handle of what is there now."""
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            if self._table is None:
                self._table = DeltaTable(str(self.folder))
            else:
                self._table.update_incremental()
            self._take_fences(self._table)
        except DeltaError as error:
            raise explained(self.place, error) from error
        return self._table

    def transaction_version(self, app: str) -> int | None:
        """The newest version that an application committed, as of the last :meth:`refresh`."""
        return self._known().transaction_version(app)

    def fence(self, epoch: int) -> tuple[Publication, str] | None:
        """The fence of an epoch and the mark of the call that committed it, as of the last :meth:`refresh`."""
        return self._fences.get(epoch)

    def append(self, files: Sequence[DataFile], commit: CommitProperties, partition_by: Sequence[str]) -> None:
        """Commit these files through the handle of the last :meth:`refresh`."""
        from deltalake.transaction import AddAction

        table = self._known()
        now_ms = int(time.time() * 1000)
        adds = [
            AddAction(f"{DATA}/{file.name}", file.bytes, file.partition, now_ms, True, file.stats) for file in files
        ]
        table.create_write_transaction(
            list(adds), "append", table.schema(), list(partition_by), commit_properties=commit
        )

    def merge(self, rows: pa.Table, key: Sequence[str], commit: CommitProperties) -> None:
        """Replace the rows of these keys, or add them, through the handle of the last :meth:`refresh`."""
        same = " AND ".join(f"(held.{_quoted(name)} IS NOT DISTINCT FROM new.{_quoted(name)})" for name in key)
        merger = self._known().merge(
            rows, same, source_alias="new", target_alias="held", streamed_exec=False, commit_properties=commit
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def rows(self, schema: pa.Schema, epochs: Sequence[int] | None) -> pa.Table:
        """The rows of these epochs (None: all), in epoch order.

        File by file and not by the client's ``to_pyarrow_table``: a process that has used that sometimes aborts when it
        ends (1 of 6 tries; https://github.com/delta-io/delta-rs/issues/2184).
        """
        whole = with_epoch(schema)
        tables = [whole.empty_table()]
        for file in pa.table(self.refresh().get_add_actions(flatten=True)).to_pylist():
            low, high = file.get(f"min.{EPOCH_COLUMN}"), file.get(f"max.{EPOCH_COLUMN}")
            if epochs is None or low is None or any(low <= epoch <= high for epoch in epochs):
                tables.append(self._file(file, whole))
        found = pa.concat_tables(tables)
        if epochs is not None:
            found = found.filter(pc.is_in(found[EPOCH_COLUMN], pa.array(epochs, pa.int64())))
        return found.sort_by(EPOCH_COLUMN).select(schema.names).combine_chunks()

    def _file(self, file: Mapping[str, Any], schema: pa.Schema) -> pa.Table:
        path = self.folder / file["path"]
        if not path.exists():
            path = self.folder / unquote(file["path"])
        with pq.ParquetFile(path) as parquet:
            rows = parquet.read(use_threads=False)
        values = {field.name: field for field in schema if field.name not in rows.column_names}
        for name, field in values.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(file[f"partition.{name}"], field.type), rows.num_rows))
        return rows.select(schema.names).cast(schema)

    def make_durable(self) -> None:
        """Put the newest commit on disk: Delta's client leaves that to the operating system."""
        log = self.folder / LOG
        commit = log / f"{self._known().version():020}.json"
        # Commits of long ago are removed once a checkpoint has them.
        with suppress(FileNotFoundError):
            for line in commit.read_text(encoding="utf-8").splitlines():
                added = json.loads(line).get("add")
                if added is not None and not added["path"].startswith(f"{DATA}/"):
                    _sync(self.folder / unquote(added["path"]))
            _sync(commit)
        sync_folder(log)

    def _known(self) -> DeltaTable:
        assert self._table is not None, "refreshed before"
        return self._table

    def _take_fences(self, table: DeltaTable) -> None:
        version = table.version()
        if version == self._read:
            return
        new = version - self._read if self._read >= 0 else version + 1
        for commit in table.history(min(new, self._kept + _OTHERS_MAX)):
            if FENCE in commit:
                data = json.loads(commit[FENCE])
                mark = data.pop("mark")
                self._fences[data["epoch"]] = Publication(**data), mark
        self._fences = dict(sorted(self._fences.items())[-self._kept :])
        self._read = version


def commit_properties(app: str, publication: Publication, holder: Holder, mark: str) -> CommitProperties:
    """What makes a commit an epoch's: the transaction's version, who did it, and the fence."""
    from deltalake import CommitProperties, Transaction

    return CommitProperties(
        custom_metadata={FENCE: json.dumps({**asdict(publication), "mark": mark})},
        app_transactions=[
            Transaction(app, publication.epoch),
            Transaction(replica_app(app, holder), holder.incarnation),
        ],
    )


def replica_app(app: str, holder: Holder) -> str:
    """The application whose version is the newest incarnation of a replica that published."""
    return f"{app}/{holder.replica}"


def explained(place: str, error: Exception) -> ConnectError:
    """What Delta's client says, as an error a person can act on."""
    return ConnectError(
        "LS0543",
        f"{place} cannot be used",
        why=f"Delta's client says: {str(error).splitlines()[0]}",
        hint="check that the folder is there, that this user may write to it, and that the disk is not full.",
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
