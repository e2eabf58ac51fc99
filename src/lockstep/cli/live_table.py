"""The live table of `lockstep run`: the job and its replicas, redrawn in place; events scroll away above it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.text import Text

from lockstep.cli.output import plain_table, rate_text, span_text, time_text, waiting_text
from lockstep.control.status.event_words import event_style, event_text, is_divergence

if TYPE_CHECKING:
    from rich.table import Table

    from lockstep.control.status.health import Event, ReplicaHealth
    from lockstep.control.status.overview import Overview

STATE_STYLES = {
    "healthy": "bold green",
    "starting": "bold cyan",
    "stopping": "bold cyan",
    "stopped": "bold cyan",
    "degraded": "bold red",
    "stalled": "bold red",
    "not running": "bold red",
}
_REPLICA_STYLES = {
    "running": "green",
    "catching-up": "yellow",
    "starting": "cyan",
    "seeding": "cyan",
    "diverged": "bold red",
    "failed": "bold red",
    "given up": "bold red",
}
_WAIT_NOTE = "a JVM takes 10 to 20 seconds to boot"


class LiveTable:
    """Shows a run on a terminal."""

    interval_s = 0.25

    def __init__(self, job: str, console: Console) -> None:
        self._job = job
        self._console = console
        # No thread of its own: it is drawn when the supervisor has looked, and costs nothing in between.
        self._live = Live(console=console, auto_refresh=False, redirect_stdout=False)
        self._note = ""
        self._drawing = False

    def begin(self) -> None:
        """Take over the bottom of the terminal."""
        self._live.start()
        self._drawing = True

    def show(self, overview: Overview) -> None:
        """Draw the job as it is; new events go above the table and stay."""
        for event in overview.events:
            self._console.print(_event(event))
        self._live.update(live_table(self._job, overview, self._note), refresh=True)

    def say(self, text: str) -> None:
        """Keep a line below the table until something else is to be said."""
        if self._drawing:
            self._note = text
        else:
            self._console.print(Text(text, style="bold"))

    def end(self, last: Overview) -> None:
        """Leave the last state on the terminal."""
        self._note = ""
        self.show(last)
        self._live.stop()
        self._drawing = False


def live_table(job: str, overview: Overview, note: str = "") -> Group:
    """What is redrawn: the job in one line, its replicas, and why if it is not well."""
    health = overview.health
    parts: list[Text | Table] = [_job_line(job, overview), replica_table(health.replicas)]
    if health.state in ("degraded", "stalled", "not running") and not note:
        parts.append(Text(f"{health.state}: {health.reason}", style="bold red"))
    elif health.state == "starting":
        parts.append(Text(f"{health.reason}: {_WAIT_NOTE}", style="dim"))
    elif health.state == "healthy" and not all(one.within_lead for one in health.replicas):
        parts.append(Text(health.reason, style="yellow"))
    if overview.held:
        parts.append(Text(waiting_text(overview.held), style="dim"))
    if note:
        parts.append(Text(note, style="bold"))
    return Group(*parts)


def _job_line(job: str, overview: Overview) -> Text:
    state = overview.health.state
    line = Text.assemble((job, "bold"), "  ", (state, STATE_STYLES[state]))
    if overview.head_epoch >= 0:
        line.append(f"  epoch {overview.head_epoch:,}  {rate_text(overview.rows_per_s)} rows/s")
    if overview.latency_ms.get("count"):
        p50, p99 = (span_text(overview.latency_ms[name]) for name in ("p50", "p99"))
        line.append(f"  latency p50 {p50}, p99 {p99}")
    if overview.dead_letters:
        line.append(f"  {overview.dead_letters:,} dead letters", style="yellow")
    return line


def replica_table(replicas: tuple[ReplicaHealth, ...]) -> Table:
    """One row for each replica; fits 80 columns."""
    table = plain_table("replica", "state", "epoch", "lag", "per epoch", "restarts", "pid")
    for index in range(2, 7):
        table.columns[index].justify = "right"
    for one in replicas:
        known = one.starting_s is None and one.epoch >= 0
        table.add_row(
            one.replica,
            state_text(one),
            f"{one.epoch:,}" if known else "",
            f"{one.lag_epochs:,}" if known else "",
            span_text(one.epoch_s * 1000) if one.epoch_s and known else "",
            str(one.restarts),
            f"{one.host} {one.pid or ''}".strip() if one.host else str(one.pid or ""),
        )
    return table


def state_text(one: ReplicaHealth) -> Text:
    """A replica's state in its colour; while it starts, with the seconds."""
    if one.starting_s is not None:
        return Text(f"{one.state} {one.starting_s:.0f} s", style=_REPLICA_STYLES[one.state])
    if not one.alive and one.state not in ("stopped", "failed", "given up", "not started"):
        return Text("gone", style="bold red")
    return Text(one.state, style=_REPLICA_STYLES.get(one.state, ""))


def _event(event: Event) -> Text | Panel:
    if is_divergence(event):
        title = Text(" REPLICAS DISAGREE ", style="bold white on red")
        return Panel(Text(event_text(event)), title=title, title_align="left", border_style="bold red")
    return Text.assemble((time_text(event[1])[:-4], "dim"), " ", (event_text(event), event_style(event)))
