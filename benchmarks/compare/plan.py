"""Which cells of the comparison are measured, in which order, for how long; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

MEASURES = ("failover", "latency", "throughput", "restart")
"""In the order in which they run: if the time runs out, the first are there. Growth comes after them."""
GROWTH = ("state", "partitions")
"""Measures that ask how Lockstep's own epoch grows; they have sizes instead of workloads and engines."""

CORE = ("word_count", "tumbling_window", "keyed_function")
"""What a quick comparison looks at."""


@dataclass(frozen=True)
class Size:
    """How long and how often."""

    rounds: int
    warm_up_s: float
    measured_s: float
    before_s: float
    """Before a kill: the normal against which it is held."""
    after_s: float
    """After a kill, at least: everyone has to be back and normal within it, or the figures say it was not."""
    kills: int
    warm_up_part: float
    """The part of a throughput run's records that comes first, to warm up on."""
    bulk_records: int
    """For workloads without a number of their own: so many records of each source at once."""
    drain_timeout_s: float
    settle_s: float = 3.0
    """After so long without anything new the results are compared; if they do not agree, more is waited for."""


QUICK = Size(
    rounds=1,
    warm_up_s=10.0,
    measured_s=8.0,
    before_s=8.0,
    after_s=20.0,
    kills=1,
    warm_up_part=0.2,
    bulk_records=100_000,
    drain_timeout_s=30.0,
)
FULL = Size(
    rounds=1,
    warm_up_s=18.0,
    measured_s=15.0,
    before_s=12.0,
    after_s=35.0,
    kills=2,
    warm_up_part=0.2,
    bulk_records=400_000,
    drain_timeout_s=60.0,
)


@dataclass(frozen=True)
class Cell:
    """One thing to measure: an engine on a workload, in one of several rounds. Growth has no workload."""

    measure: str
    workload: str
    engine: str
    turn: int

    def __str__(self) -> str:
        return " ".join(word for word in (self.measure, self.workload, self.engine) if word)


def alternate(engines: Sequence[str], turn: int) -> list[str]:
    """The engines in the order of one round: every other round goes backwards, so that none is always first.

    >>> alternate(["a", "b", "c"], 0), alternate(["a", "b", "c"], 1)
    (['a', 'b', 'c'], ['c', 'b', 'a'])
    """
    return list(engines) if turn % 2 == 0 else list(reversed(engines))


def cells(
    measures: Iterable[str], workloads: Mapping[str, Sequence[str]], engines: Sequence[str], rounds: int
) -> list[Cell]:
    """All cells: measure by measure, workload by workload, round by round; inside a round the engines take turns.

    >>> found = cells(["latency"], {"latency": ["w"]}, ["a", "b"], rounds=2)
    >>> [(cell.engine, cell.turn) for cell in found]
    [('a', 0), ('b', 0), ('b', 1), ('a', 1)]
    """
    return [
        Cell(measure, workload, engine, turn)
        for measure in measures
        for workload in workloads.get(measure, ())
        for turn in range(rounds)
        for engine in alternate(engines, turn)
    ]


def estimate_s(measure: str, size: Size, start_s: float = 15.0) -> float:
    """About how long a cell takes, before any was measured."""
    live_s = start_s + size.warm_up_s + 5.0
    match measure:
        case "latency":
            return live_s + size.measured_s
        case "failover":
            return live_s + size.before_s + size.kills * size.after_s
        case "restart":
            return live_s + size.before_s + size.after_s
        case "throughput":
            return start_s + 20.0
        case _:
            return live_s + size.measured_s + 20.0


class Remaining:
    """The time left, from what similar cells took: those of the same measure and engine, else of the same measure."""

    def __init__(self, size: Size) -> None:
        self._size = size
        self._took: dict[tuple[str, str], list[float]] = {}

    def took(self, cell: Cell, seconds: float) -> None:
        """Remember one."""
        self._took.setdefault((cell.measure, cell.engine), []).append(seconds)

    def expected_s(self, cell: Cell) -> float:
        """What one more such cell should take."""
        own = self._took.get((cell.measure, cell.engine), [])
        alike = [value for (measure, _), values in self._took.items() if measure == cell.measure for value in values]
        known = own or alike
        return sum(known) / len(known) if known else estimate_s(cell.measure, self._size)

    def left_s(self, todo: Iterable[Cell]) -> float:
        """What all of them should take."""
        return sum(self.expected_s(cell) for cell in todo)


def minutes_text(seconds: float) -> str:
    """A time left, as people say it.

    >>> minutes_text(40), minutes_text(170), minutes_text(7300)
    ('40 s', '3 min', '2 h 2 min')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
