"""The measures: latency, throughput, failover and restart of one engine on one workload, each verified."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.compare.bulk_input import bulk_of
from benchmarks.compare.figures import (
    Point,
    by_source,
    curve,
    kill_figures,
    latency_figures,
    worst_of,
)
from benchmarks.compare.live_run import LiveRun, live_run
from benchmarks.compare.plan import Size
from benchmarks.compare.process_trees import between
from benchmarks.engines.checking import Comparison
from benchmarks.engines.contract import Engine, Options, Workload
from benchmarks.engines.feeder import LATER_S
from lockstep.bench.statistics import Row
from lockstep.clock import US_PER_S, wall_us

AT_ONCE_US = 100_000
"""What is seen within a tenth of a second after a kill was on its way before."""
AFTER_FACTOR_MAX = 3
"""An engine that is not back is watched for three times the usual time."""
SLOWEST_PER_S = 5000.0
"""An engine that gets through fewer records a second is not waited for."""
QUIET_AFTER_S = 20.0
"""A workload with a quiet source is fed until so long after the source speaks again."""


@dataclass(frozen=True)
class Outcome:
    """What one cell showed."""

    figures: Row
    check: Mapping[str, Any]
    curve: Sequence[Point] = ()
    """Waits over time, for plots."""
    more: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """One cell, ready to be measured."""

    engine: Engine
    workload: Workload
    folder: Path
    size: Size
    quick: bool
    options: Options = field(default_factory=Options)

    def live(self) -> Any:
        """Start it."""
        return live_run(self.engine, self.workload, self.folder, self.options, quick=self.quick)


def latency(task: Task) -> Outcome:
    """Feed at the workload's rates; after a warm-up, how long records wait, and what the tree costs."""
    size, measured_s = task.size, _measured_s(task.workload, task.size)
    with task.live() as run:
        ready_s = run.wait_ready()
        run.feed()
        run.watch(size.warm_up_s)
        from_us = wall_us()
        run.watch(measured_s)
        until_us = wall_us()
        after_end = run.settle(size.drain_timeout_s, size.settle_s)
        costs = run.meter.costs
        found = run.verified(after_end)
    figures = {
        **latency_figures(found.waits, from_us, until_us),
        **_cost_figures(costs, from_us, until_us, found.sent_between(from_us, until_us)),
        "ready_s": ready_s,
    }
    sources = by_source(found.waits)
    more = {source: latency_figures(waits, from_us, until_us) for source, waits in sources.items()}
    seconds = (until_us - from_us) / US_PER_S
    return Outcome(
        figures=figures,
        check=check_row(found.after_end, found.live),
        curve=curve(found.waits, from_us, 0.0, seconds),
        more={"sources": more} if len(sources) > 1 else {},
    )


def _measured_s(workload: Workload, size: Size) -> float:
    quiet = [
        LATER_S + one.quiet_s[1] + QUIET_AFTER_S - size.warm_up_s for one in workload.inputs if one.quiet_s is not None
    ]
    return max([size.measured_s, *quiet])


def throughput(task: Task) -> Outcome:
    """A part of the records to warm up on, then all the rest at once: records per second until the last result."""
    count = task.workload.bounded_records or task.size.bulk_records
    bulk = bulk_of(task.workload, task.folder.parent, count)
    options = Options(task.options.master, task.options.partitions, bounded=True, settings=task.options.settings)
    cut = max(1, round(len(bulk.files) * task.size.warm_up_part))
    timeout_s = max(task.size.drain_timeout_s, bulk.records / SLOWEST_PER_S)
    with live_run(task.engine, task.workload, task.folder, options, quick=task.quick, light=True) as run:
        ready_s = run.wait_ready()
        bulk.give(task.folder, 0, cut)
        _wait_warm(run, task.size.settle_s)
        begun_us, noted = wall_us(), run.noted
        bulk.give(task.folder, cut, len(bulk.files))
        check = run.settle(timeout_s, task.size.settle_s, bulk.expected, noted=noted)
        counts, costs = run.counts(), run.meter.costs
    ended_us = max((seen_us for seen_us, _ in counts), default=begun_us)
    seconds = max(1e-6, (ended_us - begun_us) / US_PER_S)
    records = sum(path.read_bytes().count(b"\n") for _, path in bulk.files[cut:])
    cpu_s, memory = between(costs, begun_us / US_PER_S, ended_us / US_PER_S)
    figures: Row = {
        "records_per_s": records / seconds if check.agrees else None,
        "records": records,
        "seconds": seconds,
        "cpu_s_per_million": cpu_s / records * 1e6,
        "memory_peak_mb": memory / 1e6,
        "ready_s": ready_s,
    }
    return Outcome(figures=figures, check=check_row(check, check))


def _wait_warm(run: LiveRun, settle_s: float) -> None:
    """Until results of the warm-up were seen and no more come."""
    run.wait_first()
    before = -1
    while len(run.seen_us()) != before:
        before = len(run.seen_us())
        run.watch(settle_s)


def failover(task: Task) -> Outcome:
    """Kill -9 under load, again and again; the worst that a live reader noticed."""
    size = task.size
    kills: list[tuple[int, float]] = []
    with task.live() as run:
        run.wait_ready()
        run.feed()
        run.watch(size.warm_up_s + size.before_s)
        for _ in range(size.kills):
            kill_us = run.kill_victim()
            kills.append((kill_us, _watched_s(run, kill_us, size)))
        after_end = run.settle(size.drain_timeout_s, size.settle_s)
        found = run.verified(after_end)
    seen_us = [one.seen_us for one in found.seen_rows]
    rows = [kill_figures(found.waits, seen_us, kill_us, size.before_s, after_s) for kill_us, after_s in kills]
    return Outcome(
        figures={"kills": len(kills), **worst_of(rows)},
        check=check_row(found.after_end, found.live),
        curve=curve(found.waits, kills[0][0], -size.before_s, kills[0][1]),
        more={"kills": rows},
    )


def _watched_s(run: LiveRun, kill_us: int, size: Size) -> float:
    """Watch what follows a kill: the usual time, and longer while nothing has come since; for how long."""
    run.watch(size.after_s)
    while not run.seen_since(kill_us + AT_ONCE_US) and _since_s(kill_us, wall_us()) < AFTER_FACTOR_MAX * size.after_s:
        run.watch(1.0)
        if run.seen_since(kill_us + AT_ONCE_US):
            # It is back: give it the time to become normal.
            run.watch(size.after_s / 2)
    return _since_s(kill_us, wall_us())


def restart(task: Task) -> Outcome:
    """Kill -9 everything, start it again at once; until a record sent after the kill was seen."""
    size = task.size
    with task.live() as run:
        run.wait_ready()
        run.feed()
        run.watch(size.warm_up_s + size.before_s)
        kill_us = run.kill_everything()
        run.relaunch()
        after_s = _watched_s(run, kill_us, size)
        after_end = run.settle(size.drain_timeout_s, size.settle_s)
        found = run.verified(after_end)
    seen_us = [one.seen_us for one in found.seen_rows]
    gone_us = kill_us + AT_ONCE_US
    first_us = min((at_us for at_us in seen_us if at_us > gone_us), default=None)
    fresh_us = min((wait.seen_us for wait in found.waits if wait.sent_us > gone_us), default=None)
    figures: Row = {
        "first_result_s": None if first_us is None else _since_s(kill_us, first_us),
        "fresh_result_s": None if fresh_us is None else _since_s(kill_us, fresh_us),
        **kill_figures(found.waits, seen_us, kill_us, size.before_s, after_s),
    }
    return Outcome(
        figures=figures,
        check=check_row(found.after_end, found.live),
        curve=curve(found.waits, kill_us, -size.before_s, after_s),
    )


def _since_s(from_us: int, until_us: int) -> float:
    return (until_us - from_us) / US_PER_S


def _cost_figures(costs: Sequence[Any], from_us: int, until_us: int, records: int) -> Row:
    cpu_s, memory = between(costs, from_us / US_PER_S, until_us / US_PER_S)
    seconds = (until_us - from_us) / US_PER_S
    return {
        "cpu_cores": cpu_s / seconds,
        "cpu_s_per_million": cpu_s / records * 1e6 if records else None,
        "memory_peak_mb": memory / 1e6,
    }


def check_row(after_end: Comparison, live: Comparison) -> dict[str, Any]:
    """How the results compare with the reference; repeats are those that a live reader saw."""
    return {
        **{name: value for name, value in asdict(after_end).items() if name != "examples"},
        "live_repeated": live.repeated,
        "live_wrong": live.wrong,
        "right": after_end.agrees and after_end.repeated == 0,
        "examples": list(after_end.examples),
    }


MEASURE: Mapping[str, Callable[[Task], Outcome]] = {
    "latency": latency,
    "throughput": throughput,
    "failover": failover,
    "restart": restart,
}
