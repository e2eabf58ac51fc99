"""What was asked of a job, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.clock import US_PER_S
from lockstep.control.operations.model import Operation
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import (
    Column,
    age_text,
    ago,
    badge,
    clock_time,
    figures,
    link,
    path,
    section,
    shortened,
    table,
)

_COLUMNS = (
    Column("Operation", number=True),
    Column("State"),
    Column("What"),
    Column("Asked by"),
    Column("Asked"),
    Column("Took", number=True),
    Column("Newest step"),
)


def operations_page(look: Look) -> Page:
    """All that are kept, newest first."""
    rows = [_row(look, one) for one in reversed(look.operations)]
    body = table("Operations", _COLUMNS, rows, "Nothing was asked of this job yet.")
    return Page(
        f"Operations of {look.job}",
        [headline(look), section("operations", "Operations", body)],
        look.job,
        "operations",
        path("jobs", look.job, "operations"),
    )


def _row(look: Look, one: Operation) -> Sequence[Child]:
    newest = one.steps[-1] if one.steps else None
    return (
        link(str(one.number), "jobs", look.job, "operations", one.number),
        badge(one.state),
        what_text(one),
        shortened(one.asked_by, 80) or "–",
        ago(one.asked_us, look.at_us),
        _took(one, look.at_us),
        shortened(f"{newest.name} {newest.text}", 160) if newest else "",
    )


def what_text(one: Operation) -> str:
    """An operation in words.

    >>> what_text(Operation(1, "rescale", {"replicas": 3}, "ann", 5, 900))
    'rescale (replicas 3)'
    """
    arguments = _arguments(one.arguments)
    return f"{one.kind} ({arguments})" if arguments else one.kind


def _arguments(arguments: Mapping[str, Any]) -> str:
    return shortened(", ".join(f"{name.replace('_', ' ')} {value}" for name, value in arguments.items()), 200)


def _took(one: Operation, now_us: int) -> str:
    return age_text(max(0, (one.ended_us or now_us) - one.asked_us) / US_PER_S)


def operation_page(look: Look, one: Operation) -> Page:
    """One of them, with its steps."""
    pairs: list[tuple[str, Child, Child]] = [
        ("State", badge(one.state), one.phase),
        ("Asked", clock_time(one.asked_us), f"by {one.asked_by}" if one.asked_by else None),
        ("Takes" if one.is_open else "Took", _took(one, look.at_us), None),
        ("Deadline", clock_time(one.deadline_us), f"then: {one.at_deadline}"),
    ]
    error = el("p", shortened(one.error), class_="answer bad") if one.error else None
    title = f"Operation {one.number}: {what_text(one)}"
    sections = [
        headline(look),
        section("operation", title, figures(pairs), error, _settle(look.job, one)),
        _steps(one),
    ]
    return Page(
        f"Operation {one.number} of {look.job}",
        sections,
        look.job,
        "operations",
        path("jobs", look.job, "operations", one.number),
    )


def _steps(one: Operation) -> Html:
    rows: list[Sequence[Child]] = [
        (clock_time(step.at_us), step.name, shortened(step.text, 500), _after(one, index))
        for index, step in enumerate(one.steps)
    ]
    columns = (Column("At"), Column("Step"), Column("What"), Column("After", number=True))
    return section("operation-steps", "Steps", table("Steps of the operation", columns, rows, "None was done yet."))


def _after(one: Operation, index: int) -> str:
    before_us = one.steps[index - 1].at_us if index else one.asked_us
    return age_text(max(0, one.steps[index].at_us - before_us) / US_PER_S)


def _settle(job: str, one: Operation) -> Html | None:
    """Ways on, and back, while it is under way."""
    if not one.is_open:
        return None
    if one.wish:
        return el("p", f"Somebody has said: {one.wish}.", class_="quiet")
    links = [
        el("a", text, href=path("jobs", job, "operations", one.number, "ask", verb), class_=f"button {tone}")
        for verb, text, tone in (("commit", "Go on with it…", ""), ("rollback", "Take it back…", "danger"))
    ]
    return el("p", links, class_="buttons")
