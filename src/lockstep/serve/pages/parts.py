"""What pages are made of: badges, tables, figures and texts that look the same everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from lockstep.clock import US_PER_S
from lockstep.observe.texts import span_text
from lockstep.serve.pages.markup import EMPTY, Child, Html, el, join

GOOD, CALM, POOR, BAD = "good", "calm", "poor", "bad"
TONES = {
    "healthy": GOOD,
    "running": GOOD,
    "ready": GOOD,
    "done": GOOD,
    "starting": CALM,
    "seeding": CALM,
    "stopping": CALM,
    "stopped": CALM,
    "draining": CALM,
    "asked": CALM,
    "waiting": POOR,
    "paused": POOR,
    "catching-up": POOR,
    "rolling-back": POOR,
    "rolled-back": POOR,
    "degraded": BAD,
    "stalled": BAD,
    "not running": BAD,
    "diverged": BAD,
    "failed": BAD,
    "gone": BAD,
    "given up": BAD,
    "refused": BAD,
}
TEXT_CHARACTERS_MAX = 2_000
"""So much of one text that others wrote is on a page: pages stay small whatever a job says."""


@dataclass(frozen=True)
class Column:
    """A column of a table. Numbers are to the right, so that their digits stand below each other."""

    title: str
    number: bool = False


def badge(state: str) -> Html:
    """A state as a word in its colour.

    >>> badge("healthy")
    '<span class="badge good">healthy</span>'
    """
    return el("span", state, class_=f"badge {TONES.get(state, CALM)}")


def table(caption: str, columns: Sequence[Column], rows: Iterable[Sequence[Child]], empty: str = "") -> Html:
    """A table with a caption for those who cannot see where it stands; ``empty`` is said if it has no rows."""
    head = el("tr", [el("th", one.title, scope="col", class_="number" if one.number else None) for one in columns])
    body = [el("tr", _cells(columns, row)) for row in rows]
    if not body and empty:
        return el("p", empty, class_="quiet")
    whole = el("table", el("caption", caption, class_="unseen"), el("thead", head), el("tbody", body))
    return el("div", whole, class_="scroll", tabindex=0, role="region", aria_label=caption)


def _cells(columns: Sequence[Column], row: Sequence[Child]) -> Html:
    """The first cell of a row says what the row is about."""
    made = []
    for index, (column, value) in enumerate(zip(columns, row, strict=True)):
        kind = "number" if column.number else None
        made.append(el("th", value, scope="row", class_=kind) if index == 0 else el("td", value, class_=kind))
    return join(made)


def figures(pairs: Iterable[tuple[str, Child, Child]]) -> Html:
    """Figures that are to be seen at a glance: what it is, the value, a few words about it."""
    made = [
        el("div", el("dt", name), el("dd", value, el("small", note) if note else None)) for name, value, note in pairs
    ]
    return el("dl", made, class_="figures")


def section(name: str, title: str, *body: Child, live: bool = False, more: Child = None) -> Html:
    """A part of a page that is replaced as a whole when it changes; ``live``: read out when it does."""
    head = el("header", el("h2", title, id=f"{name}-title"), more) if title else EMPTY
    return el(
        "section",
        head,
        *body,
        id=name,
        data_live=True,
        aria_labelledby=f"{name}-title" if title else None,
        aria_live="polite" if live else None,
    )


def link(text: Child, *parts: str | int, query: str = "") -> Html:
    """A link to a page of the service, each part of its path escaped.

    >>> link("r0", "jobs", "a/b")
    '<a href="/jobs/a%2Fb">r0</a>'
    """
    return el("a", text, href=path(*parts) + query)


def path(*parts: str | int) -> str:
    """The address of a page.

    >>> path("jobs", "logins", "epochs", 7), path()
    ('/jobs/logins/epochs/7', '/')
    """
    return "/" + "/".join(quote(str(part), safe="") for part in parts)


def ago(at_us: int, now_us: int) -> Html:
    """How long ago something was; the time itself to whoever points at it.

    >>> ago(1_000_000, 91_000_000)
    '<time datetime="1970-01-01T00:00:01Z" title="1970-01-01 00:00:01 UTC">90 s ago</time>'
    """
    at = datetime.fromtimestamp(at_us // US_PER_S, UTC)
    return el(
        "time",
        f"{age_text(max(0, now_us - at_us) / US_PER_S)} ago",
        datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}",
        title=f"{at:%Y-%m-%d %H:%M:%S} UTC",
    )


def clock_time(at_us: int) -> Html:
    """A time of day, with its date for whoever points at it."""
    at = datetime.fromtimestamp(at_us // US_PER_S, UTC)
    return el("time", f"{at:%H:%M:%S}", datetime=f"{at:%Y-%m-%dT%H:%M:%SZ}", title=f"{at:%Y-%m-%d %H:%M:%S} UTC")


def age_text(seconds: float) -> str:
    """An age in one unit.

    >>> age_text(0.44), age_text(90), age_text(600), age_text(9_000), age_text(200_000)
    ('0.4 s', '90 s', '10 min', '2.5 h', '2.3 days')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def bytes_text(count: float) -> str:
    """A size.

    >>> bytes_text(512), bytes_text(1_536), bytes_text(734 * 2**20), bytes_text(3 * 2**30)
    ('512 B', '1.5 kB', '734 MB', '3.0 GB')
    """
    for unit in ("B", "kB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def milliseconds(value: float | None) -> str:
    """A latency, or a dash.

    >>> milliseconds(3.21), milliseconds(412), milliseconds(1_773), milliseconds(None)
    ('3.2 ms', '412 ms', '1.8 s', '–')
    """
    if value is None:
        return "–"
    return span_text(value) if value < 1000 else age_text(value / 1000)


def shortened(text: str, most: int = TEXT_CHARACTERS_MAX) -> str:
    """A text that others wrote, not beyond what a page has room for.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"
