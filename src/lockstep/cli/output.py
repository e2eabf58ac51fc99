"""How commands speak: data to stdout, everything else to stderr, plain wherever no terminal is listening."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.table import Table
from rich.text import Text

from lockstep.errors import LockstepError

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


def time_text(us: int) -> str:
    """A time of day in UTC, to the millisecond.

    >>> time_text(1_700_000_000_123_456)
    '22:13:20.123'
    """
    return f"{datetime.fromtimestamp(us // 1000 / 1000, UTC):%H:%M:%S.%f}"[:-3]


def iso_text(us: int) -> str:
    """A time as ISO 8601 in UTC, for programs.

    >>> iso_text(1_700_000_000_123_456)
    '2023-11-14T22:13:20.123456Z'
    """
    seconds, rest = divmod(us, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:06d}Z"


def span_text(milliseconds: float) -> str:
    """A length of time, short enough for a column.

    >>> span_text(3.21), span_text(412.0), span_text(61_500.0), span_text(7_400_000.0), span_text(3e9)
    ('3.2 ms', '412 ms', '61.5 s', '123 min', '34.7 days')
    """
    if milliseconds < 10:
        return f"{milliseconds:.1f} ms"
    if milliseconds < 10_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 600_000:
        return f"{milliseconds / 1000:.1f} s"
    days = milliseconds / 86_400_000
    return f"{milliseconds / 60_000:.0f} min" if days < 2 else f"{days:.1f} days"


def rate_text(per_s: float) -> str:
    """A number of records a second; only none is shown as 0.

    >>> rate_text(0.0), rate_text(0.04), rate_text(7.25), rate_text(5462.9)
    ('0', '0.04', '7.2', '5,463')
    """
    return f"{per_s:,.0f}" if per_s >= 10 or per_s == 0 else f"{per_s:.2g}"


def waiting_text(held: Mapping[str, Mapping[str, int]]) -> str:
    """Which sources are held back, and why; empty if none is.

    >>> waiting_text({"clicks": {"orders": 3_000_000_000_000}})
    'clicks waits, 34.7 days ahead of orders in event time'
    """
    ahead = [(source, slowest, us) for source, others in held.items() for slowest, us in others.items()]
    return "; ".join(f"{one} waits, {span_text(us / 1000)} ahead of {other} in event time" for one, other, us in ahead)
