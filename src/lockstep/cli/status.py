"""`lockstep status`: whether a job is well; made for probes as much as for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lockstep.cli.health import Health, ReplicaHealth, judge_health
from lockstep.cli.ledger import JobName
from lockstep.cli.output import iso_text, out, plain_table, print_json, span_text
from lockstep.cli.project import Project, project_of
from lockstep.clock import wall_us

if TYPE_CHECKING:
    from lockstep.store.protocols import Store

_STYLES = {"healthy": "bold green", "degraded": "bold yellow", "not running": "bold red"}
_SET_ASIDE_SHOWN_MAX = 5


def status(
    context: typer.Context,
    job: JobName = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the status as JSON.")] = False,
) -> None:
    """Say how a job is: healthy, degraded or not running; its replicas, their lag, latency, divergences.

    Exit code 0 if healthy, 1 if degraded or not running: a probe needs nothing else.

    [bold]Examples[/bold]

      lockstep status

      lockstep status failed-logins --json | jq .state

      lockstep status > /dev/null || echo "somebody should look"
    """
    project = project_of(context)
    with project.open_store(job) as (name, store):
        health = _health(project, store)
        report = _report(name, store, health)
    if as_json:
        print_json(report)
    else:
        _show(report, health)
    raise typer.Exit(0 if health.state == "healthy" else 1)


def _health(project: Project, store: Store) -> Health:
    import psutil

    from lockstep.config import load_settings

    settings = load_settings(project.folder).run
    head = store.head()
    return judge_health(
        store.progress(),
        -1 if head is None else head.epoch,
        wall_us(),
        lead_epochs_max=settings.lead_epochs_max,
        # A waiting replica reports with every heartbeat at least; one that is silent this long has left the set.
        silence_max_s=max(settings.lag_timeout_s, 3 * settings.heartbeat_interval_s),
        pid_exists=psutil.pid_exists,
    )


def _report(name: str, store: Store, health: Health) -> dict[str, Any]:
    head = store.head()
    divergences = store.divergences()
    last = divergences[-1] if divergences else None
    return {
        "job": name,
        "state": health.state,
        "healthy": health.state == "healthy",
        "degraded": health.state == "degraded",
        "reason": health.reason,
        "head": None if head is None else {"epoch": head.epoch, "epoch_time": iso_text(head.epoch_time_us)},
        "replicas": [_replica_json(replica) for replica in health.replicas],
        "latency_ms": store.latency_ms(),
        "divergences": len(divergences),
        "last_divergence": None
        if last is None
        else {
            "epoch": last.epoch,
            "sink": last.sink,
            "replica": last.replica,
            "at": iso_text(last.at_us),
            "verdict": last.verdict or "open",
            "detail": last.detail,
        },
        "set_aside": [
            {"source": source, "position": position, "reason": reason}
            for source, position, reason in store.set_aside_items()
        ],
    }


def _replica_json(replica: ReplicaHealth) -> dict[str, Any]:
    return {
        "replica": replica.replica,
        "state": replica.state,
        "alive": replica.alive,
        "epoch": replica.epoch,
        "lag_epochs": replica.lag_epochs,
        "within_lead": replica.within_lead,
        "epoch_ms": round(replica.epoch_s * 1000, 1),
        "restarts": max(0, replica.incarnation - 1),
        "pid": replica.pid,
        "note": replica.note,
    }


def _show(report: dict[str, Any], health: Health) -> None:
    head = report["head"]
    out.print(
        Text.assemble((report["job"], "bold"), " is ", (health.state, _STYLES[health.state]), f": {health.reason}")
    )
    out.print(
        Text("no epoch is sealed yet" if head is None else f"head: epoch {head['epoch']} of {head['epoch_time'][:-4]}Z")
    )
    if health.replicas:
        out.print()
        out.print(_replica_table(report["replicas"]))
    out.print()
    _show_latency(report["latency_ms"])
    _show_divergence(report)
    _show_set_aside(report["set_aside"])


def _replica_table(replicas: list[dict[str, Any]]) -> Any:
    table = plain_table("replica", "state", "epoch", "lag", "per epoch", "restarts", "pid", "note")
    for index in (2, 3, 4, 5, 6):
        table.columns[index].justify = "right"
    table.columns[-1].overflow, table.columns[-1].ratio = "fold", 1
    for replica in replicas:
        lost = not replica["alive"] and replica["state"] not in ("stopped", "failed")
        state = Text("gone", style="bold red") if lost else Text(replica["state"])
        table.add_row(
            replica["replica"],
            state,
            str(replica["epoch"]) if replica["epoch"] >= 0 else "none",
            str(replica["lag_epochs"]),
            span_text(replica["epoch_ms"]) if replica["epoch_ms"] else "",
            str(replica["restarts"]),
            str(replica["pid"]),
            Text(replica["note"]),
        )
    return table


def _show_latency(latency: dict[str, float]) -> None:
    if not latency.get("count"):
        out.print(Text("latency: nothing with records was published yet"))
        return
    figures = "  ".join(f"{name} {span_text(latency[name])}" for name in ("p50", "p90", "p99", "max"))
    out.print(Text(f"latency: {figures}  ({latency['count']:,.0f} epochs)"))


def _show_divergence(report: dict[str, Any]) -> None:
    last = report["last_divergence"]
    if last is None:
        out.print(Text("divergence: none"))
        return
    where = (
        f"epoch {last['epoch']} of sink {last['sink']}, replica {last['replica']}, at {last['at']} ({last['verdict']})"
    )
    out.print(Text.assemble((f"divergence: {report['divergences']}", "bold red"), f", the last: {where}"))
    out.print(Text(last["detail"], style="dim"))


def _show_set_aside(items: list[dict[str, Any]]) -> None:
    if not items:
        return
    out.print(Text(f"set aside: {len(items)}, not read by any replica:", style="yellow"))
    for item in items[-_SET_ASIDE_SHOWN_MAX:]:
        out.print(Text(f"  {item['source']} at {item['position']}: {item['reason']}"))
