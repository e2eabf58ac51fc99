"""The first page: all jobs, each in a line that says whether it is well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.observe.texts import rate_text
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import state_of
from lockstep.serve.pages.markup import Html, el
from lockstep.serve.pages.parts import Column, age_text, badge, link, milliseconds, section, shortened, table

JOBS_SHOWN = 200
_COLUMNS = (
    Column("Job"),
    Column("State"),
    Column("Replicas", number=True),
    Column("Last output", number=True),
    Column("Latency p50", number=True),
    Column("p99", number=True),
    Column("Records/s", number=True),
    Column("Why"),
)


def jobs_page(looks: Sequence[Look], troubles: Mapping[str, str], left_off: int = 0) -> Page:
    """The list. ``troubles``: jobs that cannot be looked at, and why."""
    rows = [_row(look) for look in looks]
    rows += [(link(name, "jobs", name), badge("not running"), *[""] * 5, why) for name, why in troubles.items()]
    empty = "No job has run here yet. lockstep submit job.py starts one; lockstep serve --demo shows one that lives."
    more = el("p", f"{left_off} more jobs are not shown.", class_="quiet") if left_off else None
    title = el("h1", "Jobs")
    return Page(
        "Jobs",
        [el("div", title, class_="head"), section("jobs", "", table("Jobs", _COLUMNS, rows, empty), more)],
        live="/",
    )


def _row(look: Look) -> tuple[Html | str, ...]:
    recent = look.overview.latency_ms
    age = look.publication_age_s
    return (
        link(look.job, "jobs", look.job),
        badge(state_of(look)),
        f"{look.ready} of {look.settings.replicas}",
        "never" if age is None else age_text(age),
        milliseconds(recent.get("p50")),
        milliseconds(recent.get("p99")),
        rate_text(look.overview.rows_per_s),
        shortened(look.overview.health.reason, 200),
    )
