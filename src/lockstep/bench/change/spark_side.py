"""The side of hand-written PySpark: stop, have Spark repartition the checkpoint, start; or start with new code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

from lockstep.bench.change.marks import laps, read_marks
from lockstep.bench.change.sides import RATE, Change, Outcome, Plan, Steps, Watching
from lockstep.bench.change.totals import TotalRow, check_totals, expected_totals
from lockstep.bench.children import Child, files_feeder, observer, running
from lockstep.bench.events import read_sent
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.runtime.process_environment import process_environment

SIDE = "PySpark by hand"
START_TIMEOUT_S = 120.0
DRAIN_S = 4.0


def measure(folder: Path, say: Say, plan: Plan) -> Outcome:
    """Run the query under load, change it again and again, drain, and check."""
    watching = Watching(SIDE, say, plan, lambda: read_seen_epochs(folder / "seen.log"))
    (folder / "input").mkdir()
    (folder / "batches").mkdir()
    with _query(folder) as query, running(observer(folder, folder / "batches", ".parquet")) as observing:
        with running(files_feeder(folder, folder / "input", RATE)) as feeder:
            watching.look = lambda: _check(query, observing, feeder)
            query.child.wait_until(lambda: bool(_seen(folder)), START_TIMEOUT_S, "starting the query")
            watching.wait(plan.warm_up_s)
            changed = [watching.around(change, partial(query.change, change)) for change in plan.changes]
        watching.look = lambda: _check(query, observing)
        watching.wait(DRAIN_S)
    check = check_totals(expected_totals(read_sent(folder / "sent.log")), _rows(folder / "batches"))
    return Outcome(SIDE, changed, check)


class Query:
    """The process of the query, of which there is one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._partitions, self._code = 1, "old"
        self.child = self._started()

    def change(self, change: Change) -> Steps:
        """Stop it, and start it in another shape or with other code; done when it shows a result again."""
        begun_us = wall_us()
        self.child.end_input()
        self.child.wait_end(START_TIMEOUT_S)
        if change.partitions is not None:
            self._partitions = change.partitions
        else:
            self._code = "new"
        seen = len(_seen(self._folder))
        self.child = self._started()
        self.child.wait_until(
            lambda: len(_seen(self._folder)) > seen and _is_newer(self._folder, begun_us),
            START_TIMEOUT_S,
            "going on after the change",
        )
        marks = read_marks(self._folder, begun_us)
        after = next(at_us for _, at_us in _seen(self._folder) if at_us > marks[-1][1])
        named = [(name, at_us) for name, at_us in marks if name != "prepared"]
        return laps(begun_us, [*named, ("first_batch", after)])

    def _started(self) -> Child:
        noted = self._folder / "partitions"
        repartitioned = noted.read_text(encoding="utf-8").split()[1] if noted.exists() else "0"
        arguments = [str(self._folder), str(self._partitions), self._code, repartitioned]
        module = ["-m", "lockstep.bench.change.by_hand", *arguments]
        return Child("the hand-written query", module, self._folder / "query.log", self._folder, process_environment())


@contextmanager
def _query(folder: Path) -> Iterator[Query]:
    query = Query(folder)
    try:
        yield query
    finally:
        query.child.kill()


def _check(query: Query, *children: Child) -> None:
    for child in (query.child, *children):
        child.check()


def _seen(folder: Path) -> list[tuple[int, int]]:
    return read_seen_epochs(folder / "seen.log")


def _is_newer(folder: Path, begun_us: int) -> bool:
    """Whether a result was seen after all that the new process had to do first."""
    marks = read_marks(folder, begun_us)
    return marks[-1][0] == "prepared" and _seen(folder)[-1][1] > marks[-1][1]


def _rows(folder: Path) -> Iterator[TotalRow]:
    for path in sorted(folder.glob("*.parquet")):
        table = pq.read_table(path)
        yield from zip(*(table[name].to_pylist() for name in ("customer", "events", "total")), strict=True)
