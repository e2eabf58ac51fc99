"""`lockstep status`: whether a job is well; made for probes as much as for people."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lockstep.cli.ledger import JobName
from lockstep.cli.live_table import STATE_STYLES, replica_table
from lockstep.cli.output import out, print_json, rate_text, span_text, waiting_text
from lockstep.cli.project import project_of
from lockstep.clock import wall_us

if TYPE_CHECKING:
    from lockstep.control.status.overview import Overview


def status(
    context: typer.Context,
    job: JobName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Say how a job is (healthy, starting, degraded, stalled, stopping, stopped, not running), with lag and latency.

    Exit code 0 if healthy, 1 if not: a probe needs nothing else.

    [bold]Examples[/bold]

      lockstep status

      lockstep status failed-logins --json | jq .state

      lockstep status > /dev/null || echo "somebody should look"
    """
    from lockstep.connect.letters import dead_letters
    from lockstep.control.status.overview import Watcher
    from lockstep.control.status.report import status_report

    project = project_of(context)
    with project.open_store(job) as (name, store), closing(dead_letters(project.home, name, store)) as letters:
        overview = Watcher(store, letters).look(wall_us())
        report = status_report(name, store, overview)
    if as_json:
        print_json(report)
    else:
        _show(report, overview)
    raise typer.Exit(0 if overview.health.state == "healthy" else 1)


def _show(report: dict[str, Any], overview: Overview) -> None:
    health = overview.health
    out.print(
        Text.assemble((report["job"], "bold"), " is ", (health.state, STATE_STYLES[health.state]), f": {health.reason}")
    )
    head = report["head"]
    out.print(
        Text("no epoch is sealed yet" if head is None else f"head: epoch {head['epoch']} of {head['epoch_time'][:-4]}Z")
    )
    if health.replicas:
        out.print()
        out.print(replica_table(health.replicas))
    for replica in health.replicas:
        for said in filter(None, (replica.note, replica.executors_text, replica.work, replica.environment)):
            out.print(Text(f"{replica.replica}: {said}"))
    for spare in report["spares"]:
        on = f" on {spare['host']}" if spare.get("host") else ""
        out.print(Text(f"spare: {'ready' if spare['ready'] else 'booting'}, pid {spare['pid']}{on}"))
    out.print()
    if overview.rows_per_s:
        out.print(Text(f"rows/s: {rate_text(overview.rows_per_s)}"))
    if overview.held:
        out.print(Text(f"held back: {waiting_text(overview.held)}"))
    _show_latency(report["latency_ms"])
    _show_divergence(report)
    if overview.dead_letters:
        where = f"lockstep dead-letters {report['job']}"
        out.print(Text(f"dead letters: {overview.dead_letters:,} wait; {where} lists them", style="yellow"))


def _show_latency(latency: dict[str, float]) -> None:
    if not latency.get("count"):
        out.print(Text("latency: nothing with records was published yet"))
        return
    figures = "  ".join(f"{name} {span_text(latency[name])}" for name in ("p50", "p90", "p99", "max"))
    out.print(Text(f"latency: {figures}  ({latency['count']:,.0f} epochs)"))


def _show_divergence(report: dict[str, Any]) -> None:
    from lockstep.store.protocols import subject_text

    last = report["last_divergence"]
    if last is None:
        out.print(Text("divergence: none"))
        return
    where = (
        f"epoch {last['epoch']}, {subject_text(last['sink'])}, replica {last['replica']}, at {last['at']} "
        f"({last['verdict']})"
    )
    out.print(Text.assemble((f"divergence: {report['divergences']}", "bold red"), f", the last: {where}"))
    out.print(Text(last["detail"], style="dim"))
