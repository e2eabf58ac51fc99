"""`lockstep service-token`: who may ask the service, and for what."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lockstep.cli.output import iso_text, out, plain_table, print_json, to_stderr
from lockstep.cli.service import AsJson

app = typer.Typer(
    help="Tokens for `lockstep serve`: make, list and revoke them. Without any, only this machine may ask.",
    no_args_is_help=True,
)
File = Annotated[
    Path | None,
    typer.Option(
        "--file", metavar="FILE", help="Where they are kept.", show_default="~/.config/lockstep/service-tokens.json"
    ),
]


class Scope(StrEnum):
    """What a token allows; each implies those before it."""

    read = "read"
    operate = "operate"
    submit = "submit"


@app.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.", show_default=False)],
    scope: Annotated[Scope, typer.Option(help="read: look; operate: change jobs, send records; submit: new code.")] = (
        Scope.read
    ),
    file: File = None,
) -> None:
    """Make a token and print it, this once: only a hash is kept.

    [bold]Examples[/bold]

      lockstep service-token create dashboard

      LOCKSTEP_SERVICE_TOKEN=$(lockstep service-token create ann --scope submit) lockstep list --service http://...
    """
    from lockstep.serve.tokens import TokenBook

    book = TokenBook(_path(file))
    made = book.create(name, scope.value)
    to_stderr(f'the token "{name}" may {scope.value}; it is shown this once, and its hash is in {book.path}')
    sys.stdout.write(made + "\n")


@app.command("list")
def list_(file: File = None, as_json: AsJson = False) -> None:
    """List the tokens: names, scopes, when they were made. The tokens themselves nobody knows.

    [bold]Examples[/bold]

      lockstep service-token list
    """
    from lockstep.serve.tokens import TokenBook

    found = TokenBook(_path(file)).all()
    if as_json:
        print_json([{"name": one.name, "scope": one.scope, "made_us": one.made_us} for one in found])
        return
    table = plain_table("name", "scope", "made")
    for one in found:
        table.add_row(one.name, one.scope, iso_text(one.made_us)[:19] + "Z")
    out.print(table) if found else to_stderr("there are no tokens: the service answers this machine alone")


@app.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", show_default=False)],
    file: File = None,
) -> None:
    """Take a token away: services refuse it from the next request on, and sessions that began with it end.

    [bold]Examples[/bold]

      lockstep service-token revoke ann
    """
    from lockstep.serve.tokens import TokenBook

    TokenBook(_path(file)).revoke(name)
    to_stderr(f'the token "{name}" is not valid any more')


def _path(file: Path | None) -> Path:
    from lockstep.serve.tokens import default_tokens_file

    return (file or default_tokens_file()).expanduser().absolute()
