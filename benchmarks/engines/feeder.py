"""The feeder: a process of its own that writes a workload's records as they fall due.

``python -m benchmarks.engines.feeder WORKLOAD FOLDER --seconds 30 [--rate-scale 0.5] [--quick]``. Every 50 ms what
is due goes into one file per source. After the time, or on SIGTERM, it writes the closing records and ends; it also
ends when the process that started it is gone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.engines.catalogue import workload as workload_named
from benchmarks.engines.contract import Input, Workload
from benchmarks.engines.input import Writer, make_folders
from lockstep.bench.stopping import Stop
from lockstep.clock import US_PER_S, Clock, wall_us

TICK_S = 0.05
RECORDS_PER_FILE_MAX = 20_000
"""After a stall the backlog goes out in files of bounded size."""
LOADING_S = 4.0
"""After the first record nothing is sent for so long: meanwhile an engine loads its code, and no backlog grows."""
RAMP_S, RAMP_PART = 4.0, 0.1
"""Then so long at a part of the rate: meanwhile it compiles it."""
LATER_S = LOADING_S + RAMP_S * (1 - RAMP_PART)
"""So much later than at the full rate from the beginning everything comes, a source's silence too."""
CLOSING_PAUSE_S = 1.0
"""The closing records come so long after the last: an engine that takes files in any order has read those by then."""


def due(one: Input, elapsed_s: float, rate_scale: float = 1.0) -> int:
    """How many records of a source should have been sent so long after the begin; none fall due while it is quiet.

    >>> [due(Input("a", 100, (), (10, 30)), elapsed_s) for elapsed_s in (5, 10, 20, 30, 31)]
    [500, 1000, 1000, 1000, 1100]
    """
    if one.quiet_s is not None:
        from_s, to_s = one.quiet_s
        elapsed_s -= min(max(elapsed_s - from_s, 0), to_s - from_s)
    return int(elapsed_s * one.rate_per_s * rate_scale)


def ramped(elapsed_s: float) -> float:
    """The seconds at the full rate that so many seconds are worth.

    >>> [round(ramped(elapsed_s), 3) for elapsed_s in (0, 2, 4, 5)]
    [0.0, 0.2, 0.4, 1.4]
    """
    return min(elapsed_s, RAMP_S) * RAMP_PART + max(0.0, elapsed_s - RAMP_S)


class Feed:
    """One source's writer and how far it is."""

    def __init__(self, workload: Workload, folder: Path, one: Input) -> None:
        self._workload = workload
        self._one = one
        self._writer = Writer(folder, one.source)
        self.sent = 0

    def send(self, until: int, clock: Clock) -> None:
        """Write what is due and not yet written."""
        while self.sent < until:
            count = min(until - self.sent, RECORDS_PER_FILE_MAX)
            self._writer.write(self._workload.records(self._one.source, self.sent, count, clock()))
            self.sent += count

    def close(self, clock: Clock) -> None:
        """Write the closing records."""
        rows = self._workload.closing(self._one.source, self.sent, clock())
        if rows:
            self._writer.write(rows)


def feed(
    workload: Workload,
    folder: Path,
    seconds: float,
    rate_scale: float,
    wait: Callable[[float], bool],
    clock: Clock = wall_us,
) -> dict[str, int]:
    """Send what falls due until the time is over or ``wait`` says stop; how many records of each source were sent."""
    feeds = {one.source: Feed(workload, folder, one) for one in workload.inputs}
    for each in feeds.values():
        each.send(1, clock)
    stopped = wait(LOADING_S)
    begun_us = clock()
    while not stopped and (elapsed_s := (clock() - begun_us) / US_PER_S) < seconds:
        stopped = wait(TICK_S)
        for one in workload.inputs:
            feeds[one.source].send(due(one, ramped(elapsed_s), rate_scale), clock)
    time.sleep(CLOSING_PAUSE_S)
    for each in feeds.values():
        each.close(clock)
    return {source: each.sent for source, each in feeds.items()}


def main() -> None:
    """The process of a feeder."""
    parser = argparse.ArgumentParser(prog="benchmarks.engines.feeder")
    parser.add_argument("workload")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate-scale", type=float, default=1.0)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    stop = Stop().on_signals()
    workload = workload_named(options.workload, quick=options.quick)
    make_folders(workload, options.folder)
    print(feed(workload, options.folder, options.seconds, options.rate_scale, stop.wait))


if __name__ == "__main__":
    main()
