"""Epochs to publish, and a process that publishes them and may be killed at any step."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

from lockstep.connect.protocols import CHANGED, Output, Place, Publication, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.connect.specs import files, sqlite
from lockstep.store.protocols import Holder

SCHEMA = pa.schema([("n", pa.int64()), ("s", pa.string())])
HOLDER = Holder("r0", 1)


def rows_of(epoch: int, count: int = 3) -> pa.Table:
    """The rows of an epoch: the same for every publisher, different for every epoch."""
    numbers = [epoch * 1000 + index for index in range(count)]
    return pa.table({"n": numbers, "s": [f"row {n}" for n in numbers]}, SCHEMA)


def wanted(epoch: int, holder: Holder = HOLDER, rows: int = 3) -> Publication:
    return Publication(epoch, f"digest-{epoch}", rows, str(holder), "v1", epoch_time_us=epoch)


def publish(side: SinkSide, epoch: int, holder: Holder = HOLDER, count: int = 3) -> Publication:
    return side.publish(wanted(epoch, holder, count), Output(SCHEMA, rows_of(epoch, count)), holder)


CHANGES = pa.schema([("a", pa.int64()), ("b", pa.string()), ("v", pa.int64()), (CHANGED, pa.int32())])
"""Changes of rows whose key is (a, b)."""


def changed(chance: Random, held: dict[Any, Any], count: int) -> list[dict[str, Any]]:
    """Random changes of what is held, which afterwards holds what they leave: a row goes before its successor comes."""
    keys = {(chance.choice([None, *range(count)]), chance.choice([None, "", "x"])) for _ in range(count)}
    rows = []
    for key in sorted(keys, key=repr):
        old = held.pop(key, None)
        rows += [(*key, old, -1)] if old is not None else []
        if old is None or chance.random() < 0.6:
            held[key] = chance.randrange(100)
            rows.append((*key, held[key], 1))
    return [dict(zip(CHANGES.names, row, strict=True)) for row in rows]


def files_sink(place: Place, format: Any = "parquet", sink: str = "alerts") -> SinkSide:
    side = sink_side(files("out", format=format), sink, place)
    side.open(SCHEMA)
    return side


def sqlite_sink(place: Place, **options: Any) -> SinkSide:
    side = sink_side(sqlite("out.db", table="alerts", **options), "alerts", place)
    side.open(SCHEMA)
    return side


def kill_before_call(number: int, names: tuple[str, ...]) -> None:
    """Kill this process, hard, just before its ``number``-th call of any of these functions of ``os``."""
    calls = 0

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)

        return call

    for name in names:
        setattr(os, name, deadly(getattr(os, name)))


def in_child(act: Callable[[], None]) -> int:
    """Run ``act`` in a forked process; its exit status, negative if a signal ended it."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """Publish epochs 0 to n-1 as fast as possible: started twice at the same time by the race test."""
    folder, kind, replica, epochs = sys.argv[1:]
    place = Place(Path(folder), Path(folder) / ".lockstep", "job")
    side = files_sink(place) if kind == "files" else sqlite_sink(place)
    holder = Holder(replica, 1)
    won = sum(publish(side, epoch, holder).by == str(holder) for epoch in range(int(epochs)))
    side.close()
    sys.stdout.write(str(won))


if __name__ == "__main__":
    main()
