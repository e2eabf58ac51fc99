"""What the programs for Bytewax share: a source that watches a folder and can resume, and the running with recovery.

The source remembers the last file it has read whole; that is its snapshot. The sink is Bytewax's own `FileSink`, which
cuts its file back to the last snapshot when it resumes.
"""

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bytewax import operators as op
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.run import cli_main

SNAPSHOT_INTERVAL = timedelta(seconds=0.5)
"""How often state goes to disk: the most that is computed again after a crash. Bytewax's default is 10 s."""
GATHER_INTERVAL, GATHER_MAX = timedelta(milliseconds=10), 10_000
LOOK_INTERVAL = timedelta(milliseconds=5)
OUTPUT = Path("output/rows.jsonl")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class FolderPartition(StatefulSourcePartition):
    """The files of one folder, in the order of their names."""

    def __init__(self, folder: Path, last: str | None) -> None:
        self._folder = folder
        self._last = last or ""
        self._waiting: list[str] = []
        self._awake: datetime | None = None

    def next_batch(self) -> list[dict]:
        """The records of the next file, none if there is none yet."""
        if not self._waiting:
            names = (name for name in os.listdir(self._folder) if name > self._last)  # noqa: PTH208
            self._waiting = sorted(names, reverse=True)
        if not self._waiting:
            self._awake = datetime.now(UTC) + LOOK_INTERVAL
            return []
        self._awake = None
        self._last = self._waiting.pop()
        with (self._folder / self._last).open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def next_awake(self) -> datetime | None:
        """When to look again."""
        return self._awake

    def snapshot(self) -> str:
        """The last file that was read."""
        return self._last


class FolderSource(FixedPartitionedSource):
    """A watched folder as one partition: records stay in their order."""

    def __init__(self, source: str) -> None:
        self._folder = Path("input", source)

    def list_parts(self) -> list[str]:
        """One."""
        return ["files"]

    def build_part(self, _step_id: str, _part: str, resume_state: str | None) -> FolderPartition:
        """From the beginning, or after the last file."""
        return FolderPartition(self._folder, resume_state)


def read(flow: Dataflow, source: str) -> Stream:
    """A source of the benchmark as a stream of records."""
    return op.input(source, flow, FolderSource(source))


def at(record: dict) -> datetime:
    """When a record happened."""
    return EPOCH + timedelta(milliseconds=record["at_ms"])


def write(rows: Stream) -> None:
    """Publish rows as JSON lines."""
    op.output("output", op.map("json", rows, line), FileSink(OUTPUT))


def write_together(rows: Stream) -> None:
    """Publish rows that come one by one, as those of windows do, a few at a time: `FileSink` syncs every write."""
    gathered = op.collect("gather", op.map("json", rows, line), GATHER_INTERVAL, GATHER_MAX)
    op.output("output", op.flat_map_batch("lines", gathered, spread), FileSink(OUTPUT))


def line(row: dict) -> tuple[str, str]:
    """A row as a line of the one file."""
    return "rows", json.dumps(row)


def spread(gathered: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """What was gathered, line by line but still as one batch."""
    return [(key, each) for key, lines in gathered for each in lines]


def run(flow: Dataflow) -> None:
    """Run until the process is ended; after a crash, from the last snapshot."""
    recovery = Path("work/recovery")
    if not recovery.exists():
        recovery.mkdir()
        init_db_dir(recovery, 1)
    OUTPUT.touch()
    Path("work/ready").touch()
    cli_main(flow, epoch_interval=SNAPSHOT_INTERVAL, recovery_config=RecoveryConfig(recovery))
