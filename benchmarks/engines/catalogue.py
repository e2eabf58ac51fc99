"""All engines and workloads by name."""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks.engines.adapters.flink import FLINK
from benchmarks.engines.adapters.lockstep import LockstepEngine
from benchmarks.engines.adapters.single_process import BYTEWAX, PATHWAY, SPARK
from benchmarks.engines.contract import Engine, Workload
from benchmarks.engines.workloads.basic import KEYED_FUNCTION, SAAS_MONITOR, TUMBLING_WINDOW, WORD_COUNT
from benchmarks.engines.workloads.nexmark import QUERIES, nexmark
from benchmarks.engines.workloads.shapes import CHAIN_LENGTHS, bounded_window, chain, quiet_input, two_rates
from benchmarks.errors import BenchmarkError

_ALL: tuple[Engine, ...] = (
    LockstepEngine(1),
    LockstepEngine(2),
    LockstepEngine(3),
    LockstepEngine(1, journal=True),
    LockstepEngine(2, journal=True),
    SPARK,
    FLINK,
    BYTEWAX,
    PATHWAY,
)
ENGINES: Mapping[str, Engine] = {one.name: one for one in _ALL}


def engine(name: str) -> Engine:
    """The engine of this name, BM01 if there is none."""
    if name not in ENGINES:
        raise _unknown("engine", name, ENGINES)
    return ENGINES[name]


def workloads(*, quick: bool = False) -> dict[str, Workload]:
    """All workloads by name; ``quick`` makes those smaller that take long.

    >>> list(workloads())[:3]
    ['word_count', 'tumbling_window', 'keyed_function']
    """
    every: tuple[Workload, ...] = (
        WORD_COUNT,
        TUMBLING_WINDOW,
        KEYED_FUNCTION,
        SAAS_MONITOR,
        *(chain(length) for length in CHAIN_LENGTHS),
        two_rates(),
        quiet_input(quick=quick),
        bounded_window(quick=quick),
        *(nexmark(query, quick=quick) for query in QUERIES),
    )
    return {one.name: one for one in every}


def workload(name: str, *, quick: bool = False) -> Workload:
    """The workload of this name, BM01 if there is none."""
    found = workloads(quick=quick)
    if name not in found:
        raise _unknown("workload", name, found)
    return found[name]


def _unknown(what: str, name: str, there: Mapping[str, object]) -> BenchmarkError:
    return BenchmarkError("BM01", f"there is no {what} {name}", hint=f"those there are: {', '.join(there)}.")
