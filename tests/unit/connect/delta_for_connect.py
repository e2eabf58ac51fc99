"""A Delta table as its own log and files say, read without Delta's client; and a process that is killed publishing."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.connect.protocols import Place
from lockstep.connect.sinks.delta import DeltaSinkSide
from lockstep.connect.sinks.delta_table import Table
from lockstep.connect.specs import delta
from lockstep.store.protocols import Holder
from tests.unit.connect.sinks_for_connect import SCHEMA, publish

WINDOWS = ("staged", "committed", "answered")


def place_in(folder: Path, job: str = "job") -> Place:
    return Place(folder, folder / ".lockstep", job)


def delta_sink(
    place: Place, schema: pa.Schema = SCHEMA, sink: str = "alerts", path: str = "out", **options: Any
) -> DeltaSinkSide:
    side = DeltaSinkSide(delta(path, **options), sink, place)
    side.open(schema)
    return side


class Log:
    """The log of a table, read line by line: it has to begin at version 0 and have no gap."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files: dict[str, dict[str, Any]] = {}
        self.epochs: list[int] = []
        """The transaction versions of the sink, as they were committed."""
        for number, path in enumerate(sorted((folder / "_delta_log").glob("*.json"))):
            assert path.name == f"{number:020}.json"
            for line in path.read_text().splitlines():
                self._take(json.loads(line))

    def _take(self, action: dict[str, Any]) -> None:
        if added := action.get("add"):
            self.files[added["path"]] = added
        elif removed := action.get("remove"):
            del self.files[removed["path"]]
        elif (txn := action.get("txn")) and txn["appId"].count("/") == 2:
            self.epochs.append(txn["version"])

    def rows(self) -> list[dict[str, Any]]:
        """Everything that is in the table, by epoch and first column."""
        found = []
        for path, added in self.files.items():
            rows = pq.ParquetFile(self._folder / path).read().to_pylist()
            assert len(rows) == json.loads(added["stats"])["numRecords"]
            found += [{**row, **added["partitionValues"]} for row in rows]
        return sorted(found, key=lambda row: (row["lockstep_epoch"], repr(row)))


def kill_in(window: str, spared: int) -> None:
    """Kill this process, hard, in a window of the commit after ``spared`` others."""
    left = spared

    def deadly(real: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            nonlocal left
            if window == "staged" and left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            real(*arguments)
            if window == "committed" and left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left -= 1

        return call

    Table.append = deadly(Table.append)  # type: ignore[method-assign]
    Table.merge = deadly(Table.merge)  # type: ignore[method-assign]


def main(folder: str, replica: str, window: str, key: str, epochs: str) -> None:
    """Publish epochs 0 to n-1 as fast as possible, until killed or done; says how many were its own."""
    holder = Holder(replica, 1)
    if window in WINDOWS:
        kill_in(window, spared=2)
    side = delta_sink(place_in(Path(folder)), key=key or None)
    won = 0
    for epoch in range(int(epochs)):
        won += publish(side, epoch, holder).by == str(holder)
        if window == "answered" and epoch == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    side.close()
    sys.stdout.write(str(won))


if __name__ == "__main__":
    main(*sys.argv[1:])
