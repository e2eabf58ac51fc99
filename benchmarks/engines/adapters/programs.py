"""Which program of an engine does which workload."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.engines.contract import Options, Workload
from benchmarks.engines.environments import PROGRAMS

_NUMBERED = re.compile(r"(chain|nexmark)_")
"""Families of workloads that share one program, which gets the workload's whole name."""


def program(engine: str, workload: Workload) -> Path:
    """The program, whether it is there or not.

    >>> program("spark", type("W", (), {"name": "chain_3"})()).name
    'chain.py'
    """
    family = _NUMBERED.match(workload.name)
    return PROGRAMS / engine / f"{family.group(1) if family else workload.name}.py"


def unsupported(engine: str, workload: Workload, queries: tuple[str, ...], why: str) -> str | None:
    """Why an engine does not do a workload: it has no program for it, or not for this query of Nexmark."""
    if not program(engine, workload).exists():
        return "no program was written for it"
    if workload.name.startswith("nexmark_") and workload.name.removeprefix("nexmark_") not in queries:
        return why
    return None


def environment(workload: Workload, options: Options) -> dict[str, str]:
    """What every program is told."""
    return {
        "BENCH_WORKLOAD": workload.name,
        "BENCH_MASTER": options.master,
        "BENCH_PARTITIONS": str(options.partitions),
        "BENCH_BOUNDED": "1" if options.bounded else "0",
        # A loop restarts programs; their output is read from files, never from a terminal.
        "PYTHONUNBUFFERED": "1",
    }
