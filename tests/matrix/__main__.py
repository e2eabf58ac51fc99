"""Runs the matrix: ``python -m tests.matrix``, or some of it; writes ``matrix-report.html``."""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from lockstep.testing.session import opened_session
from tests.matrix.case import Case
from tests.matrix.life import MAIN_EVENTS, Cell, History, Life
from tests.matrix.plants import PLANTS
from tests.matrix.report import has_failed, page, summary, text_table
from tests.matrix.table import CASES

REPORT = "matrix-report.html"
SHAPES = (1, 2, 3)
FOLDER = "my jobs, größer & más"
"""People call their folders what they like."""


def lived(
    case: Case, shapes: Sequence[int], seed: int, told: Callable[[str], None], only: Sequence[str] = ()
) -> dict[tuple[str, int], list[Cell]]:
    """One job in every shape through its life, or through ``only`` these events.

    In a session of its own: plans, broadcasts and state of dozens of starts do not fit into one heap for long.
    """
    table: dict[tuple[str, int], list[Cell]] = {}
    like: History | None = None
    with _folder() as scratch, opened_session(Path(scratch)) as session:
        for partitions in shapes:
            told(f"{case.name}, {partitions} partitions")
            with _folder() as folder:
                life = Life(case, session, Path(folder) / FOLDER, partitions, seed, like)
                cells = table[case.name, partitions] = life.live(lambda cell: told(_line(cell)), only)
            if like is None and all(cell.outcome != "failed" for cell in cells):
                like = life.history
    # What Python still knows of the old session's objects keeps them alive in the JVM.
    gc.collect()
    return table


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="lockstep-matrix-", ignore_cleanup_errors=True)


def _line(cell: Cell) -> str:
    return f"  {cell.outcome:<15}{cell.took_s:6.1f} s  {cell.event}" + (f"\n    {cell.why}" if cell.why else "")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description="Every job through its whole life.")
    parser.add_argument("--jobs", default="", help="only jobs whose name or family contains one of these, by comma")
    parser.add_argument("--partitions", default=",".join(map(str, SHAPES)), help="shapes of the first replica")
    parser.add_argument("--seed", type=int, default=1, help="of the random inputs")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="make an old mistake again: the matrix has to fail")
    parser.add_argument("--report", type=Path, default=Path(REPORT), help="where the page goes")
    parser.add_argument("--short", action="store_true", help="only the main events of a life: a third of the time")
    parser.add_argument("--list", action="store_true", help="only say which jobs there are")
    return parser.parse_args(arguments)


def chosen(names: str) -> list[Case]:
    """The jobs that were asked for, by their whole name or by a part of name or family; all of them for none."""
    parts = [part.strip().lower() for part in names.split(",") if part.strip()]
    return [case for case in CASES if not parts or any(_is_meant(case, part) for part in parts)]


def _is_meant(case: Case, part: str) -> bool:
    if any(part == one.name.lower() for one in CASES):
        return part == case.name.lower()
    return part in f"{case.family} {case.name}".lower()


def main(arguments: Sequence[str]) -> int:
    """1 if any cell failed."""
    options = _options(arguments)
    cases, shapes = chosen(options.jobs), [int(one) for one in options.partitions.split(",")]
    if options.list:
        print("\n".join(f"{case.family:<12} {case.name}" for case in cases))
        return 0
    table: dict[tuple[str, int], list[Cell]] = {}
    # What a job prints is caught; this goes where it always goes.
    told = partial(print, file=sys.stdout, flush=True)
    with PLANTS[options.plant]() if options.plant else nullcontext():
        for number, case in enumerate(cases, 1):
            told(f"{case.name} (job {number} of {len(cases)})")
            table |= lived(case, shapes, options.seed, told, MAIN_EVENTS if options.short else ())
    options.report.write_text(page(table, options.seed), encoding="utf-8")
    print(f"\n{text_table(table)}\n\n{summary(table)}\n{options.report}")
    return 1 if has_failed(table) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
