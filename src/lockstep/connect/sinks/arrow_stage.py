"""Large epochs on their way to a sink that is no folder: workers stage Arrow files, the driver reads them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence

import pyarrow as pa

from lockstep.connect.disk import disk_trouble, entries, make_folders, remove_files, replace_file
from lockstep.connect.protocols import ORDER, Output, Place, Stager
from lockstep.connect.remote.paths import AnyPath, location, on_disk
from lockstep.connect.sinks.merging import merged
from lockstep.connect.sinks.schemas import without_nullability
from lockstep.connect.sinks.staging import FileStager, parse_staged, read_batches, staged_stem
from lockstep.errors import ConnectError
from lockstep.store.home import job_folder
from lockstep.store.names import checked_name
from lockstep.store.protocols import Holder

_SCHEMA_FILE = "schema.arrow"


class ArrowStage:
    """The staged files of one sink."""

    def __init__(self, place: Place, sink_id: str) -> None:
        above = location(place.shared) if place.shared else job_folder(place.home, place.job)
        self.folder: AnyPath = above / "staged" / checked_name("sink", sink_id)
        self._schema: pa.Schema | None = None

    def open(self, schema: pa.Schema) -> None:
        """Write the columns down for the workers: they make their side from the spec alone."""
        self._schema = without_nullability(schema)
        data = self._schema.serialize().to_pybytes()
        final = self.folder / _SCHEMA_FILE
        with disk_trouble(self.folder):
            make_folders(self.folder)
            if final.exists() and final.read_bytes() == data:
                return
            # Replaced, not created once: nothing published depends on it, and a new version of the job may have new
            # columns.
            replace_file(final, data, f".{os.getpid()}-{secrets.token_hex(4)}.tmp")

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """Where one task writes its share; what orders the rows is written beside their columns."""
        return FileStager(self.folder, staged_stem(epoch, holder, task), "arrow", self.schema(), beside=(ORDER,))

    def schema(self) -> pa.Schema:
        """The sink's columns."""
        if self._schema is None:
            path = self.folder / _SCHEMA_FILE
            if not path.exists():
                raise ConnectError("LS0513", f"{self.folder} is not a sink yet", hint="open it in the driver first.")
            self._schema = pa.ipc.read_schema(pa.BufferReader(path.read_bytes()))
        return self._schema

    def batches(self, output: Output) -> Iterator[pa.RecordBatch]:
        """The rows of an output, wherever they are, in order if they have one."""
        schema = self.schema()
        if output.table is not None:
            yield from output.table.select(schema.names).cast(schema).to_batches()
            return
        paths = [self.checked(file.path) for file in output.files]
        if paths and _is_ordered(paths[0]):
            ordered = schema.append(pa.field(ORDER, pa.string()))
            yield from merged([read_batches(path, "arrow", ordered) for path in paths])
            return
        for path in paths:
            yield from read_batches(path, "arrow", schema)

    def first_rows(self, output: Output, rows_max: int) -> pa.Table:
        """The first rows of an output."""
        taken: list[pa.RecordBatch] = []
        for batch in self.batches(output):
            taken.append(batch.slice(0, rows_max - sum(each.num_rows for each in taken)))
            if sum(each.num_rows for each in taken) >= rows_max:
                break
        return pa.Table.from_batches(taken, self.schema())

    def remove(self, output: Output) -> None:
        """Remove an output's staged files: they were published, or somebody was faster."""
        remove_files([self.checked(file.path) for file in output.files])

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove what dead holders staged."""
        staged = ((path, parse_staged(path.name)) for path in entries(self.folder))
        return remove_files([path for path, parsed in staged if parsed is not None and parsed[1] in dead])

    def checked(self, name: str) -> AnyPath:
        """The path of a staged file, LS0510 if no task of this sink wrote it."""
        path = location(name)
        if path.parent != self.folder or parse_staged(path.name) is None:
            raise ConnectError(
                "LS0510",
                f"{name} was not staged in {self.folder}",
                why="a publication names only files that a task of this sink wrote.",
            )
        return path


def _is_ordered(path: AnyPath) -> bool:
    """Whether the rows of a staged file have what orders them."""
    with on_disk(path) as local, pa.OSFile(str(local)) as file, pa.ipc.open_file(file) as reader:
        return ORDER in reader.schema.names
