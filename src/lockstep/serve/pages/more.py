"""The smaller pages: state by key, savepoints, policy, hosts, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.errors import LockstepError
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import Column, ago, figures, link, path, section, shortened, table

DECISIONS_SHOWN = 50
INPUTS_SHOWN = 12
_POLICY = (
    "scaling",
    "tolerance",
    "max_gap_s",
    "gaps_per_month",
    "replicas_min",
    "replicas_max",
    "partitions_min",
    "partitions_max",
    "budget_cores",
)
"""What people set most; the others are in lockstep.toml."""


def state_page(look: Look, asked: Mapping[str, str], answer: Child, *, available: bool) -> Page:
    """State by key: a form, and what was found for what it asked last."""
    steps = [s["id"] for s in (look.graph or {}).get("steps", ()) if s.get("stateful")]
    if not available:
        said: Child = el("p", "This release cannot look into state from outside.", class_="quiet")
    elif not steps:
        said = el("p", "No step of this job keeps state.", class_="quiet")
    else:
        said = el("div", _state_form(look.job, steps, asked), answer)
    return Page(f"State of {look.job}", [headline(look), section("state", "State by key", said)], look.job, "state")


def _state_form(job: str, steps: Sequence[str], asked: Mapping[str, str]) -> Html:
    options = [el("option", step, value=step, selected=asked.get("step") == step) for step in steps]
    return el(
        "form",
        el("label", "Step", el("select", options, name="step")),
        el("label", "Key", el("input", name="key", value=asked.get("key", ""), required=True, autocomplete="off")),
        el("button", "Look it up", type="submit"),
        method="get",
        action=path("jobs", job, "state"),
        class_="fields",
    )


def state_rows(rows: Sequence[Mapping[str, Any]], epoch: int) -> Html:
    """What was found, as of an epoch."""
    names = list(rows[0]) if rows else []
    body = table(
        "State",
        [Column(name) for name in names],
        [[shortened(str(row.get(name)), 300) for name in names] for row in rows],
        "There is no state for this key.",
    )
    return el("div", body, el("p", f"As of epoch {epoch:,}.", class_="quiet"))


def savepoints_page(look: Look, savepoints: Sequence[Mapping[str, Any]] | None) -> Page:
    """Snapshots with a name. None: this release keeps none."""
    if savepoints is None:
        body: Html = el("p", "This release cannot keep savepoints.", class_="quiet")
    else:
        columns = (Column("Name"), Column("Epoch", number=True), Column("Made"), Column("Notes"))
        rows: list[Sequence[Child]] = [
            (
                str(one.get("name", "")),
                f"{int(one.get('epoch', 0)):,}",
                ago(int(one["made_us"]), look.at_us) if one.get("made_us") else "–",
                shortened(str(one.get("note", "")), 200),
            )
            for one in savepoints
        ]
        hint = f"There are none. lockstep savepoint NAME makes one of {look.job}."
        body = table("Savepoints", columns, rows, hint)
    sections = [headline(look), section("savepoints", "Savepoints", body)]
    return Page(f"Savepoints of {look.job}", sections, look.job, "savepoints", path("jobs", look.job, "savepoints"))


def policy_page(look: Look, policy: Mapping[str, Any], memory: Mapping[str, Any]) -> Page:
    """What the job decides by itself: what it is told, what is known of failures, each decision and why.

    ``policy`` are its settings, ``memory`` is what it has learned, as the store keeps it.
    """
    shown = [(name, policy[name]) for name in _POLICY if name in policy]
    pairs: list[tuple[str, Child, Child]] = [(name.replace("_", " "), str(value), None) for name, value in shown]
    told = figures(pairs) if pairs else el("p", "No policy is set.", class_="quiet")
    return Page(
        f"Policy of {look.job}",
        [headline(look), section("policy", "What it is told", told), _failures(look, memory), _decisions(look)],
        look.job,
        "policy",
        path("jobs", look.job, "policy"),
    )


def _rates(memory: Mapping[str, Any]) -> Html | None:
    """Failures by cause as the policy remembers them, forgotten over a day."""
    day = dict(dict(dict(memory.get("tolerance") or {}).get("rates") or {}).get("day") or {})
    rows: list[Sequence[Child]] = [
        (cause, f"{failures:.1f}", f"{hours:.1f}", f"{failures / hours:.2f}" if hours else "–")
        for cause, (failures, hours) in sorted(day.items())
    ]
    columns = (
        Column("Cause"),
        Column("Remembered", number=True),
        Column("In hours of replicas", number=True),
        Column("An hour", number=True),
    )
    return table("Failures that the policy remembers", columns, rows) if rows else None


def _failures(look: Look, memory: Mapping[str, Any]) -> Html:
    """How often each replica was lost in this run, how long it took to come back, and what is remembered of causes."""
    columns = (Column("Replica"), Column("Restarts", number=True), Column("Last recovery", number=True))
    rows: list[Sequence[Child]] = [
        (
            one.replica,
            one.restarts,
            f"{look.recoveries_s[one.replica]:.1f} s" if one.replica in look.recoveries_s else "–",
        )
        for one in look.overview.health.replicas
    ]
    body = table("Failures", columns, rows, "No replica has run.")
    return section("failures", "Failures", body, _rates(memory))


def _decisions(look: Look) -> Html:
    made = [_decision(one, look.at_us) for one in reversed(look.decisions[-DECISIONS_SHOWN:])]
    none = el("p", "Nothing was decided so far.", class_="quiet")
    return section("decisions", "Decisions, and why", el("ol", made, class_="decisions") if made else none)


def _decision(one: Mapping[str, Any], now_us: int) -> Html:
    inputs = list(dict(one.get("inputs") or {}).items())[:INPUTS_SHOWN]
    said = ", ".join(f"{name.replace('_', ' ')} {_figure(value)}" for name, value in inputs)
    outcome = str(one.get("outcome") or "")
    return el(
        "li",
        el("h3", shortened(str(one.get("what", "")), 200)),
        el("p", shortened(str(one.get("why", "")), 500)),
        el("p", f"From: {shortened(said, 500)}", class_="quiet") if said else None,
        el("p", f"Outcome: {shortened(outcome, 300)}") if outcome else None,
        el("p", ago(int(one.get("at_us", 0)), now_us), class_="quiet"),
    )


def _figure(value: object) -> str:
    return f"{value:,.3g}" if isinstance(value, float) else str(value)


def hosts_page(hosts: Mapping[str, Mapping[str, Any]], looks: Sequence[Look]) -> Page:
    """The hosts whose agents are announced, and what runs on each."""
    columns = (
        Column("Host"),
        Column("Address"),
        Column("Cores", number=True),
        Column("Slots", number=True),
        Column("Replicas"),
    )
    rows = [_host(name, said, looks) for name, said in sorted(hosts.items())]
    alone = "No agent is announced: jobs live on this host alone. lockstep agent adds a host."
    title = el("div", el("h1", "Hosts"), class_="head")
    return Page("Hosts", [title, section("hosts", "", table("Hosts", columns, rows, alone))], live="/hosts")


def _host(name: str, said: Mapping[str, Any], looks: Sequence[Look]) -> Sequence[Child]:
    there = [
        el("li", link(look.job, "jobs", look.job, "replicas"), f" {one.replica}, {one.state}")
        for look in looks
        for one in look.overview.health.replicas
        if one.host == name
    ]
    return (
        name,
        shortened(str(said.get("address", "–")), 100),
        str(said.get("cores", "–")),
        str(said.get("slots", "–")),
        el("ul", there, class_="plain-list") if there else "–",
    )


def error_page(error: LockstepError, status: int) -> Page:
    """What went wrong, and what to do, as a command would say it."""
    body = el(
        "section",
        el("h1", error.fact),
        el("p", error.why) if error.why else None,
        el("p", el("b", "Try: "), error.hint) if error.hint else None,
        el("p", f"{error.code}; lockstep explain {error.code} says more.", class_="quiet"),
        el("p", el("a", "Back to the jobs", href="/")),
        class_="notice",
    )
    return Page(error.code, [body], status=status)
