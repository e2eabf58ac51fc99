"""`lockstep run`: run a job as several replicas until it is stopped."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import typer

from lockstep.cli.assignments import assignments, plain_value
from lockstep.cli.live_table import LiveTable
from lockstep.cli.output import err, show_error, to_stderr
from lockstep.cli.plain_lines import JsonLines, PlainLines
from lockstep.cli.plan import JobFile
from lockstep.cli.project import project_of
from lockstep.clock import wall_us
from lockstep.errors import LockstepError

if TYPE_CHECKING:
    from lockstep.control.start.run import PreparedRun
    from lockstep.control.status.overview import Overview, Watcher

_STOPPING = "stopping: the epoch under way is finished first; Ctrl-C again stops at once (nothing is lost either way)"
_STOPPING_HARD = "stopping at once: the epoch under way is computed again by the next run"
EXIT_FAILED = 1
EXIT_REFUSED = 2


def run(
    context: typer.Context,
    job: JobFile,
    replicas: Annotated[
        int | None, typer.Option("--replicas", "-n", min=1, max=16, help="How many replicas; 1 is the plain mode.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(metavar="URL", help="Where Spark runs: local[1], with more cores local[4].")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A setting of the run, e.g. epoch_interval_s=0.5 (repeatable)."
        ),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(
            "--spark-conf", metavar="KEY=VALUE", help="A setting of Spark, e.g. spark.ui.enabled=true (repeatable)."
        ),
    ] = None,
    until_epoch: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Stop when epoch N is published (for tests and scripts).")
    ] = None,
    until_done: Annotated[
        bool,
        typer.Option(
            "--until-done",
            help="Process all the input there is, bring event time to its end (every window closes), and end.",
        ),
    ] = False,
    available_now: Annotated[
        bool,
        typer.Option(
            "--available-now",
            help="Process what is there when the run begins, and end; windows stay open, and the next run goes on.",
        ),
    ] = False,
    savepoint: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="SAVEPOINT",
            help="Begin with the state of a savepoint: its name, JOB/NAME, or the folder of a copy. For a job that has "
            "not run yet.",
            show_default=False,
        ),
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option(
            "--take-over",
            help="Supervise the job from here, whoever does now: its replicas go on, the other `lockstep run` ends.",
        ),
    ] = False,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach",
            help="On several hosts: hand the job over to them and end; `lockstep stop` stops it.",
        ),
    ] = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Write a status every second and each event as JSON lines (to stderr if the job prints its output).",
        ),
    ] = False,
) -> None:
    """Run a job; run it again in the same folder and it goes on where it was.

    Ctrl-C finishes the epoch under way and stops; a second Ctrl-C stops at once, and loses nothing either.

    Exit code 0 after a graceful stop, 1 if the job failed or was stopped at once, 2 if it was refused.

    [bold]Examples[/bold]

      lockstep run job.py

      lockstep run job.py --replicas 3 --set on_divergence=continue

      lockstep run job.py --available-now

      lockstep run job.py --until-done

      lockstep run job_v2.py --from failed-logins/before-upgrade

      lockstep run jobs.py:alerts --master 'local[4]' --spark-conf spark.sql.shuffle.partitions=4
    """
    project = project_of(context).folder
    try:
        ends = {"until_done": until_done, "available_now": available_now}
        overrides = _run_overrides(replicas, settings) | {name: True for name, wanted in ends.items() if wanted}
        spark = _spark_overrides(master, spark_conf)
        prepared = _prepared(job, project, overrides, spark, take_over=take_over, savepoint=savepoint)
        if detach:
            _hand_over(prepared)
            raise typer.Exit
    except LockstepError as error:
        show_error(error)
        raise typer.Exit(EXIT_REFUSED) from None
    raise typer.Exit(_run(prepared, project, until_epoch, as_json=as_json))


def _run_overrides(replicas: int | None, settings: list[str] | None) -> dict[str, Any]:
    given: dict[str, Any] = {key: plain_value(value) for key, value in assignments("--set", settings).items()}
    return given if replicas is None else {**given, "replicas": replicas}


def _spark_overrides(master: str | None, spark_conf: list[str] | None) -> dict[str, Any]:
    conf: dict[str, Any] = {"conf": assignments("--spark-conf", spark_conf)}
    return conf if master is None else {**conf, "master": master}


def _prepared(
    job: str,
    project: Path,
    run_overrides: dict[str, Any],
    spark_overrides: dict[str, Any],
    *,
    take_over: bool,
    savepoint: str | None,
) -> PreparedRun:
    from lockstep.api.loading import load_job

    loaded = load_job(job)
    # Imported late: PySpark takes a second to load, and a typo in the job should not wait for it.
    loaded.job.graph()
    from lockstep.control.start.run import prepare_run

    return prepare_run(
        loaded, project, run_overrides, spark_overrides, replace_supervisor=take_over, savepoint=savepoint
    )


def _hand_over(prepared: PreparedRun) -> None:
    """Let the hosts go on with the job."""
    from lockstep.control.start.run import hand_over

    hosts = ", ".join(prepared.agents.contacts())
    hand_over(prepared)
    name = prepared.graph.name
    to_stderr(f"job {name}: handed over to {hosts}; see `lockstep status {name}`, stop it with `lockstep stop {name}`")
    prepared.store.close()


class Display(Protocol):
    """Where a run is shown."""

    interval_s: float
    """The job is looked at, and shown, no more often than this."""

    def begin(self) -> None:
        """The run begins."""

    def show(self, overview: Overview) -> None:
        """Show the job as it is, and the events since the last time."""

    def say(self, text: str) -> None:
        """Tell the person something."""

    def end(self, last: Overview) -> None:
        """The run is over; this is how it ended."""


def _run(prepared: PreparedRun, project: Path, until_epoch: int | None, *, as_json: bool) -> int:
    from lockstep.config import STORE_FOLDER
    from lockstep.connect.letters import dead_letters
    from lockstep.control.start.run import run_job
    from lockstep.control.status.overview import Watcher

    name = prepared.graph.name
    prints_rows = any(sink.spec.kind == "console" for sink in prepared.graph.sinks)
    display = _display(name, prints_rows=prints_rows, as_json=as_json)
    introduction = _introduction(prepared, project)
    if isinstance(display, JsonLines):
        display.write("begin", introduction)
    else:
        _introduce(introduction)
    letters = dead_letters(project / STORE_FOLDER, name, prepared.store)
    watcher = Watcher(prepared.store, letters)
    follower = Follower(prepared, watcher, display, until_epoch)
    display.begin()
    failure: LockstepError | None = None
    try:
        run_job(prepared, follower.tick)
    except LockstepError as error:
        failure = error
    finally:
        follower.tell_stop()
        last = watcher.look(wall_us())
        display.end(last)
        letters.close()
        prepared.store.close()
    at_once = prepared.supervisor.stops > 1
    if failure is None:
        display.say(_ending(prepared, last, at_once=at_once))
    else:
        _show_failure(display, failure, name)
    if last.dead_letters:
        display.say(f"{last.dead_letters:,} dead letters wait: lockstep dead-letters {name}")
    return EXIT_FAILED if failure is not None or at_once else 0


def _display(name: str, *, prints_rows: bool, as_json: bool) -> Display:
    if as_json:
        return JsonLines(name, sys.stderr if prints_rows else sys.stdout)
    # A table that is redrawn would be torn apart by the rows that a console sink prints.
    redrawn = err.is_terminal and not err.is_dumb_terminal and not prints_rows
    return LiveTable(name, err) if redrawn else PlainLines(name)


def _introduction(prepared: PreparedRun, project: Path) -> dict[str, Any]:
    from lockstep.config import STORE_FOLDER
    from lockstep.runtime.spec import replica_folder, replica_names

    names = replica_names(prepared.settings.run.replicas)
    head = prepared.store.head()
    folders = [replica_folder(Path(STORE_FOLDER), prepared.graph.name, name) for name in names]
    hosts = [name for name in prepared.agents.contacts() if name]
    return {
        "job": prepared.graph.name,
        "project": str(project),
        "replicas": len(names),
        "master": prepared.settings.spark.master,
        "hosts": hosts,
        "goes_on_after_epoch": None if head is None else head.epoch,
        "sinks": [
            {"sink": sink.id, "place": sink.spec.describe(), "guarantee": sink.given}
            for sink in prepared.graph.sinks
            if sink.spec.kind != "stage"
        ],
        "logs": [str(folder / "log.txt") for folder in folders],
    }


def _introduce(facts: dict[str, Any]) -> None:
    count = facts["replicas"]
    after = facts["goes_on_after_epoch"]
    where = "from the beginning" if after is None else f"going on after epoch {after}"
    to_stderr(f"job {facts['job']}: {count} replica{'s' if count > 1 else ''} on {facts['master']}, {where}")
    if facts["hosts"]:
        to_stderr(f"  hosts   {', '.join(facts['hosts'])}; logs are below the folders of their agents")
    for sink in facts["sinks"]:
        to_stderr(f"  output  {sink['place']}, {sink['guarantee']}")
    logs = facts["logs"]
    to_stderr(
        f"  logs    {logs[0]}" + (f" (and r1 to r{count - 1})" if count > 2 else " (and r1)" if count > 1 else "")
    )
    to_stderr("  stop    Ctrl-C (finishes the epoch under way)")


def _ending(prepared: PreparedRun, last: Overview, *, at_once: bool) -> str:
    done = prepared.supervisor.done and not at_once
    if done and prepared.settings.run.available_now:
        return f"done: what was there is processed and published, up to epoch {last.published_epoch}"
    if done:
        return f"done: all input is processed and published, in {last.published_epoch + 1} epochs"
    how = "stopped at once" if at_once else "stopped"
    if last.published_epoch < 0:
        return f"{how} before the first epoch was published; the next run begins there"
    return f"{how} after epoch {last.published_epoch}; the next run goes on from there"


def _show_failure(display: Display, failure: LockstepError, job: str) -> None:
    from lockstep.config import STORE_FOLDER
    from lockstep.runtime.spec import replica_folder

    if isinstance(display, JsonLines):
        display.write("error", {name: getattr(failure, name) for name in ("code", "fact", "why", "hint")})
    show_error(failure)
    to_stderr(f"  logs: {replica_folder(Path(STORE_FOLDER), job, '*') / 'log.txt'}")


class Follower:
    """Called by the supervisor ten times a second: looks when it is time to, and shows what it saw."""

    def __init__(self, prepared: PreparedRun, watcher: Watcher, display: Display, until_epoch: int | None) -> None:
        self._supervisor = prepared.supervisor
        self._watcher = watcher
        self._display = display
        self._until_epoch = until_epoch
        self._next_s = 0.0
        self._stops_told = 0

    def tick(self) -> None:
        """Look and show, if the interval has passed."""
        self.tell_stop()
        if time.monotonic() < self._next_s:
            return
        overview = self._watcher.look(wall_us())
        self._display.show(overview)
        self._next_s = time.monotonic() + self._display.interval_s
        if (
            self._until_epoch is not None
            and self._supervisor.stops == 0
            and self._until_epoch <= overview.published_epoch
        ):
            self._stops_told = 1
            self._display.say(f"epoch {self._until_epoch} is published: stopping")
            self._supervisor.stop()

    def tell_stop(self) -> None:
        """Say what a signal has set going, once."""
        stops = min(2, self._supervisor.stops)
        if stops > self._stops_told:
            self._stops_told = stops
            if self._supervisor.failure is None and not (self._supervisor.done and stops == 1):
                self._display.say(_STOPPING if stops == 1 else _STOPPING_HARD)
