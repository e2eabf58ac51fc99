"""Events of many keys, for the growth of state: each is a function of its number; and the feeder that sends them.

``python -m benchmarks.compare.keyed_events STORE LOG KEYS RATE`` goes on after the first KEYS events, one for each key,
which are in the journal before the job starts.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lockstep.bench.events import Sent
from lockstep.bench.feeder import feed
from lockstep.bench.stopping import Stop
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import arrow_schema
from lockstep.store.journal import open_journal

JOURNAL = "keys"
SCHEMA = "seq bigint, key bigint"
BATCH_RECORDS = 50_000
_ARROW = arrow_schema(parse_schema(SCHEMA))
_MIX = 2_654_435_761
"""Knuth's multiplier: neighbouring numbers go to keys that are not neighbours."""

Numbers = npt.NDArray[np.int64]


def keys_of(seq: Numbers, keys: int) -> Numbers:
    """The key of each event: the first ``keys`` events have one each, in order; the later ones any.

    >>> keys_of(np.arange(6), 4).tolist()
    [0, 1, 2, 3, 0, 1]
    """
    return np.where(seq < keys, seq, (seq * _MIX % (1 << 32)) % keys)


def batch(first: int, count: int, keys: int) -> pa.RecordBatch:
    """The records from number ``first`` on."""
    seq = np.arange(first, first + count, dtype=np.int64)
    return pa.record_batch([pa.array(seq), pa.array(keys_of(seq, keys))], schema=_ARROW)


def fill(store: Path, keys: int) -> None:
    """Put one event of every key into the journal."""
    journal = open_journal(store, JOURNAL, parse_schema(SCHEMA))
    try:
        for first in range(0, keys, BATCH_RECORDS):
            journal.append(batch(first, min(BATCH_RECORDS, keys - first), keys), 0)
    finally:
        journal.close()


def expected_counts(sent: Sequence[Sent], keys: int) -> Numbers:
    """How many events each key has, by its number; those of the filling included.

    >>> expected_counts([Sent(0, 2, 0)], keys=4).tolist()
    [2, 2, 1, 1]
    """
    last = max((one.first + one.count for one in sent), default=0) + keys
    found: Numbers = np.bincount(keys_of(np.arange(last, dtype=np.int64), keys), minlength=keys)
    return found


def main() -> None:
    """The process of the feeder."""
    store, log_path, keys, rate = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    stop = Stop().on_signals()
    journal = open_journal(store, JOURNAL, parse_schema(SCHEMA))
    with log_path.open("a", encoding="utf-8", buffering=1) as log:

        def send(one: Sent) -> None:
            journal.append(batch(keys + one.first, one.count, keys), 0)

        def note(one: Sent) -> None:
            log.write(f"{one.first} {one.count} {one.at_us}\n")

        feed(send, note, rate, stop)
    journal.close()


if __name__ == "__main__":
    main()
