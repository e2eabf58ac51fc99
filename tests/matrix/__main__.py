"""Runs the matrix: ``python -m tests.matrix``, or some of it; writes ``matrix-report.html``.

Each job has a process of its own: plans, broadcasts and state of dozens of starts do not fit into one heap for long.
What a job came to is kept in a folder, so that a run that was ended goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
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
    """One job in every shape through its life, or through ``only`` these events."""
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
    parser.add_argument("--at-once", type=int, default=2, help="jobs side by side, each in a process of its own")
    parser.add_argument(
        "--results", type=Path, help="a folder for what each job came to; a job that has its file there is not run"
    )
    parser.add_argument("--only", action="store_true", help=argparse.SUPPRESS)  # the process of one job
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
    with nullcontext(options.results) if options.results else _folder() as results:
        folder = Path(results)
        folder.mkdir(parents=True, exist_ok=True)
        if options.only:
            return _one(cases[0], shapes, options, folder)
        with ThreadPoolExecutor(options.at_once) as threads:
            # Waited for one after the other: Ctrl-C ends all of them, they are in the terminal's group.
            for done in [threads.submit(_in_a_process, case, arguments, folder) for case in cases]:
                done.result()
        table = {key: cells for case in cases for key, cells in _read(folder, case).items()}
    options.report.write_text(page(table, options.seed), encoding="utf-8")
    print(f"\n{text_table(table)}\n\n{summary(table)}\n{options.report}")
    return 1 if has_failed(table) else 0


def _one(case: Case, shapes: Sequence[int], options: argparse.Namespace, folder: Path) -> int:
    """The process of one job; what it came to goes into a file, whole or not at all."""
    # What a job prints is caught; this goes where it always goes.
    told = partial(print, file=sys.stdout, flush=True)
    with PLANTS[options.plant]() if options.plant else nullcontext():
        table = lived(case, shapes, options.seed, told, MAIN_EVENTS if options.short else ())
    rows = [[name, partitions, [asdict(cell) for cell in cells]] for (name, partitions), cells in table.items()]
    half = _file(folder, case).with_suffix(".half")
    half.write_text(json.dumps(rows), encoding="utf-8")
    half.replace(_file(folder, case))
    return 0


def _in_a_process(case: Case, arguments: Sequence[str], folder: Path) -> None:
    if _file(folder, case).exists():
        print(f"{case.name}: as kept in {folder}", flush=True)
        return
    own = ["--jobs", case.name, "--results", str(folder), "--only"]
    done = subprocess.run([sys.executable, "-m", "tests.matrix", *arguments, *own], check=False)
    if done.returncode != 0:
        print(f"{case.name}: its process ended with {done.returncode}", flush=True)


def _file(folder: Path, case: Case) -> Path:
    return folder / f"{case.name.replace(' ', '-')}.json"


def _read(folder: Path, case: Case) -> dict[tuple[str, int], list[Cell]]:
    """What a job came to; a process that left nothing has failed."""
    if not _file(folder, case).exists():
        return {(case.name, 0): [Cell("run", "failed", "its process ended by itself; see above")]}
    rows = json.loads(_file(folder, case).read_text(encoding="utf-8"))
    return {(name, partitions): [Cell(**cell) for cell in cells] for name, partitions, cells in rows}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
