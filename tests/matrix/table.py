"""The table of jobs: one row of the matrix for each."""

from __future__ import annotations

from tests.matrix.case import Case
from tests.matrix.jobs import ends, joins, processes, rolling, stages, stateless, windows, windows_in_python

CASES: tuple[Case, ...] = (
    *stateless.CASES,
    *rolling.CASES,
    *windows.CASES,
    *windows_in_python.CASES,
    *processes.CASES,
    *stages.CASES,
    *joins.CASES,
    *ends.CASES,
)
