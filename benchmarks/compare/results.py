"""The document of a comparison: everything that was measured, on what, with which versions; stored as JSON."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.compare.plan import Cell, Size
from benchmarks.engines.contract import Engine, Workload
from lockstep.bench.report import RESULTS_FOLDER, machine, versions

KIND = "compare"
Document = dict[str, Any]


def new_document(
    engines: Sequence[Engine], workloads: Mapping[str, Workload], size: Size, command: str, *, quick: bool
) -> Document:
    """A comparison in which nothing was measured yet."""
    at = datetime.now(UTC)
    return {
        "bench": KIND,
        "quick": quick,
        "at": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "command": command,
        "machine": {**machine(), "os": platform.platform(), "processor": processor()},
        "versions": versions(),
        "engines": {one.name: engine_facts(one) for one in engines},
        "workloads": {name: workload_facts(one) for name, one in workloads.items()},
        "size": asdict(size),
        "cells": [],
        "interrupted": False,
        "took_s": 0.0,
    }


def engine_facts(engine: Engine) -> dict[str, Any]:
    """What is said of an engine beside its figures."""
    missing = engine.missing()
    return {
        "title": engine.title,
        "guarantee": engine.guarantee,
        "version": None if missing else engine.version(),
        "missing": missing,
    }


def workload_facts(workload: Workload) -> dict[str, Any]:
    """What is said of a workload."""
    return {
        "title": workload.title,
        "steps": workload.steps,
        "results": workload.results.value,
        "rates_per_s": {one.source: one.rate_per_s for one in workload.inputs},
    }


def cell_facts(cell: Cell, took_s: float, **found: Any) -> dict[str, Any]:
    """One cell as it is stored."""
    return {**asdict(cell), "took_s": round(took_s, 1), **clean(found)}


def processor() -> str:
    """The name of the processor, as far as the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def clean(value: Any) -> Any:
    """The value as JSON can hold it: six digits that matter, and null where nothing could be measured.

    >>> clean({"a": float("nan"), "b": [1.23456789, 2]})
    {'a': None, 'b': [1.23457, 2]}
    """
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): clean(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [clean(one) for one in value]
    return value


def path_of(document: Document, project: Path) -> Path:
    """Where a comparison is stored: by its date and time, since a day may see several."""
    at = document["at"].replace(":", "").replace("-", "")[:13]
    quick = "-quick" if document["quick"] else ""
    return project / RESULTS_FOLDER / f"{KIND}-{at}{quick}.json"


def save(document: Document, project: Path) -> Path:
    """Write it, whole or not at all."""
    path = path_of(document, project)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    temporary.replace(path)
    return path


def stored(folder: Path) -> list[Document]:
    """All results in a folder, oldest first; each says in ``bench`` what it is."""
    documents = []
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and "bench" in document:
            documents.append({**document, "file": path.name})
    return sorted(documents, key=lambda one: (one["at"], one["file"]))
