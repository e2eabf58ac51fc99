"""`lockstep why`: what a job decided about its own shape, from which figures, and what came of it."""

from __future__ import annotations

from typing import Annotated

import typer

from lockstep.cli.ledger import JobName
from lockstep.cli.output import out, print_json, to_stderr
from lockstep.cli.project import project_of


def why(
    context: typer.Context,
    job: JobName = None,
    last: Annotated[int, typer.Option(metavar="N", min=1, max=200, help="How many of the newest decisions.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decisions as JSON.")] = False,
) -> None:
    """Say what a job decided or advises about its partitions and replicas, why, and what came of it. Newest first.

    What it may decide, and what matters to you, is in the table [policy] of lockstep.toml.

    [bold]Examples[/bold]

      lockstep why

      lockstep why failed-logins --last 3

      lockstep why --json | jq '.decisions[0].inputs'
    """
    from lockstep.control.policy.decisions import FACT, decode, explain

    with project_of(context).open_store(job) as (name, store):
        decisions = decode(store.fact(FACT))[-last:]
    if as_json:
        print_json({"job": name, "decisions": [one.to_json() for one in reversed(decisions)]})
    elif decisions:
        out.print(explain(decisions), soft_wrap=True, markup=False)
    else:
        to_stderr(f'job "{name}" has decided nothing yet: nothing had to be changed, or [policy] is off')
