"""How commands speak: data to stdout, everything else to stderr, plain wherever no terminal is listening."""

from __future__ import annotations

import json
import sys

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockstep.errors import LockstepError
from lockstep.observe.texts import iso_text, rate_text, span_text, time_text, waiting_text

__all__ = [
    "err",
    "iso_text",
    "out",
    "plain_table",
    "print_json",
    "print_json_line",
    "rate_text",
    "show_error",
    "span_text",
    "time_text",
    "to_stderr",
    "waiting_text",
]

out = Console(highlight=False, soft_wrap=False)
err = Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """One JSON document on stdout; times and other values that JSON lacks become text."""
    sys.stdout.write(json.dumps(value, indent=2, default=str, ensure_ascii=False) + "\n")


def print_json_line(value: object) -> None:
    """One line of JSON on stdout, flushed: whoever reads the pipe sees it at once."""
    sys.stdout.write(json.dumps(value, default=str, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def to_stderr(text: str) -> None:
    """A plain line for the person, never wrapped: it may be a path that someone copies."""
    err.print(Text(text), soft_wrap=True)


def show_error(error: LockstepError) -> None:
    """An error as people should see it: bold code and fact, then why and what to try; plain text in a pipe or a log."""
    if not err.is_terminal:
        sys.stderr.write(f"{error}\n")
        return
    err.print(Text.assemble((error.code, "bold red"), " ", (error.fact, "bold")))
    body = Table.grid(padding=(0, 2, 0, 0))
    body.add_column(style="dim", no_wrap=True)
    body.add_column(overflow="fold")
    for label, text in (("  why:", error.why), ("  try:", error.hint)):
        if text:
            body.add_row(label, Text(text))
    err.print(body)
    err.print(Text(f"  lockstep explain {error.code} says more.", style="dim"))


def plain_table(*columns: str) -> Table:
    """A table without boxes: a header, and columns that stay readable at 80 characters."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column)
    return table
