"""`lockstep dead-letters`: the records that a job has set aside; look at them, export them, put them back."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from lockstep.cli.ledger import JobName
from lockstep.cli.output import out, print_json, to_stderr
from lockstep.cli.project import project_of
from lockstep.errors import EnvironmentError_

if TYPE_CHECKING:
    from lockstep.connect.put_back import PutBack
    from lockstep.store.dead_letters import DeadLetters, Letter

_CUT = 300
"""How much of a record is shown; all of it is in an export."""


def dead_letters(
    context: typer.Context,
    job: JobName = None,
    source: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of this source.", show_default=False)
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only those of this step.", show_default=False)
    ] = None,
    first: Annotated[int, typer.Option(metavar="N", min=1, help="How many to list, oldest first.")] = 20,
    export: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help='Write them as JSON lines into a new file; "-" is stdout.', show_default=False
        ),
    ] = None,
    put_back: Annotated[bool, typer.Option("--put-back", help="Give them to their sources again, each once.")] = False,
    whole_record: Annotated[
        bool,
        typer.Option(
            "--whole-record",
            help="With --put-back: also records that a function could not take. They go through the whole job again, "
            "also through steps that had taken them.",
        ),
    ] = False,
    dismiss: Annotated[bool, typer.Option("--dismiss", help="Wait for them no longer; they stay on disk.")] = False,
    handled: Annotated[
        bool, typer.Option("--handled", help="List or export also those put back or dismissed before.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """List the records that a job has set aside, with the reasons; export them, put them back, or dismiss them.

    A record becomes a dead letter if it does not parse or does not fit its source's schema (on_bad_record="skip", the
    default of ls.files), or if a function raised for it (on_error="skip"). Everything else of the epoch goes on. With
    more than dead_letters_max of them waiting the job stops.

    Mend the cause first (the schema, the function), run the job with it, then put them back: a line of a file goes into
    a new file beside the old one, a record of a journal is appended to it. Which ones are put back is remembered: a
    second call puts back nothing twice. What cannot be put back stays, with the reason: a record of a file that a
    function could not take is found again only while the source has the schema that it was read with.

    [bold]Examples[/bold]

      lockstep dead-letters orders

      lockstep dead-letters orders --source payments --export bad.jsonl

      lockstep dead-letters orders --export - | jq -r .error | sort | uniq -c

      lockstep dead-letters orders --put-back

      lockstep dead-letters orders --step parse --dismiss
    """
    _check_one_act(export=export is not None, put_back=put_back, dismiss=dismiss, handled=handled)
    with _opened(context, job) as (name, letters):
        chosen = [
            one for one in letters.letters(handled=handled) if source in (None, one.source) and step in (None, one.step)
        ]
        if export is not None:
            _export(chosen, export)
        elif put_back:
            _show_put_back(_put_back(context, name, letters, chosen, whole_record=whole_record), name, as_json=as_json)
        elif dismiss:
            _dismiss(letters, chosen, as_json=as_json)
        elif as_json:
            print_json(
                {"job": name, "open": letters.open(), "kept": letters.kept(), "letters": _as_json(chosen[:first])}
            )
        else:
            _list(name, letters, chosen, first)


@contextmanager
def _opened(context: typer.Context, job: str | None) -> Iterator[tuple[str, DeadLetters]]:
    from lockstep.connect.letters import dead_letters

    project = project_of(context)
    with project.open_store(job) as (name, store), closing(dead_letters(project.home, name, store)) as letters:
        yield name, letters


def _check_one_act(*, export: bool, put_back: bool, dismiss: bool, handled: bool) -> None:
    if export + put_back + dismiss > 1 or (handled and (put_back or dismiss)):
        raise EnvironmentError_(
            "LS0017",
            "one thing at a time",
            why="--export, --put-back and --dismiss are each a call of their own, and --handled is for looking only.",
            hint="export first, then put back or dismiss.",
        )


def _put_back(
    context: typer.Context, name: str, letters: DeadLetters, chosen: Sequence[Letter], *, whole_record: bool
) -> PutBack:
    from lockstep.connect.protocols import Place
    from lockstep.connect.put_back import put_back

    project = project_of(context)
    with project.open_store(name) as (_, store):
        place = Place(project.folder, project.home, name, address=project.address)
        return put_back(place, store, letters, chosen, whole_record=whole_record)


def _show_put_back(done: PutBack, job: str, *, as_json: bool) -> None:
    if as_json:
        print_json({"job": job, "records": done.records, "places": done.places, "stay": done.stay})
        return
    to_stderr(f"{done.records:,} records put back" if done.records else "nothing to put back")
    for where in done.places:
        to_stderr(f"  {where}")
    for why, count in Counter(done.stay.values()).items():
        to_stderr(f"{count:,} stay: {why}")


def _dismiss(letters: DeadLetters, chosen: Sequence[Letter], *, as_json: bool) -> None:
    from lockstep.connect.put_back import dismiss

    if chosen:
        dismiss(letters, chosen)
    if as_json:
        print_json({"dismissed": len(chosen), "open": letters.open()})
    else:
        to_stderr(f"{len(chosen):,} dead letters dismissed; {letters.open():,} wait")


def _as_json(letters: Sequence[Letter]) -> list[dict[str, object]]:
    return [asdict(letter) for letter in letters]


def _export(letters: Sequence[Letter], target: str) -> None:
    lines = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in _as_json(letters))
    if target == "-":
        sys.stdout.write(lines)
        return
    try:
        with Path(target).open("x", encoding="utf-8") as file:
            file.write(lines)
    except OSError as error:
        raise EnvironmentError_(
            "LS0018",
            f"cannot write {target}",
            why=f"{error.strerror or error}.",
            hint="name a file that is not there yet, or - for stdout.",
        ) from None
    to_stderr(f"{len(letters):,} dead letters written to {target}; they still wait")


def _list(job: str, letters: DeadLetters, chosen: Sequence[Letter], first: int) -> None:
    waiting, kept = letters.open(), letters.kept()
    if not kept:
        to_stderr(f"{job} has no dead letters")
        return
    to_stderr(f"{waiting:,} dead letters of {job} wait, {kept - waiting:,} were put back or dismissed")
    for letter in islice(chosen, first):
        out.print(Text.assemble((f"#{letter.number}", "bold"), f"  {_where(letter)}"), soft_wrap=True)
        out.print(Text(f"    {letter.error}", style="yellow"), soft_wrap=True)
        if letter.record:
            out.print(Text(f"    {_shown(letter)}", style="dim"), soft_wrap=True)
    if len(chosen) > first:
        to_stderr(f"and {len(chosen) - first:,} more: --first N, or --export FILE")


def _where(letter: Letter) -> str:
    if letter.step == letter.source:
        return f"{letter.source}: {letter.partition}, line {letter.offset:,}"
    if not letter.source:
        return f"{letter.step}: a row that an aggregation made"
    return f"{letter.step}: record {letter.offset:,} of {letter.source}, partition {letter.partition}"


def _shown(letter: Letter) -> str:
    text = letter.record.replace("\n", "\n    ")
    return text if len(text) <= _CUT else f"{text[:_CUT]}..."
