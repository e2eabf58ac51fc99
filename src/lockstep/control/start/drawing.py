"""The plan of a job as people look at it, kept in its store: whoever shows it need not load the code of the job."""

from __future__ import annotations

import json
from typing import Any

from lockstep.plan.draw import draw, to_json
from lockstep.plan.graph import Graph
from lockstep.store.protocols import Facts

DRAWING = "drawing"
"""Fact: the newest run's plan, {"text": as `lockstep plan` draws it, "graph": as `lockstep plan --json` has it}."""
DRAWING_CHARACTERS_MAX = 500_000
"""A coordination service takes a megabyte in one value. The plan of a job with a thousand steps is half of this."""


def note_drawing(store: Facts, graph: Graph) -> None:
    """Keep the plan of a job that is about to run; one that is too large to be looked at is left out."""
    text = json.dumps({"text": draw(graph), "graph": to_json(graph)}, default=str)
    store.set_fact(DRAWING, text if len(text) <= DRAWING_CHARACTERS_MAX else "{}")


def drawing(store: Facts) -> dict[str, Any]:
    """What was kept; empty if the job never ran, or if its plan is too large."""
    return dict(json.loads(store.fact(DRAWING) or "{}"))
