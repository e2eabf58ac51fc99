"""One comparison out of the many that are stored: the newest of each table, and what it replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.compare.page import summary
from benchmarks.compare.plan import GROWTH
from benchmarks.compare.results import Document
from benchmarks.compare.tables import COLUMNS, rows_of
from lockstep.bench.report import Figures, cell
from lockstep.bench.statistics import Row

Table = tuple[str, str]
"""A measure and a workload; growth has one table for all sizes."""
_FIGURES_TOLD = 2


def merged(documents: Sequence[Document]) -> Document | None:
    """One comparison out of those that are stored: of each table the newest run that was not a quick one.

    All engines of a table come from one run: engines that were measured apart are not compared. A run that has less in
    a table than an older one (it was ended early, or somebody looked at one engine) does not replace it.
    """
    chosen = _chosen(documents)
    if not chosen:
        return None
    used = [one for one in documents if any(one is document for document in chosen.values())]
    cells = [found for one in used for found in _measured(one) if chosen[_table_of(found)] is one]
    engines, workloads = {found["engine"] for found in cells}, {found["workload"] for found in cells}
    return {
        **used[-1],
        "engines": {name: facts for one in used for name, facts in one["engines"].items() if name in engines},
        "workloads": {name: facts for one in used for name, facts in one["workloads"].items() if name in workloads},
        "cells": cells,
        "runs": [summary(one) for one in used],
    }


def replaced(documents: Sequence[Document]) -> Figures | None:
    """What was measured before, in full runs, and is no longer shown: the main figures, and whether it was right."""
    chosen = _chosen(documents)
    rows: list[Row] = []
    for document in documents:
        if document["bench"] != "compare" or document["quick"]:
            continue
        tables = dict.fromkeys(_table_of(one) for one in _measured(document))
        for measure, workload in (table for table in tables if chosen[table] is not document):
            title = document["workloads"][workload]["title"] if workload else "growth"
            told = [name for _, name in COLUMNS[measure][:_FIGURES_TOLD]]
            rows += [
                {
                    "measured": document["at"],
                    "what": f"{measure}: {title}",
                    "engine": row["engine"],
                    "figures": ", ".join(f"{name} {cell(row[name])}" for name in told),
                    "result": row["result"],
                }
                for row in rows_of(document, measure, workload)
            ]
    return Figures("replaced", rows) if rows else None


def _chosen(documents: Sequence[Document]) -> dict[Table, Document]:
    """Which document each table comes from."""
    chosen: dict[Table, Document] = {}
    compared = [one for one in documents if one["bench"] == "compare"]
    for document in sorted(compared, key=lambda one: (not one["quick"], one["at"])):
        for table in {_table_of(one) for one in _measured(document)}:
            older = chosen.get(table)
            if older is None or older["quick"] > document["quick"] or _lines(older, table) <= _lines(document, table):
                chosen[table] = document
    return chosen


def _measured(document: Document) -> list[Mapping[str, Any]]:
    """The cells of engines that were there."""
    return [one for one in document["cells"] if "figures" in one or "error" in one]


def _lines(document: Document, table: Table) -> set[tuple[str, str]]:
    """What a table shows with figures: the engines, or of growth the sizes."""
    cells = [one for one in document["cells"] if _table_of(one) == table and "figures" in one]
    return {(one["engine"], one["workload"]) for one in cells}


def _table_of(one: Mapping[str, Any]) -> Table:
    """Which table a cell is in."""
    return one["measure"], "" if one["measure"] in GROWTH else one["workload"]
