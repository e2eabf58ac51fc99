"""A kind of step without a lowering, a drawing, documentation or a test fails here, with what it lacks."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import lockstep.compile
import lockstep.plan
from lockstep.compile.keyed import operator_kinds
from lockstep.compile.steps import lowered_kinds
from lockstep.plan.draw import words
from lockstep.plan.encode import details
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.steps import Step

ROOT = Path(__file__).parents[3]

METHODS = {
    "Source": "source",
    "Sink": "to",
    "Filter": "filter",
    "Select": "select",
    "WithColumns": "with_columns",
    "Drop": "drop",
    "Rename": "rename",
    "Union": "union",
    "EventTime": "event_time",
    "Aggregate": "agg",
    "Map": "map",
    "FlatMap": "flat_map",
    "MapBatches": "map_batches",
    "Explode": "explode",
    "Distinct": "distinct",
    "RollingReduce": "reduce",
    "RollingFold": "fold",
    "RollingExtreme": "(min|max)_by",
    "RollingAggregate": "count",
    "Latest": "latest",
    "AsEvents": "as_events",
    "AggregateOfChanges": "latest",
    "WindowStep": "window",
    "SideOutput": "side",
    "ProcessStep": "process",
    "IntervalJoin": "join",
    "WindowJoin": "join",
    "TableJoin": "join",
    "CoGroup": "co_group",
    "LoopHead": "iterate",
    "LoopEnd": "iterate",
    "BoltStep": "bolt",
}
"""The method by which a user makes a step (a regular expression): under that name it is documented and tested."""
INSIDE = {"StageSink": "the end of a stage; cutting makes it, nobody writes it"}
ABSTRACT = {"KeyedStep"}


def _import_all() -> None:
    for package in (lockstep.plan, lockstep.compile):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)


def _kinds() -> list[type[Step]]:
    _import_all()
    found: list[type[Step]] = []
    waiting: list[type[Step]] = [Step]
    while waiting:
        below = waiting.pop().__subclasses__()
        waiting += below
        found += [cls for cls in below if not cls.__name__.startswith("_") and cls.__module__.startswith("lockstep.")]
    return sorted((cls for cls in found if cls.__name__ not in ABSTRACT), key=lambda cls: cls.__name__)


@cache
def _texts(pattern: str) -> str:
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(pattern)))


def _names(text: str, method: str) -> bool:
    return re.search(rf"\.{method}\(", text) is not None


@pytest.mark.parametrize("kind", _kinds(), ids=lambda kind: kind.__name__)
def test_a_kind_of_step_has_everything(kind: type[Step]) -> None:
    lowered = operator_kinds() if issubclass(kind, KeyedStep) else lowered_kinds()
    method = METHODS.get(kind.__name__, "")
    lacks = {
        "a lowering in compile/": not any(cls in lowered for cls in kind.__mro__ if cls not in (Step, KeyedStep)),
        "words in plan/draw.py": words.dispatch(kind) is words.dispatch(object),
        "details in plan/encode.py": details.dispatch(kind) is details.dispatch(object),
        "a docstring": not kind.__doc__ or kind.__doc__.startswith(f"{kind.__name__}("),
    }
    if kind.__name__ not in INSIDE:
        lacks |= {
            "its method in the table here": not method,
            f"a page in docs/guide that shows .{method}(": not _names(_texts("docs/guide/*.md"), method),
            f"a test in tests/spark that calls .{method}(": not _names(_texts("tests/spark/test_*.py"), method),
        }
    assert [what for what, missing in lacks.items() if missing] == []


def test_the_table_has_no_kinds_that_are_gone() -> None:
    there = {kind.__name__ for kind in _kinds()}
    assert {*METHODS, *INSIDE} - there == set()
