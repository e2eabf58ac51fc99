"""What happened to a job, page by page, newest first."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.control.status.health import Event
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import event_list, headline
from lockstep.serve.pages.markup import el
from lockstep.serve.pages.parts import path, section

EVENTS_SHOWN = 100


def events_page(look: Look, events: Sequence[Event], *, is_newest: bool) -> Page:
    """``events`` are those of this page, oldest first; the newest ones are kept up to date."""
    newest_first = sorted(events, key=lambda one: one[0], reverse=True)
    body = event_list(newest_first, look.at_us) if newest_first else el("p", "There are none.", class_="quiet")
    oldest = newest_first[-1][0] if newest_first else 0
    here = path("jobs", look.job, "events")
    older = el("a", "Older →", href=f"{here}?before={oldest}") if oldest > 1 else None
    newest = None if is_newest else el("a", "← Newest", href=here)
    title = "Events" if is_newest else f"Events before number {oldest + len(newest_first):,}"
    return Page(
        f"Events of {look.job}",
        [headline(look), section("events", title, body, el("p", newest, " ", older, class_="around"))],
        look.job,
        "events",
        here if is_newest else "",
    )
