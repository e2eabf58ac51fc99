"""`lockstep agent`: make this host one of those that jobs run on."""

from __future__ import annotations

import platform
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from lockstep.cli.output import to_stderr
from lockstep.cli.project import project_of
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.config import HostSettings

PORT = 7411


def agent(
    context: typer.Context,
    store: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="The store that all hosts share. Default: that of lockstep.toml."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where other hosts reach this one. Port 0: any free one.")
    ] = f"127.0.0.1:{PORT}",
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where jobs keep what they have on this host. Default: the project folder."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What this host is called. Default: its host name.")
    ] = None,
) -> None:
    """Make this host one of those that jobs run on, until it is stopped (Ctrl-C lets replicas finish their epoch).

    Start one on every host, with the same store and the same token (`lockstep token`).

    From then on `lockstep run` in a project with that store places the replicas of a job on different hosts.

    It listens on loopback unless told otherwise, and on other addresses only with a token or certificates.

    [bold]Examples[/bold]

      lockstep agent --store zookeeper://h1:2181,h2:2181,h3:2181/lockstep --listen 10.0.0.1:7411

      lockstep --project /srv/lockstep agent --listen 10.0.0.1:7411 --name rack2-host7
    """
    from lockstep.agent.host import Host, HostAgent
    from lockstep.config import load_settings
    from lockstep.runtime.transfer.snapshots import host_token, tls_files
    from lockstep.security import check_listening
    from lockstep.store.names import checked_name
    from lockstep.store.opening import embedded_folder

    place = (folder or project_of(context).folder).expanduser().resolve()
    place.mkdir(parents=True, exist_ok=True)
    settings = load_settings(place if folder is not None else project_of(context).folder)
    address = store or settings.store
    if embedded_folder(address) is not None:
        raise EnvironmentError_(
            "LS0035",
            f"the store {address} is on this host alone",
            why="hosts find each other by a store that all of them reach.",
            hint="lockstep agent --store zookeeper://HOST:2181/lockstep (`lockstep services up zookeeper` starts one).",
        )
    called = checked_name("host", name or platform.node())
    token = host_token(settings.hosts)
    tls = tls_files(settings.hosts)
    listening = _listening(listen, has_token=token is not None, settings=settings.hosts)
    host, port = listening.getsockname()[:2]
    # By its address too: what a name leads to may be another one than it says.
    check_listening(host, has_token=token is not None, asks_for_certificates=tls is not None)
    reached = f"{'https' if tls is not None else 'http'}://{host}:{port}"
    one = HostAgent(Host(called, place, address, reached, settings.hosts))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: one.stop())
    taken_up = one.prepare()
    to_stderr(f"host {called} at {reached}, store {address}, folder {place}")
    if taken_up:
        to_stderr(f"goes on with: {', '.join(taken_up)}")
    one.serve_host(listening, token, tls.for_serving() if tls is not None else None)
    to_stderr(f"host {called} has stopped")


def _listening(where: str, *, has_token: bool, settings: HostSettings) -> socket.socket:
    parts = urlsplit(f"//{where}")
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    if not host or port is None or host in ("0.0.0.0", "::"):  # noqa: S104 - refused
        raise EnvironmentError_(
            "LS0034",
            f'"{where}" is no address to listen on',
            hint="write it as HOST:PORT, with the address by which other hosts reach this one.",
        )
    from lockstep.security import check_listening

    check_listening(host, has_token=has_token, asks_for_certificates=bool(settings.tls_certificate))
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise EnvironmentError_(
            "LS0036",
            f"{where} cannot be listened on",
            why=f"{error.strerror or error}.",
            hint="is another agent running here, and is it an address of this host? --listen HOST:0 takes a free port.",
        ) from None
    listening.listen(64)
    return listening
