"""Running a comparison: cell after cell, engines alternating, every result verified, nothing measured ever lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.compare import growth
from benchmarks.compare.live_run import remove
from benchmarks.compare.measures import MEASURE, Outcome, Task
from benchmarks.compare.plan import CORE, FULL, GROWTH, MEASURES, QUICK, Cell, Remaining, Size, cells, minutes_text
from benchmarks.compare.results import Document, cell_facts, new_document
from benchmarks.engines.catalogue import ENGINES, engine, workload, workloads
from benchmarks.engines.contract import Engine, Workload
from benchmarks.errors import BenchmarkError
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.errors import LockstepError

BULK_WORKLOAD = "bounded_window"
KILLED_WORKLOAD = "word_count"
"""Failover and restart are looked at where every record gives a result at once: a window would hide the gap."""


@dataclass(frozen=True)
class Selection:
    """What the person asked for; None means the usual."""

    workloads: Sequence[str] = ()
    engines: Sequence[str] = ()
    measures: Sequence[str] = ()
    quick: bool = False
    rounds: int | None = None
    minutes: float | None = None

    @property
    def size(self) -> Size:
        """How long and how often."""
        size = QUICK if self.quick else FULL
        return size if self.rounds is None else replace(size, rounds=self.rounds)


@dataclass(frozen=True)
class Agenda:
    """What is going to be measured, and what is not and why."""

    engines: Sequence[Engine]
    workloads: Mapping[str, Workload]
    todo: Sequence[Cell]
    left_out: Sequence[tuple[Cell, str]]


def agenda(selection: Selection) -> Agenda:
    """The cells of a selection; unknown names are refused, and what cannot run is left out with the reason."""
    every = workloads(quick=selection.quick)
    measures = [_known_measure(name) for name in selection.measures] or [*MEASURES, *GROWTH]
    wanted = [engine(name) for name in selection.engines or _usual_engines(quick=selection.quick)]
    there = {one.name: one for one in wanted}
    for name in selection.workloads:
        workload(name, quick=selection.quick)
    chosen = {name: _workloads_of(name, selection, every) for name in measures if name in MEASURES}
    planned = cells([name for name in MEASURES if name in measures], chosen, list(there), selection.size.rounds)
    if growth.ENGINE in there:
        planned += _growth_cells(measures, quick=selection.quick)
    reasons = [(cell, _reason(cell, there, every)) for cell in planned]
    return Agenda(
        engines=wanted,
        workloads={name: one for name, one in every.items() if any(cell.workload == name for cell in planned)},
        todo=[cell for cell, reason in reasons if reason is None],
        left_out=[(cell, reason) for cell, reason in reasons if reason is not None],
    )


def _usual_engines(*, quick: bool) -> list[str]:
    """All there are; quickly those alone that read files, since that is what they have in common."""
    return [name for name in ENGINES if not (quick and "journal" in name)]


def _known_measure(name: str) -> str:
    if name not in (*MEASURES, *GROWTH):
        known = ", ".join((*MEASURES, *GROWTH))
        raise BenchmarkError("BM01", f"there is no measure {name}", hint=f"those there are: {known}.")
    return name


def _workloads_of(measure: str, selection: Selection, every: Mapping[str, Workload]) -> list[str]:
    """Which workloads a measure looks at, if nobody chose."""
    if selection.workloads:
        return list(selection.workloads)
    live = [name for name, one in every.items() if one.bounded_records is None]
    match measure:
        case "latency":
            return [name for name in live if name in CORE] if selection.quick else live
        case "throughput":
            at_once = [name for name in every if name not in live]
            return [BULK_WORKLOAD] if selection.quick else [*at_once, *(name for name in live if name in CORE)]
        case _:
            return [KILLED_WORKLOAD]


def _growth_cells(measures: Sequence[str], *, quick: bool) -> list[Cell]:
    return [
        Cell(measure, str(number), growth.ENGINE, 0)
        for measure in GROWTH
        if measure in measures
        for number in growth.sizes(measure, quick=quick)
    ]


def _reason(cell: Cell, engines: Mapping[str, Engine], every: Mapping[str, Workload]) -> str | None:
    """Why a cell is not measured."""
    one = engines[cell.engine]
    if (missing := one.missing()) is not None:
        return missing
    if cell.measure in GROWTH:
        return None
    asked = every[cell.workload]
    if (unsupported := one.supports(asked)) is not None:
        return unsupported
    if cell.measure == "throughput":
        return "a silence has no throughput" if any(source.quiet_s for source in asked.inputs) else None
    return "it is there at once" if asked.bounded_records is not None else None


class Comparing:
    """One comparison under way."""

    def __init__(self, selection: Selection, folder: Path, say: Say, command: str, *, keep: bool = False) -> None:
        self._selection = selection
        self._folder = folder
        self._say = say
        self._keep = keep
        self._agenda = agenda(selection)
        self._remaining = Remaining(selection.size)
        self._begun_s = time.monotonic()
        found = self._agenda
        self.document: Document = new_document(
            found.engines, found.workloads, selection.size, command, quick=selection.quick
        )
        for cell, reason in found.left_out:
            self.document["cells"].append(cell_facts(cell, 0.0, skipped=reason))

    def run(self, store: Callable[[Document], None]) -> Document:
        """Measure everything; Ctrl-C (or the end of the time that was given) ends it with what there is."""
        todo = list(self._agenda.todo)
        self._say(f"{len(todo)} measurements, about {minutes_text(self._remaining.left_s(todo))}")
        try:
            for number, cell in enumerate(todo):
                if self._is_time_over(cell):
                    self._say(f"the time is over: {len(todo) - number} measurements are left out")
                    self.document["interrupted"] = True
                    break
                self._measure(cell, number, todo)
                store(self.document)
        except KeyboardInterrupt:
            self.document["interrupted"] = True
            self._say("interrupted: what was measured is kept")
            store(self.document)
        return self.document

    def _is_time_over(self, cell: Cell) -> bool:
        if self._selection.minutes is None:
            return False
        left_s = self._selection.minutes * 60 - (time.monotonic() - self._begun_s)
        return self._remaining.expected_s(cell) > left_s

    def _measure(self, cell: Cell, number: int, todo: Sequence[Cell]) -> None:
        begun_s = time.monotonic()
        place = self._folder / f"{number:03d}-{cell.measure}-{cell.engine}"
        try:
            outcome = self._outcome(cell, place)
            found: dict[str, Any] = vars(outcome)
            said = one_line(cell, outcome)
        except LockstepError as error:
            found, said = {"error": str(error)}, f"failed: {error.fact}"
        took_s = time.monotonic() - begun_s
        self._remaining.took(cell, took_s)
        self.document["cells"].append(cell_facts(cell, took_s, at_us=wall_us(), **found))
        self.document["took_s"] = round(time.monotonic() - self._begun_s, 1)
        left = minutes_text(self._remaining.left_s(todo[number + 1 :]))
        self._say(f"{number + 1} of {len(todo)}, {left} left: {cell}: {said}")

    def _outcome(self, cell: Cell, place: Path) -> Outcome:
        size = self._selection.size
        if cell.measure in GROWTH:
            found = growth.grow(cell.measure, int(cell.workload), place, size)
        else:
            asked = workload(cell.workload, quick=self._selection.quick)
            task = Task(engine(cell.engine), asked, place, size, quick=self._selection.quick)
            found = MEASURE[cell.measure](task)
        if not self._keep and found.check["right"]:
            # Input and output of one measurement are tens of megabytes; of a wrong one all stays until the end.
            remove(place)
        return found


def one_line(cell: Cell, outcome: Outcome) -> str:
    """A cell's main figures for the person who waits."""
    names = {
        "latency": ("p50_ms", "p99_ms", "max_ms", "cpu_cores"),
        "throughput": ("records_per_s",),
        "failover": ("longest_gap_s", "worst_wait_ms", "normal_after_s"),
        "restart": ("fresh_result_s",),
    }.get(cell.measure, ("period_p50_ms", "period_p90_ms"))
    found = [f"{name} {_short(outcome.figures.get(name))}" for name in names]
    return ", ".join([*found, result_text(outcome.check)])


def _short(value: object) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def result_text(check: Mapping[str, Any]) -> str:
    """Whether the results were right, in words.

    >>> result_text({"right": True, "live_repeated": 0})
    'right'
    >>> result_text({"right": False, "lost": 3, "repeated": 0, "wrong": 2, "live_repeated": 0})
    'WRONG: 3 lost, 2 wrong'
    >>> result_text({"right": True, "lost": 0, "repeated": 0, "wrong": 0, "live_repeated": 900})
    'right; a live reader saw 900 rows again'
    """
    again = check.get("live_repeated") or 0
    if check["right"]:
        return f"right; a live reader saw {again:,} rows again" if again else "right"
    parts = [f"{check[name]:,} {name}" for name in ("lost", "repeated", "wrong") if check.get(name)]
    return f"WRONG: {', '.join(parts) or 'no results'}"
