"""The table of jobs: one row of the matrix for each."""

from __future__ import annotations

from tests.matrix.case import Case
from tests.matrix.jobs import (
    changes,
    ends,
    everything,
    joins,
    processes,
    rolling,
    stages,
    stateless,
    windows,
    windows_in_python,
)

CASES: tuple[Case, ...] = tuple(
    case
    for family in (everything, stateless, rolling, changes, windows, windows_in_python, joins, processes, stages, ends)
    for case in family.CASES
)
