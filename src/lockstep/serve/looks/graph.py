"""Where each step of a job stands in a drawing, and what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lockstep.control.policy.diagnosis import is_hot
from lockstep.keyed.loads import StepLoad
from lockstep.observe.texts import rate_text
from lockstep.serve.looks.flow import SKEW_AT, SourceFlow

KEY_CHARACTERS = 20
"""Of a key, where there is little room."""
StepKind = Literal["source", "step", "stateful", "python", "sink"]


@dataclass(frozen=True)
class PlacedStep:
    """A step in a grid: ``row`` counts from the sources down, ``column`` from the left."""

    id: str
    kind: StepKind
    text: str
    stage: int
    row: int
    column: int
    inputs: tuple[str, ...]
    python: bool = False
    figures: tuple[str, ...] = ()
    """What is known of it, in words."""


@dataclass(frozen=True)
class Measured:
    """What is known of the flow, by step."""

    flows: Mapping[str, SourceFlow] = field(default_factory=dict)
    sink_rates: Mapping[str, float] = field(default_factory=dict)
    state_rows: Mapping[str, int] = field(default_factory=dict)
    state_bytes: Mapping[str, int] = field(default_factory=dict)
    loads: Mapping[str, StepLoad] = field(default_factory=dict)


def placed(graph: Mapping[str, Any], measured: Measured) -> list[PlacedStep]:
    """Every step below all that it reads; those of a row side by side, near what they read.

    >>> steps = [{"id": name, "inputs": read, "text": "", "step": "Map"} for name, read in
    ...     (("a", []), ("b", ["a"]), ("c", ["a"]), ("d", ["b", "c"]))]
    >>> [(one.id, one.row, one.column) for one in placed({"steps": steps, "stages": []}, Measured())]
    [('a', 0, 0), ('b', 1, 0), ('c', 1, 1), ('d', 2, 0)]
    """
    stages = {step: stage["stage"] for stage in reversed(graph.get("stages", ())) for step in stage["steps"]}
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    taken: dict[int, set[int]] = {}
    found = []
    for step in graph.get("steps", ()):
        inputs = tuple(one for one in step["inputs"] if one in rows)
        row = 1 + max((rows[one] for one in inputs), default=-1)
        wanted = min((columns[one] for one in inputs), default=0)
        used = taken.setdefault(row, set())
        column = next(at for at in range(wanted, wanted + len(used) + 1) if at not in used)
        used.add(column)
        rows[step["id"]], columns[step["id"]] = row, column
        found.append(_placed(step, stages.get(step["id"], 1), row, column, inputs, measured))
    return found


def _placed(
    step: Mapping[str, Any], stage: int, row: int, column: int, inputs: tuple[str, ...], measured: Measured
) -> PlacedStep:
    name = step["id"]
    return PlacedStep(
        name,
        _kind(step),
        step["text"],
        stage,
        row,
        column,
        inputs,
        python=bool(step.get("python")),
        figures=tuple(_figures(name, measured)),
    )


def _kind(step: Mapping[str, Any]) -> StepKind:
    if step["step"] in ("Source", "Sink"):
        return "source" if step["step"] == "Source" else "sink"
    if step.get("python"):
        return "python"
    return "stateful" if step.get("stateful") else "step"


def _figures(name: str, measured: Measured) -> list[str]:
    said = []
    if (flow := measured.flows.get(name)) is not None:
        if flow.records_per_s is not None:
            said.append(f"{rate_text(flow.records_per_s)} records/s")
        if flow.skew > SKEW_AT:
            said.append(f"skew {flow.skew:.1f}")
        if flow.waiting:
            said.append(f"{flow.waiting:,} wait")
    if name in measured.sink_rates:
        said.append(f"{rate_text(measured.sink_rates[name])} rows/s")
    if name in measured.state_rows:
        said.append(f"{measured.state_rows[name]:,} rows of state")
    return said + (_load_figures(measured.loads[name]) if name in measured.loads else [])


def _load_figures(load: StepLoad) -> list[str]:
    """What stands out in how a step's records are divided.

    >>> from lockstep.keyed.loads import HotKey
    >>> _load_figures(StepLoad("count", {3: 90, 7: 10, 9: 10}, (HotKey("acme", 3, 0.8),)))
    ['skew 9.0 (bucket 3)', 'key acme 80 %']
    """
    said = [f"skew {load.skew:.1f} (bucket {load.largest})"] if load.skew > SKEW_AT else []
    return said + [f"key {one.key[:KEY_CHARACTERS]} {one.share * 100:.0f} %" for one in load.keys[:1] if is_hot(one)]


def size(steps: Sequence[PlacedStep]) -> tuple[int, int]:
    """How many rows and columns the drawing has."""
    return 1 + max((one.row for one in steps), default=-1), 1 + max((one.column for one in steps), default=-1)
