"""`lockstep serve`: the service of a project."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.output import to_stderr
from lockstep.cli.project import project_of
from lockstep.errors import ServiceError

if TYPE_CHECKING:
    from lockstep.serve.server import Listening, Served
    from lockstep.serve.tokens import TokenBook

_STOP_S = 120.0


def serve(
    context: typer.Context,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes any that is free.")
    ] = "127.0.0.1:8470",
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tokens of callers.", show_default="~/.config/lockstep/service-tokens.json"),
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--tls-certificate", metavar="FILE", help="The service's certificate, in PEM.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key, in PEM.")] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen for other machines without TLS: tokens can be read on the way.")
    ] = False,
    stop_jobs: Annotated[
        bool, typer.Option("--stop-jobs", help="When it ends, stop the jobs that it keeps running, too.")
    ] = False,
    demo: Annotated[
        bool, typer.Option("--demo", help="Serve a job that lives, in a folder of its own; both end with the service.")
    ] = False,
) -> None:
    """Serve the jobs of a project: REST and pages, and every submitted job is kept running.

    Each job has a coordinator in a process of its own. Jobs go on when the service ends (Ctrl-C, kill, a crash); the
    next `lockstep serve` finds them. A coordinator that dies is started again, and adopts its replicas.

    On one machine nothing has to be set up: it listens on 127.0.0.1, for this machine alone. Another address needs
    tokens (`lockstep service-token create NAME`) and TLS.

    [bold]Examples[/bold]

      lockstep serve

      lockstep serve --demo

      lockstep --project /srv/fraud serve --listen 127.0.0.1:0

      lockstep serve --listen 0.0.0.0:8470 --tls-certificate service.pem --tls-key service.key
    """
    from lockstep.serve.client import not_installed

    try:
        from lockstep.serve.server import Listening, Served
    except ImportError as error:
        raise not_installed(error) from None
    from lockstep.serve.tokens import TokenBook, default_tokens_file

    book = TokenBook((tokens or default_tokens_file()).expanduser().absolute())
    place = Listening.parsed(listen, certificate, key)
    place.check(has_tokens=bool(book.all()), insecure=insecure)
    if demo:
        _demo(book, place)
        return
    served = Served(project_of(context).folder, book, place)
    _introduce(served, place, has_tokens=book.is_used)
    served.run(to_stderr)
    _end(served, stop_jobs=stop_jobs)


def _demo(book: TokenBook, place: Listening) -> None:
    """The demo's job with a steady input, to look at and to hurt; nothing is left of it afterwards."""
    from lockstep.bench.demo.living import demo_project, living_job
    from lockstep.serve.server import Served

    with demo_project() as folder:
        served = Served(folder, book, place)
        try:
            with living_job(folder):
                to_stderr(f"the pages, with a job that lives: {place.url(served.port)}")
                to_stderr("  1,000 records a second, two replicas; they take half a minute to boot")
                to_stderr("  try     kill -9 PID, with a process from the page of its replicas")
                to_stderr("  stop    Ctrl-C; the job and its folder go, too")
                served.run(to_stderr)
        finally:
            _end(served, stop_jobs=True)


def _introduce(served: Served, place: Listening, *, has_tokens: bool) -> None:
    to_stderr(f"serving {served.service.project} at {place.url(served.port)}")
    if not has_tokens:
        to_stderr("  only this machine is answered: no tokens were made (`lockstep service-token create NAME`)")
    to_stderr(f"  submit  lockstep submit job.py --service {place.url(served.port)}")
    to_stderr("  stop    Ctrl-C; jobs go on")


def _end(served: Served, *, stop_jobs: bool) -> None:
    """Say what becomes of the jobs."""
    jobs = served.kept()
    try:
        if not stop_jobs:
            to_stderr(
                f"the service has ended; {', '.join(jobs)} go{'es' if len(jobs) == 1 else ''} on without it. "
                "`lockstep serve` finds them again, `lockstep stop JOB` stops one"
                if jobs
                else "the service has ended; no job runs"
            )
            return
        for job in jobs:
            to_stderr(f"stopping {job} after the epoch under way")
            served.service.verbs(job).stop()
        deadline_s = time.monotonic() + _STOP_S
        while (left := served.running(jobs)) and time.monotonic() < deadline_s:
            time.sleep(0.2)
        if left:
            raise ServiceError(
                "LS0763",
                f"{', '.join(left)} have not stopped yet",
                why=f"they were told to, {_STOP_S:.0f} s ago.",
                hint="lockstep list",
            )
    finally:
        served.close()
