"""The processes of `lockstep bench store`: one that seals against others, one that passes records through a journal.

``python -m lockstep.bench.store_workers seal FOLDER REPLICA BEGIN_US SECONDS`` or ``... pass FOLDER RECORDS``; each
answers with JSON on standard output.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import psutil

from lockstep.bench.events import JOURNAL, SCHEMA, Sent, batch
from lockstep.bench.statistics import Row
from lockstep.clock import US_PER_S, wall_us
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import open_journal
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Entry

BATCH = 10_000
KEPT = 50_000
"""What stays in the journal behind the reader, as if a replica still needed it."""
SAMPLES = 10


def seal(folder: Path, replica: str, begin_us: int, seconds: float) -> dict[str, object]:
    """Propose epoch after epoch until the time is over: how long each call took, and how many it won."""
    store = open_store(address_in(folder), "bench-store")
    holder = store.begin(replica, pid=1)
    took_ms: list[float] = []
    won = epoch = 0
    time.sleep(max(0.0, (begin_us - wall_us()) / US_PER_S))
    deadline_s = time.monotonic() + seconds
    while (begun_s := time.monotonic()) < deadline_s:
        # Epoch time from the number: proposals of different processes must not differ in order.
        held = store.seal(Entry(epoch, begin_us + epoch, {"events": {"0": epoch * 100}}), holder)
        took_ms.append((time.monotonic() - begun_s) * 1000)
        won += held.sealed_by == str(holder)
        epoch += 1
    store.close()
    return {"took_ms": took_ms, "won": won}


def pass_through(folder: Path, records: int) -> list[Row]:
    """Append, read back and trim; the memory of this process on the way."""
    journal = open_journal(folder, JOURNAL, parse_schema(SCHEMA))
    me = psutil.Process()
    samples: list[Row] = [_sample(me, folder, 0)]
    every = max(BATCH, records // SAMPLES // BATCH * BATCH)
    read = 0
    for first in range(0, records, BATCH):
        journal.append(batch(Sent(first, BATCH, wall_us())), 0)
        read += sum(found.num_rows for found in journal.read(0, first, first + BATCH))
        if (first + BATCH) % every == 0:
            journal.trim({0: first + BATCH - KEPT})
            samples.append(_sample(me, folder, first + BATCH))
    journal.close()
    assert read == records, f"{records} records were appended, {read} read"
    return samples


def _sample(me: psutil.Process, folder: Path, records: int) -> Row:
    on_disk = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"records": records, "memory_mb": me.memory_info().rss / 1e6, "disk_mb": on_disk / 1e6}


def main() -> None:
    """The process: which part, and its arguments."""
    match sys.argv[1:]:
        case ["seal", folder, replica, begin_us, seconds]:
            answer: object = seal(Path(folder), replica, int(begin_us), float(seconds))
        case ["pass", folder, records]:
            answer = pass_through(Path(folder), int(records))
        case _:
            raise SystemExit(__doc__)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
