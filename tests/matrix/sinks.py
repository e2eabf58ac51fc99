"""What the sinks of a job hold at the end, and how it differs from what they should hold."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from lockstep.connect.specs import ConsoleSink, FilesSink, SqliteSink
from lockstep.plan.steps import Sink
from lockstep.testing import Trial
from lockstep.testing.substitute import in_memory_sinks
from tests.matrix.case import Rows

ADDED = "added"
"""The sink that comes with the change of code."""
SHOWN = 3


_PRINTED = re.compile(r"^-- (?P<sink>[\w-]+), epoch (?P<epoch>\d+): (?P<rows>\d+) rows$", re.MULTILINE)


def published(trial: Trial, sink: Sink, head: int) -> Rows:
    """All rows of a sink with the epoch that published them."""
    match sink.spec:
        case FilesSink(path=path):
            return _by_epoch(trial, path, None, head)
        case SqliteSink(path=path, table=table, key=()):
            return _by_epoch(trial, path, table, head)
        case SqliteSink(path=path, table=table):
            # A row that was replaced is gone: only what is left at the end can be compared.
            return [(head, *row.values()) for row in trial.rows(path, table=table)]
    raise AssertionError(f"{sink.spec.describe()} cannot be read back: say in tests/matrix/sinks.py what to compare")


def first_appending(trial: Trial) -> Sink:
    """The first sink that keeps every row: of the same rows a second one can be compared with it."""
    return next(
        sink for sink in in_memory_sinks(trial.graph) if not isinstance(sink.spec, ConsoleSink) and not sink.spec.key
    )


def fault_of(trial: Trial, sink: Sink, expected: Rows, head: int, last: int, printed: str) -> str:
    """What is wrong with a sink at the end, in words; empty if nothing is."""
    if isinstance(sink.spec, ConsoleSink):
        return _fault_of_console(sink, expected, printed)
    return differences(published(trial, sink, head), expected, last)


def _fault_of_console(sink: Sink, expected: Rows, printed: str) -> str:
    """Epochs are printed at least once, or at most once; never with another number of rows."""
    wanted = Counter(row[0] for row in expected)
    said = [(int(one["epoch"]), int(one["rows"])) for one in _PRINTED.finditer(printed) if one["sink"] == sink.id]
    wrong = [f"epoch {epoch} was printed with {rows} rows" for epoch, rows in said if wanted[epoch] != rows]
    times = Counter(epoch for epoch, _ in said)
    if sink.given == "at-most-once":
        wrong += [f"epoch {epoch} was printed {number} times" for epoch, number in times.items() if number > 1]
    else:
        wrong += [f"epoch {epoch} was never printed" for epoch in wanted if not times[epoch]]
    return "; ".join(wrong)


def _by_epoch(trial: Trial, path: str, table: str | None, head: int) -> Rows:
    return [(epoch, *row.values()) for epoch in range(head + 1) for row in trial.rows(path, epoch, table=table)]


def differences(found: Rows, expected: Rows, last: int) -> str:
    """What is missing and what is too much, in words; empty if nothing is. Epochs after ``last`` count as that one."""
    counted = [Counter(_text((min(row[0], last), *row[1:])) for row in rows) for rows in (found, expected)]
    missing, more = list((counted[1] - counted[0]).elements()), list((counted[0] - counted[1]).elements())
    parts = [f"{len(missing)} missing: {_some(missing)}"] if missing else []
    parts += [f"{len(more)} too many: {_some(more)}"] if more else []
    return "; ".join(parts)


def _text(row: tuple[Any, ...]) -> str:
    return repr(tuple(_plain(value) for value in row))


def _plain(value: Any) -> Any:
    """A value as it compares: times as text, maps and lists whole, zero without a sign."""
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value


def _some(rows: list[str]) -> str:
    return ", ".join(sorted(rows)[:SHOWN]) + (" ..." if len(rows) > SHOWN else "")
