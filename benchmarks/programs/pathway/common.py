"""What the programs for Pathway share: reading, publishing and running with persistence.

Results are a stream of changes: each line has `diff` 1 for a row that came and -1 for one that went.
"""

import time
from pathlib import Path

import pathway as pw

COMMIT_MS = 20
"""How often what was read becomes one step of the computation; by default every 1.5 s."""
SNAPSHOT_INTERVAL_MS = 500


class Event(pw.Schema):
    """An amount of a key."""

    seq: int
    sent_us: int
    at_ms: int
    key: str
    amount: int


def read(source: str, schema: type[pw.Schema]) -> pw.Table:
    """A source of the benchmark as a table that grows."""
    return pw.io.jsonlines.read(f"input/{source}", schema=schema, autocommit_duration_ms=COMMIT_MS, name=source)


def sums(events: pw.Table, window_ms: int, out_of_order_ms: int) -> pw.Table:
    """Number and sum of amounts by key and window, once when event time has passed it."""
    windows = events.windowby(
        events.at_ms,
        window=pw.temporal.tumbling(duration=window_ms, origin=0),
        instance=events.key,
        behavior=pw.temporal.exactly_once_behavior(shift=out_of_order_ms),
    )
    return windows.reduce(
        key=pw.this._pw_instance,
        window_start_ms=pw.this._pw_window_start,
        events=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.amount),
    )


def run(rows: pw.Table) -> None:
    """Publish rows as JSON lines until the process is ended; after a crash, from the last snapshot."""
    # A file of its own for each start: Pathway would overwrite what the process before a crash has written.
    pw.io.jsonlines.write(rows, f"output/rows-{time.time_ns()}.jsonl")
    Path("work/ready").touch()
    backend = pw.persistence.Backend.filesystem("work/persistence")
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(backend, snapshot_interval_ms=SNAPSHOT_INTERVAL_MS),
    )
