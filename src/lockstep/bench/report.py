"""What a bench answers: figures, verdicts about targets, notes; as tables for people and as JSON for programs."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockstep.bench.statistics import Row
from lockstep.errors import LockstepError
from lockstep.machine import find_java

RESULTS_FOLDER = Path("benchmarks") / "results"
WIDTH = 160
_PACKAGES = ("lockstep", "pyspark", "pyarrow", "pandas")


@dataclass(frozen=True)
class Verdict:
    """A target, what came out, and whether that meets it. ``limit`` is a ceiling, or a floor with ``at_least``."""

    target: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the value keeps the limit.

        >>> Verdict("gap", 1.5, 2.0).met, Verdict("rate", 0.8, 0.9, at_least=True).met
        (True, False)
        """
        if math.isnan(self.value):
            return False
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(frozen=True)
class Figures:
    """One table: rows that all have the same columns."""

    title: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Report:
    """Everything one bench found."""

    bench: str
    quick: bool
    settings: Mapping[str, object]
    """What was run, so that it can be run again."""
    tables: Sequence[Figures]
    verdicts: Sequence[Verdict] = ()
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def met(self) -> bool:
        """Whether all targets are met."""
        return all(verdict.met for verdict in self.verdicts)


def as_json(report: Report, at: datetime | None = None) -> dict[str, object]:
    """The report as plain data, with the machine and the versions it was made on."""
    return {
        "bench": report.bench,
        "quick": report.quick,
        "at": f"{at or datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "machine": machine(),
        "versions": versions(),
        "settings": dict(report.settings),
        "tables": {table.title: [_finite(row) for row in table.rows] for table in report.tables},
        "targets": [
            {
                "target": verdict.target,
                "value": _rounded(verdict.value),
                "limit": verdict.limit,
                "kind": "at least" if verdict.at_least else "at most",
                "met": verdict.met,
            }
            for verdict in report.verdicts
        ],
        "notes": list(report.notes),
    }


def save(report: Report, project: Path) -> Path:
    """Write the report to ``benchmarks/results`` in the project folder, by bench and time."""
    at = datetime.now(UTC)
    path = project / RESULTS_FOLDER / f"{report.bench}{'-quick' if report.quick else ''}-{at:%Y-%m-%dT%H%M}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_json(report, at), indent=2) + "\n", encoding="utf-8")
    return path


def show(report: Report, console: Console) -> None:
    """Print the report as tables."""
    console = _wide(console)
    console.print(Text(f"lockstep bench {report.bench}{' --quick' if report.quick else ''}", style="bold"))
    console.print(Text(" ".join(f"{key}={value}" for key, value in machine().items()), style="dim"), soft_wrap=True)
    for figures in report.tables:
        show_table(figures, console)
    console.print()
    for verdict in report.verdicts:
        console.print(_line(verdict), soft_wrap=True)
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"), soft_wrap=True)


def show_table(figures: Figures, console: Console) -> None:
    """Print one table with its title."""
    console = _wide(console)
    console.print()
    console.print(Text(figures.title, style="bold"))
    console.print(_table(figures.rows), soft_wrap=True)


def _wide(console: Console) -> Console:
    """Into a pipe or a file: headings on one line rather than at 80 characters."""
    return console if console.is_terminal else Console(file=console.file, width=WIDTH, highlight=False)


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    return {
        "system": platform.system(),
        "arch": platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
    }


def versions() -> dict[str, str]:
    """The versions that the figures belong to."""
    found = {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
    try:
        found["java"] = str(find_java().version)
    except LockstepError as error:
        found["java"] = error.fact
    if commit := _commit():
        found["commit"] = commit
    return found


def _commit() -> str | None:
    """Which code was measured, if this is a clone of the repository."""
    git = shutil.which("git")
    if git is None:
        return None
    here = Path(__file__).parent
    said = subprocess.run([git, "rev-parse", "--short", "HEAD"], cwd=here, capture_output=True, text=True, check=False)
    if said.returncode:
        return None
    changed = subprocess.run([git, "diff", "--quiet", "HEAD", "--", here], cwd=here, check=False).returncode
    return said.stdout.strip() + (" and changes" if changed else "")


def cell(value: object) -> str:
    """A value as a table shows it: three or four digits that matter, thousands apart.

    >>> [cell(value) for value in (0.01234, 3.14159, 123.456, 1234567.8, 12, True, None, "r0")]
    ['0.012', '3.14', '123', '1,234,568', '12', 'yes', '-', 'r0']
    """
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return _float_cell(value)
        case _:
            return str(value)


def _float_cell(value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 1 else f"{value:.3f}"


def _table(rows: Sequence[Row]) -> Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row.get(column)) for column in columns))
    return table


def _line(verdict: Verdict) -> Text:
    kind = "at least" if verdict.at_least else "at most"
    word, style = ("met    ", "bold green") if verdict.met else ("NOT MET", "bold red")
    return Text.assemble(
        (word, style), f" {verdict.target}: {cell(verdict.value)} ({kind} {cell(verdict.limit)})", no_wrap=True
    )


def _finite(row: Row) -> dict[str, object]:
    """JSON has no nan: a figure that could not be measured is null."""
    return {key: _rounded(value) for key, value in row.items()}


def _rounded(value: object) -> object:
    if not isinstance(value, float):
        return value
    return float(f"{value:.6g}") if math.isfinite(value) else None
