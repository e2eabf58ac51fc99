"""`lockstep token`: the secret that hosts show each other."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.output import to_stderr

_NEXT = """\
next: copy the file to every host of the cluster, to the same place and with the same mode, for example
  scp -p {path} HOST:{path}
or put its content into the variable LOCKSTEP_TOKEN there."""


def token(
    file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where it is kept.", show_default="~/.config/lockstep/token"),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the token itself, to put it elsewhere.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Make another one; hosts that have the old one are refused from then on.")
    ] = False,
) -> None:
    """Make the token that the hosts of a cluster show each other, and say where it is.

    Agents refuse whoever does not have it, and listen on addresses that others can reach only with it (or with TLS
    certificates). Make one on one host and copy the file to the others. It is read by its owner alone (mode 600), and
    is in no log, event or error. A token that is there already stays. On one machine none is needed.

    [bold]Examples[/bold]

      lockstep token

      lockstep token --show | ssh host2 'umask 077; mkdir -p ~/.config/lockstep; cat > ~/.config/lockstep/token'

      lockstep token --file /etc/lockstep/token --replace
    """
    from lockstep import security

    path = (file or security.default_token_file()).expanduser().absolute()
    if path.exists() and not replace:
        # What is there is checked: a file that others can read is named now, not when an agent starts.
        known = security.load_token(path, environ={})
        to_stderr(f"the token made before is in {path}")
    else:
        known = security.new_token()
        security.write_token(path, known, replace=replace)
        to_stderr(f"a new token is in {path}\n{_NEXT.format(path=path)}")
    sys.stdout.write(f"{known if show else path}\n")
