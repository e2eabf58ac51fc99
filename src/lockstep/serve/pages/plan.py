"""The plan of a job: its steps as a drawing with what flows through them, and as Spark runs them."""

from __future__ import annotations

from collections.abc import Sequence

from lockstep.keyed.loads import StepLoad
from lockstep.plan.draw import MEANINGS
from lockstep.serve.looks.graph import Measured, PlacedStep, placed, size
from lockstep.serve.looks.look import Look
from lockstep.serve.pages.frame import Page
from lockstep.serve.pages.job import headline
from lockstep.serve.pages.markup import Child, Html, el
from lockstep.serve.pages.parts import Column, bytes_text, milliseconds, path, section, shortened, table

STEPS_SHOWN = 60
"""A drawing of more would be neither seen nor small."""
KEYS_SHOWN = 3
_BOX_WIDTH, _BOX_HEIGHT, _GAP_X, _GAP_Y, _EDGE = 280, 66, 28, 30, 6
_LINE_CHARACTERS = 36


def plan_page(look: Look) -> Page:
    """The page."""
    return Page(
        f"Plan of {look.job}",
        [headline(look), _drawing(look), _stages(look), _division(look), _physical(look)],
        look.job,
        "plan",
        path("jobs", look.job, "plan"),
    )


def _placed(look: Look) -> list[PlacedStep]:
    if look.graph is None:
        return []
    flows = {one.source: one for one in look.flows}
    known = Measured(flows, look.sink_rates, _state_rows(look), loads={one.step: one for one in _loads(look)})
    return placed(look.graph, known)[:STEPS_SHOWN]


def _loads(look: Look) -> Sequence[StepLoad]:
    return () if look.measured is None else look.measured.loads


def _state_rows(look: Look) -> dict[str, int]:
    """Rows of state by step, where a stage has one step with state: then all state of the stage is that step's."""
    if look.graph is None or look.measured is None:
        return {}
    stateful = {step["id"] for step in look.graph.get("steps", ()) if step.get("stateful")}
    found = {}
    for stage in look.graph.get("stages", ()):
        mine = [step for step in stage["steps"] if step in stateful]
        operators = look.measured.operators_of(stage["stage"])
        if len(mine) == 1 and operators:
            found[mine[0]] = sum(one.rows for one in operators)
    return found


def _drawing(look: Look) -> Html:
    steps = _placed(look)
    if not steps:
        return section("drawing", "Logical plan", el("p", "The plan is known once the job has run.", class_="quiet"))
    used = dict.fromkeys(one.kind for one in steps)
    keys = [
        el("span", el("i", class_=f"step {kind}", aria_hidden="true"), f" {MEANINGS[kind]}", class_="key")
        for kind in used
    ]
    both = el("div", _picture(steps), _steps(steps), class_="beside")
    return section("drawing", "Logical plan", both, el("p", keys, class_="legend"))


def _picture(steps: Sequence[PlacedStep]) -> Html:
    rows, columns = size(steps)
    width = columns * (_BOX_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = rows * (_BOX_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    by_id = {one.id: one for one in steps}
    edges = [_edge(by_id[before], one) for one in steps for before in one.inputs if before in by_id]
    svg = el(
        "svg",
        el(
            "title", f"{len(steps)} steps from sources at the top to sinks at the bottom; the table below says the same"
        ),
        edges,
        [_box(one) for one in steps],
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
        class_="graph",
    )
    return el("div", svg, class_="scroll plain", tabindex=0, role="region", aria_label="The plan as a drawing")


def _corner(one: PlacedStep) -> tuple[int, int]:
    return _EDGE + one.column * (_BOX_WIDTH + _GAP_X), _EDGE + one.row * (_BOX_HEIGHT + _GAP_Y)


def _edge(before: PlacedStep, after: PlacedStep) -> Html:
    (x1, y1), (x2, y2) = _corner(before), _corner(after)
    x1, x2, y1 = x1 + _BOX_WIDTH // 2, x2 + _BOX_WIDTH // 2, y1 + _BOX_HEIGHT
    middle = (y1 + y2) // 2
    crossing = " journal" if before.stage != after.stage else ""
    return el("path", d=f"M{x1} {y1}C{x1} {middle} {x2} {middle} {x2} {y2}", class_=f"edge{crossing}")


def _box(one: PlacedStep) -> Html:
    x, y = _corner(one)
    sign = "λ " if one.python else ""
    return el(
        "g",
        el("title", shortened(one.text, 300)),
        el("rect", x=x, y=y, width=_BOX_WIDTH, height=_BOX_HEIGHT, rx=8),
        el("path", d=f"M{x + 1.5} {y + 8}v{_BOX_HEIGHT - 16}", class_="edge-colour"),
        el("text", sign + shortened(one.id, 30), x=x + 14, y=y + 21, class_="name"),
        el("text", shortened(one.text, _LINE_CHARACTERS), x=x + 14, y=y + 39, class_="words"),
        el("text", " · ".join(one.figures), x=x + 14, y=y + 56, class_="figure") if one.figures else None,
        class_=f"step {one.kind}",
    )


def _steps(steps: Sequence[PlacedStep]) -> Html:
    columns = (Column("Step"), Column("Stage", number=True), Column("Does"), Column("Now"))
    rows: list[Sequence[Child]] = [
        (one.id, one.stage, el("code", shortened(one.text, 400)), " · ".join(one.figures)) for one in steps
    ]
    return table("Steps", columns, rows)


def _stages(look: Look) -> Html:
    """What Spark says of the stages, as the replica that reported last has it."""
    columns = (
        Column("Stage"),
        Column("Operator with state"),
        Column("Rows", number=True),
        Column("Memory", number=True),
        Column("Updates", number=True),
        Column("Commit", number=True),
    )
    operators = [] if look.measured is None else look.measured.operators
    rows: list[Sequence[Child]] = [
        (
            one.stage,
            one.name,
            f"{one.rows:,}",
            bytes_text(one.memory_bytes),
            milliseconds(one.update_ms),
            milliseconds(one.commit_ms),
        )
        for one in operators
    ]
    body = table("State, in the newest epoch that was measured", columns, rows, "No state is known of.")
    return section("stages", "State and busy time", body, _busy(look))


def _division(look: Look) -> Html:
    """How the records of keyed steps are divided among buckets and keys."""
    columns = (
        Column("Step"),
        Column("Records counted", number=True),
        Column("Buckets with records", number=True),
        Column("Largest bucket"),
        Column("Skew", number=True),
        Column("Heaviest keys"),
    )
    rows: list[Sequence[Child]] = [
        (
            one.step,
            f"{one.records:,}",
            len(one.buckets),
            f"bucket {one.largest}, {one.buckets[one.largest] / one.records * 100:.0f} %",
            f"{one.skew:.1f}",
            ", ".join(f"{hot.key} {hot.share * 100:.0f} %" for hot in one.keys[:KEYS_SHOWN]) or "–",
        )
        for one in _loads(look)[:STEPS_SHOWN]
        if one.records
    ]
    none = "No step that runs in Python by key has had records yet. Spark's own aggregations are not counted by key."
    words = "In one epoch of every ten seconds, over five minutes. Skew: the largest bucket in terms of the median."
    said = el("p", words, class_="quiet") if rows else None
    return section("division", "Buckets and keys", table("Buckets and keys", columns, rows, none), said)


def _busy(look: Look) -> Html | None:
    if look.measured is None:
        return None
    lines = [
        el("li", f"stage {one.stage}: {milliseconds(one.total_ms)} an epoch, of that ", _shares(one.parts_ms))
        for one in look.measured.stages
    ]
    return el("ul", lines, class_="plain-list")


def _shares(parts: Sequence[tuple[str, float]]) -> str:
    return ", ".join(f"{name} {milliseconds(ms)}" for name, ms in parts) or "nothing that is known"


def _physical(look: Look) -> Html:
    plans = [] if look.measured is None else look.measured.plans
    if not plans:
        text = "A replica reports it some seconds after its first epoch."
        return section("physical", "Physical plan", el("p", text, class_="quiet"))
    made = [
        el("details", el("summary", f"Stage {stage}, as Spark runs it"), el("pre", text), id=f"physical-{stage}")
        for stage, text in plans
    ]
    return section("physical", "Physical plan", made)
