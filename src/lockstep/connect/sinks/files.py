"""Publishing epochs as files: data first, then one manifest that makes it visible, created without replacing."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from lockstep.clock import Clock, wall_us
from lockstep.connect.disk import disk_trouble, entries, make_folders, remove_files, sync_folder
from lockstep.connect.protocols import Output, Place, Publication, StagedFile, Stager
from lockstep.connect.reading import epoch_table
from lockstep.connect.remote.paths import AnyPath, RemotePath, check_creates_once, location
from lockstep.connect.sinks.manifests import EPOCH_COLUMN, DataFile, Identity, Layout, Manifest
from lockstep.connect.sinks.order import check_order, owned_by_another
from lockstep.connect.sinks.schemas import check_names, check_same, without_nullability
from lockstep.connect.sinks.staging import FileStager, parse_staged, staged_stem
from lockstep.connect.specs import FilesSink
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder

_UNFINISHED = re.compile(r"\d{12}\.json\.(.+)\.tmp")


class FilesSinkSide:
    """The working side of :func:`lockstep.connect.specs.files` as a sink."""

    def __init__(self, spec: FilesSink, sink_id: str, place: Place, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._sink = sink_id
        self._job = place.job
        self._layout = Layout(location(spec.path, place.project))
        self._clock = clock
        self._identity: Identity | None = None
        self._last: int | None = None

    def open(self, schema: pa.Schema) -> None:
        """Make the folder or recognise it as ours."""
        folder = self._layout.folder
        wanted = without_nullability(schema)
        check_names(str(folder), wanted, EPOCH_COLUMN)
        with disk_trouble(folder):
            if isinstance(self._layout.control, RemotePath):
                check_creates_once(self._layout.control)
            make_folders(self._layout.manifests, self._layout.compacted, self._layout.data)
            mine = Identity(self._job, self._sink, self._spec.format, wanted)
            found = self._layout.identity()
            if found is None and not self._layout.claim(mine, f"{os.getpid()}-{secrets.token_hex(4)}"):
                found = self._layout.identity()
        if found is not None:
            self._check_mine(found, wanted)
        self._identity = mine

    def last_published(self) -> int | None:
        """The newest published epoch. Lists the folder once, then only looks for the next ones."""
        if self._last is None:
            published = self._layout.published()
            self._last = published[-1] if published else None
        if self._last is not None:
            self._last = self._layout.newest_from(self._last)
        return self._last

    def publication(self, epoch: int) -> Publication | None:
        """The fence of ``epoch``, None if nobody published it."""
        manifest = self._layout.manifest(epoch)
        return manifest.publication if manifest is not None else None

    def stager(self, epoch: int, holder: Holder, task: int) -> Stager:
        """A file in the sink's data folder, in its format, that no manifest names yet."""
        return FileStager(
            self._layout.data, staged_stem(epoch, holder, task), self._spec.format, self._known_identity().schema
        )

    def publish(self, wanted: Publication, output: Output, holder: Holder) -> Publication:
        """Write the data, then the manifest; if somebody was faster, remove what is ours and return theirs."""
        # In this order: if the other replica publishes the epoch between the two looks, the second one sees it.
        last = self.last_published()
        held = self.publication(wanted.epoch)
        staged = [self._staged_name(file) for file in output.files]
        if held is not None:
            remove_files([self._layout.data / file.name for file in staged])
            return held
        check_order(str(self._layout.folder), wanted.epoch, last)
        files = staged + self._write(wanted.epoch, output.table, holder)
        published = replace(wanted, published_us=self._clock())
        try:
            with disk_trouble(self._layout.folder):
                sync_folder(self._layout.data)
                created = self._layout.publish(Manifest(published, tuple(files)), str(holder))
        except ConnectError:
            # Only while it is certain that no manifest names them: the error may have come after the link. A system
            # far away may carry out later what it has not answered.
            if not isinstance(self._layout.folder, RemotePath) and self.publication(wanted.epoch) is None:
                remove_files([self._layout.data / file.name for file in files])
            raise
        return self._settle(published, files, created)

    def rows(self, epoch: int) -> pa.Table | None:
        """The published rows of one epoch."""
        return epoch_table(self._layout, self._known_identity(), epoch)

    def sweep(self, dead: Sequence[str]) -> int:
        """Remove unfinished manifests of dead holders, and data files that no manifest names and none ever will.

        Those of an epoch that nobody has published stay: a holder on a host that was cut off may live, and name them
        yet. So a supervisor sweeps for the same holders several times.
        """
        unfinished = ((path, _UNFINISHED.fullmatch(path.name)) for path in entries(self._layout.manifests))
        orphans = [path for path, match in unfinished if match is not None and match.group(1) in dead]
        by_epoch: dict[int, list[AnyPath]] = {}
        # A replica that failed before its first epoch has not made the folder yet.
        for path in entries(self._layout.data):
            staged = parse_staged(path.name)
            if staged is not None and staged[1] in dead:
                by_epoch.setdefault(staged[0], []).append(path)
        for epoch, paths in by_epoch.items():
            manifest = self._layout.manifest(epoch)
            if manifest is not None:
                named = {file.name for file in manifest.files}
                orphans += [path for path in paths if path.name not in named]
        return remove_files(orphans)

    def close(self) -> None:
        """Nothing stays open."""

    def _check_mine(self, found: Identity, schema: pa.Schema) -> None:
        place = str(self._layout.folder)
        if (found.job, found.sink) != (self._job, self._sink):
            raise owned_by_another(place, found.job, found.sink)
        if found.format != self._spec.format:
            raise ConnectError(
                "LS0512",
                f"{place} holds {found.format} files, not {self._spec.format}",
                why="a sink keeps the format that it was made with.",
                hint=f'write format="{found.format}", or give the new format a new place.',
            )
        check_same(place, found.schema, schema)

    def _known_identity(self) -> Identity:
        """Whose sink it is; in a worker, which does not open it, as it was written down."""
        if self._identity is None:
            self._identity = self._layout.identity()
        if self._identity is None:
            raise ConnectError(
                "LS0513", f"{self._layout.folder} is not a sink yet", hint="open it in the driver first."
            )
        return self._identity

    def _staged_name(self, file: StagedFile) -> DataFile:
        path = location(file.path)
        if path.parent != self._layout.data or parse_staged(path.name) is None:
            raise ConnectError(
                "LS0510",
                f"{file.path} was not staged in {self._layout.data}",
                why="a publication names only files that a task of this sink wrote.",
            )
        return DataFile(path.name, file.rows, file.bytes)

    def _write(self, epoch: int, table: pa.Table | None, holder: Holder) -> list[DataFile]:
        if table is None or table.num_rows == 0:
            return []
        stager = self.stager(epoch, holder, 0)
        for batch in table.to_batches():
            stager.write(batch)
        staged = stager.finish()
        return [self._staged_name(staged)] if staged is not None else []

    def _settle(self, published: Publication, files: list[DataFile], created: bool) -> Publication:
        """What holds now. A manifest for an epoch that was compacted meanwhile is ours to take back: nobody sees it."""
        merged = self._layout.range_of(published.epoch)
        if created and merged is None:
            self._last = published.epoch
            return published
        if created:
            remove_files([self._layout.manifest_path(published.epoch)])
        remove_files([self._layout.data / file.name for file in files])
        held = self.publication(published.epoch)
        assert held is not None, f"epoch {published.epoch} was published by another, and is not there"
        return held
