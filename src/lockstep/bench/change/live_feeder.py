"""The feeder of `lockstep bench state`: a few keys again and again, with short payloads, at a steady rate.

``python -m lockstep.bench.change.live_feeder STORE RATE``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa

from lockstep.bench.change.state import JOURNAL, LIVE_KEYS, SCHEMA
from lockstep.bench.events import Sent
from lockstep.bench.feeder import feed
from lockstep.bench.stopping import Stop
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema
from lockstep.store.journal import open_journal
from lockstep.store.protocols import Journal


def batch(sent: Sent) -> pa.RecordBatch:
    """Events of the live keys in turn; their payloads are never the highest, so that state keeps its size."""
    keys = pa.array(np.arange(sent.first, sent.first + sent.count, dtype=np.int64) % LIVE_KEYS)
    return pa.record_batch([keys, pa.array([""] * sent.count)], schema=arrow_schema(parse_schema(SCHEMA)))


def main() -> None:
    """The process."""
    journal = open_journal(Path(sys.argv[1]), JOURNAL, parse_schema(SCHEMA))
    try:
        feed(lambda sent: _append(journal, sent), lambda _sent: None, float(sys.argv[2]), Stop().on_signals())
    finally:
        journal.close()


def _append(journal: Journal, sent: Sent) -> None:
    journal.append(batch(sent), 0)


if __name__ == "__main__":
    main()
