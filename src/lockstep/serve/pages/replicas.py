"""The replicas of a job: what each made of the newest epochs, and what is known of it."""

from __future__ import annotations

from lockstep.serve.looks.agreement import CELLS, MEANINGS, Cell
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline, replica_state
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import (
    Column,
    age_text,
    badge,
    bytes_text,
    link,
    milliseconds,
    path,
    section,
    shortened,
    table,
)
from lockstep.serve.pages.pictures import cell_legend, strip

RUNS_SHOWN = 12
_TROUBLE: frozenset[Cell] = frozenset({"late", "absent", "different"})
_COLUMNS = (
    Column("Replica"),
    Column("State"),
    Column("Epoch", number=True),
    Column("Lag", number=True),
    Column("Per epoch", number=True),
    Column("Host"),
    Column("Process", number=True),
    Column("Incarnation", number=True),
    Column("Generation", number=True),
    Column("Restarts", number=True),
    Column("Memory", number=True),
    Column("Last recovery", number=True),
)


def replicas_page(look: Look) -> Page:
    """The page."""
    return Page(
        f"Replicas of {look.job}",
        [headline(look), _agreement(look), _table(look), _spares(look)],
        look.job,
        "replicas",
        path("jobs", look.job, "replicas"),
    )


def _agreement(look: Look) -> Html:
    shown = look.agreement
    rows = [el("div", el("span", row.replica), strip(row, shown), class_="lane") for row in shown.rows]
    ends = (
        el("p", el("span", f"epoch {shown.first:,}"), el("span", f"{shown.last:,}"), class_="lane-ends")
        if rows
        else None
    )
    kinds = [kind for kind in CELLS if kind != "forgotten" or any(kind in row.cells for row in shown.rows)]
    empty = el("p", "No epoch was sealed yet.", class_="quiet") if not rows else None
    title = f"The last {shown.last - shown.first + 1} epochs" if rows else "Epochs"
    return section("agreement", title, empty, rows, ends, cell_legend(kinds) if rows else None, _in_words(look))


def _in_words(look: Look) -> Html | None:
    """The same for those who do not see it: how many of each kind, and where it was not as it should be."""
    lines = []
    for row in look.agreement.rows:
        counts = ", ".join(f"{count} {MEANINGS[kind]}" for kind, count in row.counts().items())
        runs = row.runs(look.agreement.first, _TROUBLE)
        places = [_run_link(look.job, *run) for run in runs[-RUNS_SHOWN:]]
        where: list[Child] = [" Not equal: ", *[part for one in places for part in (one, " ")]] if places else []
        lines.append(el("li", el("b", row.replica), f": {counts}.", *where))
    return el("details", el("summary", "The same in words"), el("ul", lines), id="agreement-words") if lines else None


def _run_link(job: str, kind: Cell, first: int, last: int) -> Html:
    span = f"{first:,}" if first == last else f"{first:,}–{last:,}"
    return link(f"{span} {kind}", "jobs", job, "epochs", first)


def _table(look: Look) -> Html:
    return section(
        "replica-table",
        "Each of them",
        table("Replicas", _COLUMNS, [_row(look, n) for n in _order(look)], "No replica has been started yet."),
        _notes(look),
    )


def _order(look: Look) -> list[int]:
    return list(range(len(look.overview.health.replicas)))


def _row(look: Look, number: int) -> tuple[Child, ...]:
    one = look.overview.health.replicas[number]
    said = look.progress.get(one.replica)
    memory = look.memory_bytes.get(one.replica)
    recovery = look.recoveries_s.get(one.replica)
    return (
        one.replica,
        badge(replica_state(one)),
        f"{one.epoch:,}" if one.epoch >= 0 else "–",
        f"{one.lag_epochs:,}",
        milliseconds(one.epoch_s * 1000 if one.epoch_s else None),
        one.host or "this host",
        one.pid or "–",
        said.incarnation if said else "–",
        said.generation if said else "–",
        one.restarts,
        bytes_text(memory) if memory and one.alive else "–",
        age_text(recovery) if recovery is not None else "–",
    )


def _notes(look: Look) -> Html | None:
    """What replicas say of themselves beside figures."""
    said = [
        (one.replica, shortened(text, 300))
        for one in look.overview.health.replicas
        for text in (one.note, one.executors_text, one.work, one.environment)
        if text
    ]
    return el("ul", [el("li", el("b", name), f": {text}") for name, text in said]) if said else None


def _spares(look: Look) -> Html:
    rows = [
        (
            f"{one.get('pid', '')}",
            badge("ready") if one.get("ready") else badge("starting"),
            one.get("host") or "this host",
        )
        for one in look.spares
    ]
    columns = (Column("Process"), Column("State"), Column("Host"))
    lead = f"A replica counts as well within {look.settings.lead_epochs_max} epochs of the newest one"
    pace = f", and has left the set after {age_text(look.settings.lag_timeout_s)} without a word."
    body = table("Spares", columns, rows, "No spare waits.")
    return section("spares", "Spares", body, el("p", lead + pace, class_="quiet"))
