"""The summary on the terminal: the verdict, both latency curves on one scale, and the table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockstep.bench.demo.figures import BEFORE_S, sparkline
from lockstep.bench.demo.results import Results, seconds

CURVE_WIDTH = 54


def show_summary(results: Results, console: Console | None = None) -> None:
    """Print it on stdout, plain where no terminal is listening."""
    console = console or Console(highlight=False)
    console.print()
    if console.encoding.startswith("utf"):
        _curves(results, console)
    console.print(_table(results))
    console.print()
    if results.complaints:
        console.print(Text("NOT as promised:", style="bold red"))
        for complaint in results.complaints:
            console.print(Text(f"  {complaint}"), soft_wrap=True)
    else:
        alerts = sum(measured.part.comparison.published for measured in results.parts)
        text = f"As promised: {alerts:,} alerts, none lost, none twice, all digests agreed."
        console.print(Text(text, style="bold green"), soft_wrap=True)


def _curves(results: Results, console: Console) -> None:
    """Each curve is a line of bars; under each a mark for every kill."""
    end_s = max(measured.end_s for measured in results.parts)
    console.print(Text(f"latency, {BEFORE_S:.0f} s before the first kill to {end_s:.0f} s after it", style="dim"))
    for measured, title in zip(results.parts, results.titles(), strict=True):
        line = sparkline(measured.points, -BEFORE_S, end_s, results.top_s, CURVE_WIDTH)
        worst = seconds(max(point.latency_s for point in measured.points))
        console.print(Text(f"{title:>12} {line:<{CURVE_WIDTH}} max {worst}"), soft_wrap=True)
        places = {int((at_s + BEFORE_S) / (end_s + BEFORE_S) * CURVE_WIDTH) for at_s in measured.kills_s}
        marks = "".join("x" if place in places else " " for place in range(CURVE_WIDTH)).rstrip()
        console.print(Text(f"{'kill -9':>12} {marks}", style="red"), soft_wrap=True)
    console.print()


def _table(results: Results) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    table.add_column("")
    for title in results.titles():
        table.add_column(title, justify="right")
    for row in results.rows():
        table.add_row(row.label, *row.values)
    return table
