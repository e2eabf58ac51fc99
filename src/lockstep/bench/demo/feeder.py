"""The feeder's process: it appends the demo's events to the journal, 1,000 a second.

Run as ``python -m lockstep.bench.demo.feeder STORE SEED``. It ends when its standard input does (so also when the demo
is killed), sends the event that closes all windows, and says on standard output what it has sent.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from lockstep.bench.demo.events import BLOCK_EVENTS, SCHEMA, Event, block, closing_event, due_us
from lockstep.bench.demo.feeding import JOURNAL, Fed
from lockstep.bench.stopping import Stop
from lockstep.clock import US_PER_S, wall_us
from lockstep.plan.schema import parse_schema
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import SqliteJournal, open_journal


def feed(journal: SqliteJournal, seed: int, stop: Stop) -> Fed:
    """Append block after block, each when it is due, until told to stop; then the closing event."""
    start_us = wall_us()
    behind_us = number = 0
    while True:
        # A block is due when its last event is: nothing is sent before it happened.
        wait_us = due_us(start_us, (number + 1) * BLOCK_EVENTS) - wall_us()
        if stop.wait(max(0.0, wait_us / US_PER_S)):
            break
        behind_us = max(behind_us, -wait_us)
        _append(journal, block(seed, start_us, number))
        number += 1
    _append(journal, [closing_event(start_us, number)])
    return Fed(seed, start_us, number, behind_us / US_PER_S)


def _append(journal: SqliteJournal, sent: list[Event]) -> None:
    journal.append(batch_from_pylist([event.record() for event in sent], journal.schema))


def main() -> None:
    """The process."""
    store, seed = Path(sys.argv[1]), int(sys.argv[2])
    stop = Stop().on_signals()

    def listen() -> None:
        sys.stdin.read()
        stop.ask()

    threading.Thread(target=listen, name="demo-pipe", daemon=True).start()
    journal = open_journal(store, JOURNAL, parse_schema(SCHEMA))
    try:
        fed = feed(journal, seed, stop)
    finally:
        journal.close()
    print(json.dumps(asdict(fed)), flush=True)


if __name__ == "__main__":
    main()
