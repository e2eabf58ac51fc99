"""`lockstep explain`: the page of an error code."""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from rich.padding import Padding
from rich.text import Text

from lockstep.cli.output import out, plain_table, print_json
from lockstep.errors import EnvironmentError_
from lockstep.errors.page import Page, all_pages

_NEAR_MAX = 4


def explain(
    code: Annotated[str | None, typer.Argument(help="A code such as LS0107 (107 will do).", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the page as JSON.")] = False,
) -> None:
    """Say what an error code means and what to do about it; without a code, list them all.

    [bold]Examples[/bold]

      lockstep explain LS0107

      lockstep explain
    """
    pages = all_pages()
    if code is None:
        _list(pages, as_json)
        return
    full = _full_code(code)
    if full not in pages:
        raise _unknown(code, full, pages)
    page = pages[full]
    if as_json:
        print_json({"code": full, "title": page.title, "text": page.text})
    elif out.is_terminal:
        out.print(Text.assemble((full, "bold red"), " ", (page.title, "bold")))
        out.print()
        out.print(Padding(Text(page.text), (0, 2)))
    else:
        sys.stdout.write(f"{full} {page.title}\n\n{page.text}\n")


def _list(pages: dict[str, Page], as_json: bool) -> None:
    if as_json:
        print_json([{"code": code, "title": page.title} for code, page in pages.items()])
        return
    table = plain_table("code", "title")
    for code, page in pages.items():
        table.add_row(code, Text(page.title))
    out.print(table)


def _full_code(text: str) -> str:
    """The code someone means by "LS0107", "ls107" or "107"."""
    match = re.fullmatch(r"(?:LS)?0*(\d{1,4})", text.strip().upper())
    return f"LS{int(match.group(1)):04d}" if match else text.strip().upper()


def _near(full: str, pages: dict[str, Page]) -> list[str]:
    """Codes of the same area, the nearest numbers first; a word that is no code has none near it."""
    if not re.fullmatch(r"LS\d{4}", full):
        return []
    area = [name for name in pages if name[:4] == full[:4]]
    return sorted(sorted(area, key=lambda name: abs(int(name[2:]) - int(full[2:])))[:_NEAR_MAX])


def _unknown(code: str, full: str, pages: dict[str, Page]) -> EnvironmentError_:
    near = _near(full, pages)
    listed = "\n".join(f"{name} {pages[name].title}" for name in near)
    return EnvironmentError_(
        "LS0008",
        f'there is no code "{code}"',
        why=f"near it are:\n{listed}" if near else "codes look like LS0107.",
        hint="`lockstep explain` lists them all.",
    )
