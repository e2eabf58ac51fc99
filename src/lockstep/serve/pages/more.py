"""The smaller pages: state by key, savepoints, policy, hosts, and what went wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.errors import LockstepError
from lockstep.serve.looks.look import Look
from lockstep.serve.models import Savepoint, StateRows
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import Column, ago, bytes_text, figures, link, path, section, shortened, table

DECISIONS_SHOWN = 50
ROWS_SHOWN = 100
SAVEPOINTS_SHOWN = 100
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


def state_page(look: Look, steps: Mapping[str, str], asked: Mapping[str, str], answer: Child) -> Page:
    """State by key: a form, and what was found for what it asked last. ``steps``: why one cannot be asked, or ""."""
    can = [step for step, why in steps.items() if not why]
    cannot = [el("li", el("b", step), f": {why}") for step, why in steps.items() if why]
    none = el("p", "No step of this job keeps state.", class_="quiet") if not steps and not answer else None
    form = _state_form(look.job, can, asked) if can else None
    others = el("ul", cannot, class_="plain-list quiet") if cannot else None
    body = section("state", "State by key", form, none, answer, others)
    return Page(f"State of {look.job}", [headline(look), body], look.job, "state")


def _state_form(job: str, steps: Sequence[str], asked: Mapping[str, str]) -> Html:
    options = [el("option", step, value=step, selected=asked.get("step") == step) for step in steps]
    key = el("input", name="key", value=asked.get("key", ""), required=True, autocomplete="off")
    return el(
        "form",
        el("label", "Step", el("select", options, name="step")),
        el("label", "Key", key, el("small", "parts of it separated by commas")),
        el("button", "Look it up", type="submit"),
        method="get",
        action=path("jobs", job, "state"),
        class_="fields",
    )


def state_rows(found: StateRows) -> Html:
    """What was found, as of an epoch."""
    rows = [[shortened(str(row.get(name)), 300) for name in found.columns] for row in found.rows]
    body = table("State", [Column(name) for name in found.columns], rows, "There is no state for this key.")
    more = f" There is more than these {len(rows)} rows." if found.more else ""
    return el("div", body, el("p", f"As of epoch {found.epoch:,}.{more}", class_="quiet"))


def trouble(error: LockstepError) -> Html:
    """What went wrong, inside a page that goes on."""
    said = " ".join(filter(None, (f"{error.code} {error.fact}.", error.why, error.hint)))
    return el("p", shortened(said, 500), class_="quiet")


def savepoints_page(look: Look, savepoints: Sequence[Savepoint]) -> Page:
    """Snapshots with a name."""
    columns = (
        Column("Name"),
        Column("Epoch", number=True),
        Column("Taken"),
        Column("Size", number=True),
        Column("What comes after it"),
    )
    rows: list[Sequence[Child]] = [
        (
            one.name,
            f"{one.epoch:,}",
            ago(one.taken_us, look.at_us),
            bytes_text(one.bytes),
            "kept" if one.pinned else "–",
        )
        for one in reversed(savepoints[-SAVEPOINTS_SHOWN:])
    ]
    body = table("Savepoints", columns, rows, f"There are none. lockstep savepoint NAME takes one of {look.job}.")
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
