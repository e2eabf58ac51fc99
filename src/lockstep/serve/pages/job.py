"""A job at a glance: is output flowing, would losing a replica show, how late is it, what happened last."""

from __future__ import annotations

from lockstep.clock import US_PER_S
from lockstep.control.status.event_words import event_text, is_bad
from lockstep.control.status.health import Event, ReplicaHealth
from lockstep.observe.texts import rate_text, waiting_text
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import (
    BAD,
    CALM,
    GOOD,
    POOR,
    Column,
    age_text,
    ago,
    badge,
    clock_time,
    figures,
    link,
    milliseconds,
    path,
    section,
    shortened,
    table,
)
from lockstep.serve.pages.pictures import lateness, mark_legend, shown_s, strip

EVENTS_SHOWN = 8
EVENT_CHARACTERS_MAX = 500
"""A hundred of them are on a page of less than 100 kB; `lockstep events` has the whole text."""
PRODUCTION = frozenset({"healthy", "degraded", "starting"})
VERBS = ("rescale", "restart", "move", "deactivate", "activate", "stop", "kill")
_LIVE = frozenset({"healthy", "degraded", "stalled", "starting"})


def state_of(look: Look) -> str:
    """The job's state in a word; one that a person has deactivated is paused, whatever else would be said of it."""
    state = look.overview.health.state
    return "paused" if look.steering.paused and state in _LIVE else state


def job_page(look: Look) -> Page:
    """The page."""
    return Page(
        look.job,
        [
            headline(look),
            _answers(look),
            _figures(look),
            _lateness(look),
            _replicas(look),
            _happened(look),
            _verbs(look),
        ],
        look.job,
        "",
        path("jobs", look.job),
    )


def headline(look: Look) -> Html:
    """The job's name and state, the same on all its pages; read out when it changes."""
    order = look.order
    shape = f"generation {order.generation}" if order is not None else ""
    return el(
        "div",
        el("h1", look.job),
        badge(state_of(look)),
        el("p", _reason(look), class_="reason"),
        el("p", shape, class_="quiet shape") if shape else None,
        id="head",
        class_="head",
        data_live=True,
        aria_live="polite",
    )


def _reason(look: Look) -> str:
    if state_of(look) == "paused":
        return "deactivated: no epoch is sealed, input waits"
    return shortened(look.overview.health.reason, 500)


def _answers(look: Look) -> Html:
    return section("answers", "", el("ul", _flowing(look), _spare(look), _late(look), class_="answers"))


def _answer(question: str, tone: str, answer: str, *note: Child) -> Html:
    return el("li", el("h2", question), el("p", answer, class_=f"answer {tone}"), el("p", *note, class_="quiet"))


def _flowing(look: Look) -> Html:
    question, age = "Is output flowing?", look.publication_age_s
    if age is None:
        return _answer(question, CALM, "Not yet", "nothing was published so far")
    epoch = look.overview.published_epoch
    note = ("epoch ", link(f"{epoch:,}", "jobs", look.job, "epochs", epoch), f" was published {age_text(age)} ago")
    flows = look.overview.health.state in PRODUCTION and age <= 3 * look.settings.heartbeat_interval_s
    return _answer(question, GOOD, "Yes", *note) if flows else _answer(question, BAD, "No", *note)


def _spare(look: Look) -> Html:
    question, wanted = "Would losing a replica show?", look.settings.replicas
    standing = f"{look.ready} of {wanted} replicas are within the lead"
    ready = sum(bool(one.get("ready")) for one in look.spares)
    spare = f", {ready} spare{'s' if ready != 1 else ''} ready" if ready else ""
    if look.ready >= 2:
        return _answer(question, GOOD, "No", standing + spare)
    if look.overview.health.state in ("stopped", "not running"):
        return _answer(question, CALM, "It does not run", standing)
    if wanted == 1:
        return _answer(question, POOR, "Yes", f"it has one replica by choice{spare}")
    return _answer(question, BAD, "Yes", standing + spare)


def _late(look: Look) -> Html:
    recent, question = look.overview.latency_ms, "How late is it?"
    if not recent.get("count"):
        return _answer(question, CALM, "–", "no records were published in the last minute")
    note = f"p50 of the last minute; p99 {milliseconds(recent['p99'])}, at most {milliseconds(recent['max'])}"
    return _answer(question, CALM, milliseconds(recent["p50"]), note)


def _figures(look: Look) -> Html:
    waiting, mark = look.waiting_records, look.watermark_us
    behind = "" if mark is None else f"{age_text(max(0, look.at_us - mark) / US_PER_S)} behind the clock"
    unpublished = look.unpublished_epochs
    pairs: list[tuple[str, Child, Child]] = [
        ("Input", rate_text(look.overview.rows_per_s), "records/s"),
        ("Backlog", "–" if waiting is None else f"{waiting:,}", _backlog_note(waiting, unpublished)),
        ("Event time", "–" if mark is None else clock_time(mark), behind),
        ("Epoch", f"{look.overview.head_epoch:,}" if look.overview.head_epoch >= 0 else "–", "sealed"),
        ("Restarts", f"{sum(one.restarts for one in look.overview.health.replicas):,}", "in this run"),
        ("Divergences", f"{len(look.divergences):,}", "replicas that disagreed"),
        ("Dead letters", f"{look.overview.dead_letters:,}", "records set aside"),
    ]
    held = el("p", waiting_text(look.overview.held), class_="quiet") if look.overview.held else None
    return section("figures", "", figures(pairs), held)


def _backlog_note(waiting: int | None, unpublished: int) -> str:
    epochs = f"{unpublished} epoch{'s' if unpublished != 1 else ''} under way"
    return epochs if waiting is None else f"records wait; {epochs}"


def _lateness(look: Look) -> Html:
    life = look.latency_ms
    whole = (
        ""
        if not life.get("count")
        else f"since it began: p50 {milliseconds(life['p50'])}, p99 {milliseconds(life['p99'])}"
    )
    picture = lateness(look.points, look.marks, look.at_us)
    title = f"How late, over {shown_s(look.points, look.at_us) // 60} minutes"
    return section("lateness", title, picture, mark_legend(), more=el("p", whole, class_="quiet"))


def replica_state(one: ReplicaHealth) -> str:
    """A replica's state in a word."""
    gone = not one.alive and one.state not in ("stopped", "failed", "given up", "not started")
    return "gone" if gone else one.state


_COLUMNS = (
    Column("Replica"),
    Column("State"),
    Column("Lag", number=True),
    Column("Per epoch", number=True),
    Column("The last 200 epochs"),
)


def _replicas(look: Look) -> Html:
    strips = {row.replica: strip(row, look.agreement) for row in look.agreement.rows}
    rows = [
        (
            one.replica,
            badge(replica_state(one)),
            f"{one.lag_epochs:,}" if one.alive else "–",
            milliseconds(one.epoch_s * 1000 if one.epoch_s else None),
            strips[one.replica],
        )
        for one in look.overview.health.replicas
    ]
    more = link("All about them", "jobs", look.job, "replicas")
    body = table("Replicas", _COLUMNS, rows, "No replica has been started yet.")
    return section("replicas", "Replicas", body, more=more)


def _happened(look: Look) -> Html:
    newest = sorted(look.events, key=lambda one: one[0], reverse=True)[:EVENTS_SHOWN]
    body = event_list(newest, look.at_us) if newest else el("p", "Nothing yet.", class_="quiet")
    return section("happened", "What happened last", body, more=link("All events", "jobs", look.job, "events"))


def event_list(events: list[Event], now_us: int) -> Html:
    """Events in words, those that somebody should know of marked by a sign and a colour."""
    lines = [
        el(
            "li",
            ago(event[1], now_us),
            el(
                "span",
                el("b", "! ", aria_label="trouble: ") if is_bad(event) else None,
                shortened(event_text(event), EVENT_CHARACTERS_MAX),
            ),
            class_="bad" if is_bad(event) else None,
        )
        for event in events
    ]
    return el("ol", lines, class_="events")


def _verbs(look: Look) -> Html:
    paused = look.steering.paused
    shown = [one for one in VERBS if one != ("deactivate" if paused else "activate")]
    if not look.order or not look.order.wanted:
        shown = []
    links = [
        el(
            "a",
            f"{verb.capitalize()}…",
            href=path("jobs", look.job, "ask", verb),
            class_="button danger" if verb in ("stop", "kill") else "button",
        )
        for verb in shown
    ]
    none = el("p", "It does not run, so there is nothing to change.", class_="quiet") if not links else None
    return section("verbs", "Change it", el("p", links, class_="buttons") if links else none)
