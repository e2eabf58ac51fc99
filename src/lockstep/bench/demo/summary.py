"""The summary on the terminal: the verdict, both latency curves on one scale, and the table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockstep.bench.demo.figures import BEFORE_S, sparkline
from lockstep.bench.demo.story import Story, seconds

CURVE_WIDTH = 54


def show_summary(story: Story, console: Console | None = None) -> None:
    """Print it on stdout, plain where no terminal is listening."""
    console = console or Console(highlight=False)
    console.print()
    if console.encoding.startswith("utf"):
        _curves(story, console)
    console.print(_table(story))
    console.print()
    if story.complaints:
        console.print(Text("NOT as promised:", style="bold red"))
        for complaint in story.complaints:
            console.print(Text(f"  {complaint}"), soft_wrap=True)
    else:
        alerts = sum(chapter.part.comparison.published for chapter in story.chapters)
        text = f"As promised: {alerts:,} alerts, none lost, none twice, all digests agreed."
        console.print(Text(text, style="bold green"), soft_wrap=True)


def _curves(story: Story, console: Console) -> None:
    """Each curve is a line of bars; under each a mark for every kill."""
    end_s = max(chapter.end_s for chapter in story.chapters)
    console.print(Text(f"latency, {BEFORE_S:.0f} s before the first kill to {end_s:.0f} s after it", style="dim"))
    for chapter, title in zip(story.chapters, story.titles(), strict=True):
        line = sparkline(chapter.points, -BEFORE_S, end_s, story.top_s, CURVE_WIDTH)
        worst = seconds(max(point.latency_s for point in chapter.points))
        console.print(Text(f"{title:>12} {line:<{CURVE_WIDTH}} max {worst}"), soft_wrap=True)
        places = {int((at_s + BEFORE_S) / (end_s + BEFORE_S) * CURVE_WIDTH) for at_s in chapter.kills_s}
        marks = "".join("x" if place in places else " " for place in range(CURVE_WIDTH)).rstrip()
        console.print(Text(f"{'kill -9':>12} {marks}", style="red"), soft_wrap=True)
    console.print()


def _table(story: Story) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 3, 0, 0))
    table.add_column("")
    for title in story.titles():
        table.add_column(title, justify="right")
    for row in story.rows():
        table.add_row(row.label, *row.values)
    return table
