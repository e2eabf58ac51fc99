"""`lockstep services`: real servers (Kafka, ZooKeeper, Postgres, Spark, HDFS) for tests, for as long as it runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from lockstep.cli.output import out, plain_table, print_json, print_json_line, to_stderr

if TYPE_CHECKING:
    from lockstep.services import Node

app = typer.Typer(
    help="Start real servers for development and tests: Kafka, ZooKeeper, Postgres, Spark, HDFS.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

EXIT_NOTHING = 1
_LOOK_S = 0.5


@app.command("up")
def up(
    wanted: Annotated[
        list[str],
        typer.Argument(
            metavar="SERVICE[=NODES]...", help="kafka, zookeeper, postgres, spark, hdfs.", show_default=False
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep data and logs here, and go on with them.", show_default="thrown away"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the addresses as one line of JSON.")] = False,
) -> None:
    """Start services on free ports of this machine's loopback, print their addresses, and end them with Ctrl-C.

    What cannot be had on this machine is skipped, with how to get it; exit code 1 if nothing is left. Kafka
    (unless KAFKA_HOME names one) and HDFS are fetched once with Maven's client. However this command ends, the servers
    end.

    [bold]Examples[/bold]

      lockstep services up kafka zookeeper postgres

      lockstep services up kafka=3 zookeeper=3 --folder /tmp/servers

      lockstep services up spark=2     (a standalone master and two workers)
    """
    from lockstep import services
    from lockstep.services.descriptions import wish

    possible = []
    for text in wanted:
        why_not = services.missing(wish(text).kind)
        if why_not is None:
            possible.append(text)
        else:
            to_stderr(f"{text}: skipped: {why_not}")
    if not possible:
        raise typer.Exit(EXIT_NOTHING)
    with _terminated_like_interrupted():
        try:
            with services.running(*possible, folder=folder, say=to_stderr) as there:
                addresses = {kind: service.address for kind, service in there.items()}
                if as_json:
                    print_json_line(addresses)
                else:
                    for kind, address in addresses.items():
                        out.print(f"{kind:<10} {address}", soft_wrap=True)
                to_stderr("all of them answer; Ctrl-C ends them")
                _watch([node for service in there.values() for node in service.nodes])
        except KeyboardInterrupt:
            to_stderr("ended")


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False) -> None:
    """Say which services can be started on this machine, from what, and how to get the others."""
    from lockstep.services.descriptions import KINDS
    from lockstep.services.finding import Missing, available

    found = {kind: available(kind) for kind in KINDS}
    if as_json:
        print_json(
            {
                kind: {"available": False, "why": one.why, "hint": one.hint}
                if isinstance(one, Missing)
                else {"available": True, "source": one.source}
                for kind, one in found.items()
            }
        )
        return
    table = plain_table("service", "here", "")
    for kind, one in found.items():
        table.add_row(kind, *(("no", str(one)) if isinstance(one, Missing) else ("yes", one.source)))
    out.print(table)


@app.command("install")
def install(
    kinds: Annotated[
        list[str], typer.Argument(metavar="SERVICE...", help="kafka, postgres, hdfs, s3a.", show_default=False)
    ],
) -> None:
    """Get what is missing: as root with apt-get, else from PyPI, and Kafka's jars with Maven's client.

    s3a is no server: it is Spark's client for S3, for jobs that have their checkpoints at an s3a: address. Nothing
    else installs anything: this is the only command that does.

    [bold]Examples[/bold]

      lockstep services install kafka postgres
    """
    from lockstep.services.descriptions import wish
    from lockstep.services.installing import fetch_s3a
    from lockstep.services.installing import install as get

    for text in kinds:
        if text == "s3a":
            fetch_s3a(to_stderr)
        else:
            get(wish(text).kind, to_stderr)


def _watch(nodes: list[Node]) -> None:
    """Until Ctrl-C; a node that ends by itself is an error (LS0023)."""
    while True:
        time.sleep(_LOOK_S)
        for node in nodes:
            node.check_alive()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM (a service manager, a closing shell) ends the servers in order too.

    And SIGINT also where it is ignored from the start, as in the background of a script.
    """

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
