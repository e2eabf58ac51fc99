"""Merging the small files of a Delta table, and removing what nobody needs any more: beside those who publish."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lockstep.connect.sinks.delta_table import Table, explained, import_deltalake
from lockstep.connect.specs import DeltaSink

SMALL_BYTES = 8 << 20
"""Smaller files are worth merging."""
_HOUR_US = 3_600_000_000


class DeltaTidier:
    """Looks after the table of one sink. It commits no epoch, so it is nobody's rival for one."""

    def __init__(self, spec: DeltaSink, project: Path) -> None:
        self._spec = spec
        self.folder = project / spec.path
        self._left = 0
        """Small files that the last merge left: one for each partition, say. They do not count."""

    def tidy(self) -> int:
        """Merge if enough small files have come together; how many were. LS0543 if another commit was in the way."""
        if not self._spec.optimize_every:
            return 0
        import_deltalake()
        from deltalake.exceptions import DeltaError

        table = Table(self.folder, 0)
        if not table.is_there():
            return 0
        handle = table.refresh()
        try:
            if self._small(table) - self._left < self._spec.optimize_every:
                return 0
            merged = int(handle.optimize.compact()["numFilesRemoved"])
            # The light vacuum: it removes only what the log says was removed, never what is staged and not committed.
            # After ``retain``, and not after the table's own retention, which is longer: the log must still name them.
            handle.vacuum(
                retention_hours=self._spec.retain_us // _HOUR_US, dry_run=False, enforce_retention_duration=False
            )
        except DeltaError as error:
            raise explained(table.place, error) from error
        self._left = self._small(table)
        return merged

    def _small(self, table: Table) -> int:
        files = pa.table(table.refresh().get_add_actions(flatten=True))
        return sum(size < SMALL_BYTES for size in files["size_bytes"].to_pylist())
