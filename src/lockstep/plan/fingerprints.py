"""What a checkpoint depends on, and whether a changed job can go on from it.

Spark knows stateful operators and sources by their position in the query and would misread state silently after a
reordering. So the fingerprint keeps their order, and everything that gives their state its meaning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.durations import duration_text
from lockstep.plan.encode import canonical, step_json
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.newest_rows import keeps_positions
from lockstep.plan.stages import Stage
from lockstep.plan.steps import Source, Step, event_times_before, upstream

FORMAT = 3
"""2: a step with state is once in each branch; it was once for each sink. 3: records that are kept have positions."""
_NO_STATE = ("inputs", "columns", "results")
"""What a step's plain data tells about its results; state does not depend on it."""


def fingerprint(steps: Sequence[Step], stages: Sequence[Stage], buckets: int) -> dict[str, Any]:
    """The stateful part of a plan as plain data."""
    keeping = frozenset(step for stage in stages for step in keeps_positions(stage))
    return {
        "format": FORMAT,
        "output_mode": ", ".join(stage.output_mode for stage in stages),
        "sources": [step.id for step in steps if isinstance(step, Source)],
        "stateful": [_stateful(step, keeping, buckets) for step in steps if step.stateful],
        # A step that two branches need is once in each.
        "operators": [name for stage in stages for name in _operators(stage)],
    }


def _operators(stage: Stage) -> list[str]:
    found = [step.id for sink, *_ in stage.branches for step in stage.upstream(sink) if step.stateful]
    return [name if stage.number == 1 else f"{name} in stage {stage.number}" for name in found]


def _stateful(step: Step, keeping: frozenset[int], buckets: int) -> dict[str, Any]:
    own = {key: value for key, value in step_json(step).items() if key not in _NO_STATE}
    if isinstance(step, KeyedStep):
        own["buckets"] = buckets
    if id(step) in keeping:
        own["newest_position"] = "kept for a keyed sink"
    sources = sorted((before for before in upstream(step) if isinstance(before, Source)), key=lambda s: s.order)
    return {
        **own,
        "event_times": [
            {key: value for key, value in step_json(time).items() if key not in ("id", "inputs", "columns", "step")}
            for time in dict.fromkeys(time for before in step.inputs for time in event_times_before(before))
        ],
        "sources": {source.id: {field.name: field.type for field in source.spec.schema.fields} for source in sources},
    }


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """What keeps a job from going on from an older checkpoint, in plain words; empty if nothing does.

    A new column in a source is no difference: no state has seen it.

    >>> same = {"format": 1, "output_mode": "append", "sources": ["logins"], "stateful": []}
    >>> differences(same, same), differences(same, {**same, "sources": ["logins", "clicks"]})
    ([], ['the sources were: logins; they are: logins, clicks'])
    """
    if old.get("format") != new.get("format"):
        return [
            f"this release lays state out in another way than the one that wrote it "
            f"(format {new.get('format')}, not {old.get('format')})"
        ]
    found = []
    if old["sources"] != new["sources"]:
        found.append(f"the sources were: {_list(old['sources'])}; they are: {_list(new['sources'])}")
    if old["output_mode"] != new["output_mode"]:
        found.append(f"results were given in {old['output_mode']} mode, they are given in {new['output_mode']} mode")
    old_steps = {step["id"]: step for step in old["stateful"]}
    new_steps = {step["id"]: step for step in new["stateful"]}
    if list(old_steps) != list(new_steps):
        found.append(f"the steps with state were: {_list(old_steps)}; they are: {_list(new_steps)}")
    elif old.get("operators", list(old_steps)) != new.get("operators", list(new_steps)):
        was, is_now = _list(old.get("operators", [])), _list(new.get("operators", []))
        found.append(
            f"sinks needed the steps with state in the order: {was}; the order is: {is_now} "
            "(sinks of the same rows share a step's state, a sink of other rows has its own)"
        )
    for step_id in old_steps.keys() & new_steps.keys():
        found += _step_differences(step_id, old_steps[step_id], new_steps[step_id])
    return sorted(found)


def _step_differences(step_id: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    found = []
    for key in sorted((old.keys() | new.keys()) - {"id", "sources"}):
        if canonical(old.get(key)) != canonical(new.get(key)):
            what = key.replace("_", " ")
            found.append(f'"{step_id}": {what} was {_words(old.get(key))}, is {_words(new.get(key))}')
    for source in old["sources"].keys() | new["sources"].keys():
        found += _source_differences(step_id, source, old["sources"].get(source), new["sources"].get(source))
    return found


def _source_differences(
    step_id: str, source: str, old: Mapping[str, str] | None, new: Mapping[str, str] | None
) -> list[str]:
    if old is None or new is None:
        return [f'"{step_id}": {"now reads" if old is None else "no longer reads"} the source "{source}"']
    found = []
    for name, type_text in old.items():
        if name not in new:
            found.append(f'"{step_id}": column "{name}" of the source "{source}" is gone')
        elif new[name] != type_text:
            found.append(f'"{step_id}": column "{name}" of the source "{source}" was {type_text}, is {new[name]}')
    return found


def _list(names: Any) -> str:
    return ", ".join(names) or "none"


def _words(value: Any) -> str:
    """A part of a fingerprint for people; expressions stay JSON, which is exact and short enough."""
    if isinstance(value, list):
        return "[" + ", ".join(_words(item) for item in value) + "]"
    if isinstance(value, dict) and "size_us" in value:
        every = f" every {duration_text(value['every_us'])}" if "every_us" in value else ""
        return f"{value['kind']} {duration_text(value['size_us'])}{every}"
    if isinstance(value, dict) and "gap_us" in value:
        return f"session with a gap of {duration_text(value['gap_us'])}"
    if isinstance(value, dict) and "expression" in value:
        return f"{value['name']} = {_expression_words(value['expression'])}"
    if isinstance(value, dict) and "time" in value:
        idle = value["idle_after_us"]
        idle_words = "never idle" if idle is None else f"idle after {duration_text(idle)}"
        late = duration_text(value["out_of_order_us"])
        return f"{_expression_words(value['time'])}, out of order by {late}, {idle_words}"
    return "none" if value is None else str(value)


def _expression_words(data: Any) -> str:
    match data:
        case {"column": name}:
            return str(name)
        case {"sql": text}:
            return str(text)
        case {"literal": value}:
            return json.dumps(value)
        case {"call": name, "args": args}:
            return f"{name.split('.')[-1]}({', '.join(_expression_words(arg) for arg in args)})"
        case str():
            return data
        case _:
            return canonical(data)
