"""The observer: a process of its own that reads an engine's results as they become visible and notes when it saw them.

``python -m benchmarks.compare.observer ENGINE WORKLOAD FOLDER LOG [--light]``. It looks every few milliseconds, as
any consumer of the output could. Each look that found something leaves one line: the time, then the rows (with
``--light`` their number alone: a reader that writes everything down would take time from an engine without
a core to spare).
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

from benchmarks.engines.catalogue import engine as engine_named
from benchmarks.engines.catalogue import workload as workload_named
from benchmarks.engines.contract import Engine, Reader, Row, SeenRow
from lockstep.bench.stopping import Stop
from lockstep.clock import Clock, wall_us

POLL_S = 0.004
POLL_LIGHT_S = 0.05


def watch(
    reader: Reader, note: Callable[[int, list[Row]], None], stop: Callable[[float], bool], poll_s: float, clock: Clock
) -> None:
    """Note what appears, until told to stop; then look once more."""
    last = False
    while True:
        # The time after the look: that is when a reader has the rows in hand.
        rows, seen_us = reader.poll(), clock()
        if rows:
            note(seen_us, rows)
        if last:
            return
        last = stop(poll_s)


def read_looks(log: Path) -> Iterator[tuple[int, str]]:
    """(time, what was noted) of every look in a log; the last line may still be in the making."""
    if not log.exists():
        return
    with log.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                seen_us, _, rest = line.partition(" ")
                yield int(seen_us), rest


def read_seen_rows(log: Path) -> list[SeenRow]:
    """Every row in a log, with the time it was seen."""
    return [SeenRow(seen_us, row) for seen_us, rest in read_looks(log) for row in json.loads(rest)]


def read_counts(log: Path) -> list[tuple[int, int]]:
    """(time, rows) of every look in a log that a light observer wrote."""
    return [(seen_us, int(rest)) for seen_us, rest in read_looks(log)]


def found_engine(name: str) -> Engine:
    """An engine by its name in the catalogue; ``module:NAME`` is one from elsewhere, as in tests."""
    module, colon, attribute = name.partition(":")
    if not colon:
        return engine_named(name)
    engine: Engine = getattr(import_module(module), attribute)
    return engine


def main() -> None:
    """The process of an observer."""
    parser = argparse.ArgumentParser(prog="benchmarks.compare.observer")
    parser.add_argument("engine")
    parser.add_argument("workload")
    parser.add_argument("folder", type=Path)
    parser.add_argument("log", type=Path)
    parser.add_argument("--light", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    stop = Stop().on_signals()
    reader = found_engine(options.engine).reader(workload_named(options.workload, quick=options.quick), options.folder)
    with options.log.open("a", encoding="utf-8", buffering=1) as log:

        def note(seen_us: int, rows: list[Row]) -> None:
            said = str(len(rows)) if options.light else json.dumps(rows, separators=(",", ":"))
            log.write(f"{seen_us} {said}\n")

        watch(reader, note, stop.wait, POLL_LIGHT_S if options.light else POLL_S, wall_us)


if __name__ == "__main__":
    main()
