"""A job drawn for a terminal: one line for each step, with lanes that show where streams part and meet."""

from __future__ import annotations

import textwrap
from functools import singledispatch
from typing import Any

from lockstep.durations import duration_text
from lockstep.plan.encode import function_name, step_json
from lockstep.plan.graph import Graph
from lockstep.plan.joins import CoGroup, IntervalJoin, TableJoin, WindowJoin, signed_text
from lockstep.plan.keyed import SideOutput
from lockstep.plan.kinds import kind_of, kind_words
from lockstep.plan.loops import LoopEnd, LoopHead
from lockstep.plan.processes import ProcessStep
from lockstep.plan.stages import Stage
from lockstep.plan.steps import (
    Aggregate,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Named,
    Rename,
    Select,
    Sink,
    Source,
    Step,
    Union,
    WithColumns,
)

_MARKS = {"source": "●", "step": "○", "stateful": "◆", "python": "λ", "sink": "■"}
MEANINGS = {
    "source": "source",
    "step": "native Spark",
    "stateful": "native Spark, keeps state",
    "python": "runs Python",
    "sink": "sink",
}


def draw(graph: Graph, width: int = 100) -> str:
    """The job as text for a terminal of ``width`` characters."""
    lanes = _Lanes(graph.steps)
    id_width = max(len(step.id) for step in graph.steps)
    rows = [row for step in graph.steps for row in lanes.rows_of(step)]
    lane_width = max(len(lane) for lane, _ in rows)
    lines = [f"job {graph.name}  ({_modes(graph)})", ""]
    for lane, step in rows:
        if step is None:
            lines.append(lane)
            continue
        room = max(30, width - lane_width - id_width - 4)
        first, *rest = textwrap.wrap(described(step), room, break_long_words=False) or [""]
        lines.append(f"{lane:<{lane_width}}  {step.id:<{id_width}}  {first}".rstrip())
        lines += [f"{lanes.passing[id(step)]:<{lane_width}}  {'':<{id_width}}  {more}" for more in rest]
    return "\n".join([*lines, "", *_notes(graph)])


def to_json(graph: Graph) -> dict[str, Any]:
    """The job as plain data, for ``lockstep plan --json``."""
    return {
        "job": graph.name,
        "stages": [_stage_json(stage) for stage in graph.stages],
        "options": dict(graph.options),
        "steps": [
            {
                **step_json(step),
                "text": words(step),
                "kind": kind_of(step).name,
                "stateful": step.stateful,
                "python": step.runs_python,
            }
            for step in graph.steps
        ],
        "unused": list(graph.unused),
    }


def _notes(graph: Graph) -> list[str]:
    used = {mark_kind(step) for step in graph.steps}
    legend = "   ".join(f"{_MARKS[kind]} {meaning}" for kind, meaning in MEANINGS.items() if kind in used)
    return [legend, *_stage_notes(graph), *[f'no sink reads "{step_id}".' for step_id in graph.unused]]


def _modes(graph: Graph) -> str:
    if len(graph.stages) == 1:
        return graph.stages[0].output_mode
    return f"{len(graph.stages)} stages"


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "stage": stage.number,
        "output_mode": stage.output_mode,
        "steps": [step.id for step in stage.steps],
        "sinks": [sink.id for sink in stage.sinks],
        "reads": list(stage.sources),
    }


def _stage_notes(graph: Graph) -> list[str]:
    """Where a job is cut: one line for each stage, one for each journal between them."""
    if len(graph.stages) == 1:
        return []
    lines = ["", "stages, each a Spark query of its own:"]
    for stage in graph.stages:
        ends = ", ".join(sink.id for sink in stage.sinks)
        lines.append(f"  {stage.number}  {_results(stage)}: {', '.join(stage.sources)} -> {ends}")
    for boundary in graph.boundaries:
        readers = [step.id for stage in graph.stages for step in stage.steps if stage.is_cut(step, boundary.step)]
        lines.append(f'  cut after "{boundary.step.id}", before {", ".join(dict.fromkeys(readers))}: {boundary.name}')
    return lines


def _results(stage: Stage) -> str:
    """What a stage gives."""
    if all(kind_of(sink.input).name == "changes" for sink in stage.sinks):
        return "changes"
    return {"append": "final results", "update": "results as updates"}[stage.output_mode]


def mark_kind(step: Step) -> str:
    """What a step is, for its mark: source, step, stateful, python or sink."""
    if isinstance(step, Source):
        return "source"
    if isinstance(step, Sink):
        return "sink"
    if step.runs_python:
        return "python"
    return "stateful" if step.stateful else "step"


class _Lanes:
    """Which streams are open beside a step. A lane holds the step that will read it, by id."""

    def __init__(self, steps: tuple[Step, ...]) -> None:
        self._readers: dict[int, list[int]] = {id(step): [] for step in steps}
        for step in steps:
            for before in dict.fromkeys(id(before) for before in step.inputs):
                self._readers[before].append(id(step))
        self._lanes: list[int | None] = []
        self.passing: dict[int, str] = {}

    def rows_of(self, step: Step) -> list[tuple[str, Step | None]]:
        """The rows that a step needs: where lanes meet, the step itself, where they part."""
        rows: list[tuple[str, Step | None]] = []
        mine = [lane for lane, reader in enumerate(self._lanes) if reader == id(step)]
        if len(mine) > 1:
            rows.append((self._joint(mine, "╯", "┴"), None))
            for lane in mine[1:]:
                self._lanes[lane] = None
        own = mine[0] if mine else self._free_lane()
        self._lanes[own] = id(step)
        rows.append((self._row({own: _MARKS[mark_kind(step)]}), step))
        opened = self._open(own, self._readers[id(step)])
        if len(opened) > 1:
            rows.append((self._joint(opened, "╮", "┬"), None))
        self.passing[id(step)] = self._row({})
        return rows

    def _open(self, own: int, readers: list[int]) -> list[int]:
        """Give each reader a lane: the first goes straight on, the others to the right."""
        self._lanes[own] = None
        opened: list[int] = []
        for reader in readers:
            lane = own if not opened else self._free_lane(after=own)
            self._lanes[lane] = reader
            opened.append(lane)
        return opened

    def _free_lane(self, after: int = -1) -> int:
        for lane in range(after + 1, len(self._lanes)):
            if self._lanes[lane] is None:
                return lane
        self._lanes.append(None)
        return len(self._lanes) - 1

    def _row(self, marks: dict[int, str]) -> str:
        signs = (marks.get(lane, " " if reader is None else "│") for lane, reader in enumerate(self._lanes))
        return " ".join(signs).rstrip()

    def _joint(self, lanes: list[int], end: str, between: str) -> str:
        """A row in which ``lanes`` are tied together, crossing those that only pass."""
        signs = []
        for lane, reader in enumerate(self._lanes):
            sign = " " if reader is None else "│"
            if lanes[0] < lane < lanes[-1]:
                sign = between if lane in lanes else "─" if reader is None else "┼"
            elif lane in lanes:
                sign = "├" if lane == lanes[0] else end
            signs.append(sign + ("─" if lanes[0] <= lane < lanes[-1] else " "))
        return "".join(signs).rstrip()


def described(step: Step) -> str:
    """What a step does, and what its rows are where that is not what the rows were that it read."""
    kind = kind_words(step)
    return f"{words(step)} [{kind}]" if kind else words(step)


@singledispatch
def words(step: Step) -> str:
    """What a step does, in one line."""
    raise NotImplementedError(f"{type(step).__name__} has no drawing")


@words.register
def _(step: Source) -> str:
    return f"{step.spec.describe()}: {step.spec.schema.ddl()}"


@words.register
def _(step: Filter) -> str:
    return f"filter {step.condition}"


@words.register
def _(step: Select) -> str:
    return f"select {_named(step.selection)}"


@words.register
def _(step: WithColumns) -> str:
    return f"with {_named(step.additions)}"


@words.register
def _(step: Drop) -> str:
    return f"drop {', '.join(step.names)}"


@words.register
def _(step: Rename) -> str:
    return "rename " + ", ".join(f"{old} to {new}" for old, new in step.renames)


@words.register
def _(step: Union) -> str:
    return "union of " + ", ".join(before.id for before in step.inputs)


@words.register
def _(step: EventTime) -> str:
    idle = "" if step.idle_after_us is None else f", idle after {duration_text(step.idle_after_us)}"
    return f"event time {step.time}, out of order by {duration_text(step.out_of_order_us)}{idle}"


@words.register
def _(step: Aggregate) -> str:
    by = f" by {_named(step.keys)}" if step.keys else ""
    window = f", {step.window}" if step.window is not None else ""
    floats = "" if step.exact_floats else " (floats added in any order)"
    updates = ", as updates" if step.updates else ""
    return f"aggregate{by}{window}{updates}: {_named(step.aggregates)}{floats}"


@words.register(Map)
@words.register(FlatMap)
@words.register(MapBatches)
def _(step: Map | FlatMap | MapBatches) -> str:
    name = {Map: "map", FlatMap: "flat_map", MapBatches: "map_batches"}[type(step)]
    skip = ", skips records that fail" if step.on_error == "skip" else ""
    return f"{name} {function_name(step.function)}: {step.schema.ddl()}{skip}"


@words.register
def _(step: LoopHead) -> str:
    return f"loop begins: at most {step.rounds_max} rounds"


@words.register
def _(step: LoopEnd) -> str:
    return f'back to "{step.head.id}", in the next epoch'


@words.register
def _(step: IntervalJoin) -> str:
    between = f"{signed_text(step.lower_us)} to {signed_text(step.upper_us)} after it"
    return f"{step.how} join of {step.left.id} with {step.right.id} {_equal(step.on)}, {between}"


@words.register
def _(step: WindowJoin) -> str:
    return f"{step.how} join of {step.left.id} with {step.right.id} {_equal(step.on)}, {step.window}"


@words.register
def _(step: TableJoin) -> str:
    return f"{step.how} join with {step.table.describe()} {_equal(step.on)}"


@words.register
def _(step: CoGroup) -> str:
    by = _named(step.keys[0] or ())
    streams = " and ".join(stream.id for stream in step.streams)
    return f"co-group {streams} by {by}, {step.window}: {function_name(step.function)}: {step.schema.ddl()}"


@words.register
def _(step: ProcessStep) -> str:
    by = f" by {_named(keys)}" if (keys := next((keys for keys in step.keys if keys), None)) else ""
    order = ", in the order of event time" if step.ordered else ""
    return f"process{by}{order} {function_name(step.function)}: {step.schema.ddl()}"


@words.register
def _(step: SideOutput) -> str:
    return f'side output "{step.output}" of {step.step.id}: {", ".join(step.columns)}'


@words.register
def _(step: Sink) -> str:
    return f"to {step.spec.describe()}, {step.given}"


def _equal(pairs: tuple[tuple[str, str], ...]) -> str:
    return "on " + ", ".join(left if left == right else f"{left} = {right}" for left, right in pairs)


def _named(named: Named) -> str:
    return ", ".join(name if str(value) == name else f"{name} = {value}" for name, value in named)
