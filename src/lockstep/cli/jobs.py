"""Jobs as a whole: submit, list, describe, start, kill and delete them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from lockstep.cli.assignments import assignments, plain_value
from lockstep.cli.live_table import STATE_STYLES
from lockstep.cli.output import out, plain_table, print_json, rate_text, span_text, to_stderr
from lockstep.cli.plan import JobFile
from lockstep.cli.service import AsJson, JobName, ServiceUrl, chosen, opened
from lockstep.errors import RunError

if TYPE_CHECKING:
    from lockstep.serve import models
    from lockstep.serve.client import Client
    from lockstep.serve.desk import Desk

TAKEN_UP_S = 30.0
"""How long `submit` waits until somebody coordinates the job, before it says that nobody does."""
_LOOK_S = 0.2


def submit(
    context: typer.Context,
    job: JobFile,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-n", min=1, max=16, help="How many replicas; 1 is the plain mode.")
    ] = None,
    master: Annotated[str, typer.Option(metavar="URL", help="Where Spark runs: local[1], local[4].")] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the run (repeatable).")
    ] = None,
    spark_conf: Annotated[
        list[str] | None, typer.Option("--spark-conf", metavar="KEY=VALUE", help="A setting of Spark (repeatable).")
    ] = None,
    savepoint: Annotated[
        str, typer.Option("--from", metavar="JOB/NAME", help="A new job goes on from this savepoint.")
    ] = "",
    service: ServiceUrl = None,
) -> None:
    """Hand a job over to the service, and end: it is kept running, whatever becomes of this terminal.

    The job's file and the modules that it imports from its folder travel as a bundle. Without --service it goes to
    the project's own store: a `lockstep serve` there (or the agents of its hosts) runs it.

    [bold]Examples[/bold]

      lockstep submit job.py

      lockstep submit jobs.py:alerts --replicas 3 --service http://10.0.0.7:8470

      lockstep submit job_v2.py --from failed-logins/before-upgrade
    """
    with opened(context, service) as desk:
        run = {key: plain_value(value) for key, value in assignments("--set", settings).items()}
        conf = assignments("--spark-conf", spark_conf)
        taken = desk.submit(job, replicas=replicas, master=master, settings=run, spark_conf=conf, savepoint=savepoint)
        to_stderr(f"{taken.job} was submitted (bundle {taken.bundle[:16]})")
        _say_who_has_it(desk, taken.job)


def list_(context: typer.Context, as_json: AsJson = False, service: ServiceUrl = None) -> None:
    """List the jobs, and how each is.

    [bold]Examples[/bold]

      lockstep list

      lockstep list --service http://10.0.0.7:8470 --json
    """
    with opened(context, service) as desk:
        found = desk.jobs()
    if as_json:
        print_json([one.model_dump() for one in found])
    elif not found:
        to_stderr("there are no jobs; `lockstep submit job.py` makes one")
    else:
        table = plain_table("job", "state", "epoch", "rows/s", "replicas", "coordinator", "")
        for one in found:
            state = Text(one.state, style=STATE_STYLES.get(one.state, ""))
            note = "" if one.active else "deactivated"
            cells = [
                str(one.head_epoch),
                rate_text(one.rows_per_s),
                str(one.replicas_wanted),
                one.coordinator or "none",
            ]
            table.add_row(one.job, state, *cells, note)
        out.print(table)


def describe(context: typer.Context, job: JobName = None, as_json: AsJson = False, service: ServiceUrl = None) -> None:
    """Say all about a job: its state, replicas, spec, latency and the operation under way.

    [bold]Examples[/bold]

      lockstep describe

      lockstep describe failed-logins --json --service http://10.0.0.7:8470
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        said, spec = desk.describe(name), desk.spec(name)
    if as_json:
        print_json({**said.model_dump(), "spec": spec.model_dump()})
        return
    _show(said, spec)


def start(context: typer.Context, job: JobName = None, service: ServiceUrl = None) -> None:
    """Let a job that was stopped go on where it was, with the code and the settings that it had.

    [bold]Examples[/bold]

      lockstep start failed-logins
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        desk.start(name)
        _say_who_has_it(desk, name)


def kill(
    context: typer.Context,
    job: JobName = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0, help="How long to wait until it is over.")
    ] = 30.0,
    service: ServiceUrl = None,
) -> None:
    """End a job at once, without finishing the epochs under way. Nothing is lost: they are computed again.

    [bold]Examples[/bold]

      lockstep kill failed-logins
    """
    with opened(context, service) as desk:
        name = chosen(desk, job)
        desk.kill(name)
        deadline_s = time.monotonic() + timeout_s
        while (holder := desk.describe(name).coordinator) is not None:
            if time.monotonic() > deadline_s:
                raise RunError(
                    "LS0688",
                    f'job "{name}" has not ended yet',
                    why=f"{holder} still coordinates it after {timeout_s:.0f} s; it was told to end at once.",
                    hint=f"see `lockstep describe {name}`, or end that process.",
                )
            time.sleep(_LOOK_S)
        to_stderr(f"{name} has ended; `lockstep start {name}` lets it go on")


def delete(
    context: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB")],
    force: Annotated[
        bool, typer.Option("--force", help="Also if a host that has state of it does not answer: it is gone for good.")
    ] = False,
    service: ServiceUrl = None,
) -> None:
    """Forget a job that has stopped: its ledger, state, logs and dead letters. What it has published stays.

    On several hosts the agents of all of them remove what they have of it. If it was cut off, repeat it.

    [bold]Examples[/bold]

      lockstep delete failed-logins

      lockstep delete failed-logins --force
    """
    with opened(context, service) as desk:
        desk.delete(job, force=force)
        to_stderr(f"{job} is forgotten; what it has published and the journals that it read are still there")


def _say_who_has_it(desk: Desk | Client, job: str) -> None:
    """Wait a moment until somebody coordinates a job; a person should know if nobody does."""
    deadline_s = time.monotonic() + TAKEN_UP_S
    while (holder := desk.describe(job).coordinator) is None and time.monotonic() < deadline_s:
        time.sleep(_LOOK_S)
    if holder is not None:
        to_stderr(f"{job} is coordinated by {holder}; `lockstep describe {job}` shows how it is")
    else:
        to_stderr(f"{job} is to run, but nobody coordinates it yet: start `lockstep serve` in its project")


def _show(said: models.JobDescription, spec: models.Spec) -> None:
    style = STATE_STYLES.get(said.state, "")
    out.print(Text.assemble((said.job, "bold"), " is ", (said.state, style), f": {said.reason}"))
    facts: dict[str, Any] = {
        "wanted": "yes" if said.wanted else "no",
        "active": "yes" if said.active else "no: deactivated",
        "coordinator": said.coordinator or "none",
        "generation": f"{said.generation}, code {spec.code_hash[:16]}",
        "shape": f"{spec.replicas} replicas, {spec.partitions} partitions, master {spec.master}",
        "epochs": f"sealed {said.head_epoch}, published {said.published_epoch}",
        "rows/s": rate_text(said.rows_per_s),
        "latency": _latency(said.latency_ms),
        "divergences": said.divergences,
        "dead letters": said.dead_letters,
    }
    if said.operation is not None:
        facts["operation"] = f"{said.operation.number} {said.operation.kind}: {said.operation.state}"
    for name, value in facts.items():
        out.print(Text(f"  {name:<14}{value}"))
    table = plain_table("replica", "state", "epoch", "behind", "ms/epoch", "restarts", "pid", "host")
    for one in said.replicas:
        numbers = (one.epoch, one.lag_epochs, one.epoch_ms, one.restarts, one.pid)
        table.add_row(one.replica, one.state, *map(str, numbers), one.host)
    out.print(table)


def _latency(latency_ms: dict[str, float]) -> str:
    if not latency_ms.get("count"):
        return "nothing with records was published in the last minute"
    return ", ".join(f"{name} {span_text(latency_ms[name])}" for name in ("p50", "p99", "max"))
