"""The benches by name, each run in a temporary folder of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from lockstep.bench.report import Report
from lockstep.bench.workspace import Say, say_to_stderr, workspace


class Bench(Protocol):
    """What every bench is: a function that measures in a folder and answers with a report."""

    def __call__(self, folder: Path, say: Say, *, quick: bool) -> Report:
        """Measure."""


def _failover() -> Bench:
    from lockstep.bench.failover import run_failover

    return run_failover


def _latency() -> Bench:
    from lockstep.bench.latency import run_latency

    return run_latency


def _throughput() -> Bench:
    from lockstep.bench.throughput import run_throughput

    return run_throughput


def _store() -> Bench:
    from lockstep.bench.store import run_store

    return run_store


def _epoch() -> Bench:
    from lockstep.bench.epoch.bench import run_epoch

    return run_epoch


def _buckets() -> Bench:
    from lockstep.bench.buckets import run_buckets

    return run_buckets


def _query() -> Bench:
    from lockstep.bench.query import run_query

    return run_query


def _change() -> Bench:
    from lockstep.bench.change.bench import run_change

    return run_change


def _state() -> Bench:
    from lockstep.bench.change.state import run_state

    return run_state


def _hosts() -> Bench:
    from lockstep.bench.hosts.bench import run_hosts

    return run_hosts


def _order() -> Bench:
    from lockstep.bench.order import run_order

    return run_order


def _kafka() -> Bench:
    from lockstep.bench.kafka.bench import run_kafka

    return run_kafka


BENCHES: dict[str, Callable[[], Bench]] = {
    "failover": _failover,
    "latency": _latency,
    "throughput": _throughput,
    "store": _store,
    "epoch": _epoch,
    "buckets": _buckets,
    "query": _query,
    "change": _change,
    "state": _state,
    "hosts": _hosts,
    "order": _order,
    "kafka": _kafka,
}
"""Name -> how to get it. Imported when it is run: most of them are long to load."""


def run_bench(name: str, *, quick: bool, keep: bool, bench: Bench | None = None) -> Report:
    """Run one bench by its name, or this variant of it; progress goes to stderr."""
    say = say_to_stderr()
    with workspace(name, say, keep=keep) as folder:
        return (bench or BENCHES[name]())(folder, say, quick=quick)
