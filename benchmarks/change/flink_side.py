"""PyFlink's side: its adaptive scheduler rescales in place; new code is a savepoint and a start from it."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.engines.adapters.flink_cluster import all_run, rest
from benchmarks.engines.environments import PROGRAMS, python_of
from lockstep.bench.change.marks import laps
from lockstep.bench.change.sides import RATE, Change, Outcome, Plan, Steps, Watching
from lockstep.bench.change.totals import TotalRow, check_totals, expected_totals
from lockstep.bench.children import Child, files_feeder, running
from lockstep.bench.events import read_sent
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us

SIDE = "PyFlink, adaptive scheduler"
START_TIMEOUT_S = 120.0
DRAIN_S = 6.0
NOTES = (
    "the source has a parallelism of one throughout, the aggregation and the sink change; rescaling is a PUT of "
    "/jobs/ID/resource-requirements, after which its scheduler restarts the tasks from its newest checkpoint",
    "output becomes visible with each checkpoint, every 500 ms",
    "new code is a stop with a savepoint and a start from it",
)


def measure(folder: Path, say: Say, plan: Plan) -> Outcome:
    """Run the job under load, change it again and again, drain, and check."""
    watching = Watching(SIDE, say, plan, lambda: read_seen_epochs(folder / "seen.log"))
    for name in ("input/events", "output"):
        (folder / name).mkdir(parents=True)
    observed = ["-m", "benchmarks.change.file_observer", str(folder / "output"), str(folder / "seen.log")]
    with (
        _cluster(folder) as cluster,
        running(Child("the observer", observed, folder / "observer.log", _root())) as observing,
    ):
        with running(files_feeder(folder, folder / "input" / "events", RATE)) as feeder:
            watching.look = lambda: _check(cluster.child, observing, feeder)
            _until(watching, lambda: bool(_seen(folder)))
            watching.wait(plan.warm_up_s)
            changed = [watching.around(change, partial(cluster.change, change, watching)) for change in plan.changes]
        watching.look = lambda: _check(cluster.child, observing)
        watching.wait(DRAIN_S)
    rows = _rows(folder / "output")
    check = check_totals(expected_totals(read_sent(folder / "sent.log")), rows, in_order=False)
    return Outcome(SIDE, changed, check, notes=NOTES)


class Cluster:
    """A job manager and a task manager with four slots, and the job."""

    def __init__(self, folder: Path, child: Child) -> None:
        self._folder, self.child = folder, child

    def change(self, change: Change, watching: Watching) -> Steps:
        """Rescale in place, or stop with a savepoint and start the new code; done when a result is seen again."""
        begun_us = wall_us()
        if change.partitions is None:
            (self._folder / "new-code").touch()
            _until(watching, (self._folder / "replaced").exists)
            marks = [("replaced", wall_us())]
        else:
            state = self._state()
            before = _restarts(state)
            _put(state["rest_port"], f"/jobs/{state['job']}/resource-requirements", self._wanted(change.partitions))
            job = f"/jobs/{state['job']}"
            _until(watching, lambda: _restarts(state) > before and all_run(rest(state["rest_port"], job)))
            marks = [("rescaled", wall_us())]
        _until(watching, lambda: _seen(self._folder)[-1][1] > marks[-1][1])
        return laps(begun_us, [*marks, ("first_result", _seen(self._folder)[-1][1])])

    def _wanted(self, partitions: int) -> dict[str, Any]:
        state = self._state()
        vertices = rest(state["rest_port"], f"/jobs/{state['job']}")["vertices"]
        bounds = {
            one["id"]: 1 if "Source" in one["name"] and "GroupAggregate" not in one["name"] else partitions
            for one in vertices
        }
        return {id_: {"parallelism": {"lowerBound": 1, "upperBound": upper}} for id_, upper in bounds.items()}

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self._folder / "work" / "cluster.json").read_text(encoding="utf-8"))
        return found


def _restarts(state: dict[str, Any]) -> int:
    """How often the job's tasks were started anew."""
    timestamps = rest(state["rest_port"], f"/jobs/{state['job']}").get("timestamps", {})
    return int(timestamps.get("RUNNING", 0))


def _put(port: int, path: str, body: dict[str, Any]) -> None:
    answer = httpx2.put(f"http://127.0.0.1:{port}{path}", json=body, timeout=10)
    answer.raise_for_status()


def _until(watching: Watching, condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise TimeoutError("Flink did not do what it was asked within two minutes; --keep keeps its logs")
        watching.wait(0.1)


@contextmanager
def _cluster(folder: Path) -> Iterator[Cluster]:
    python = python_of("flink")
    home = next((python.parent.parent / "lib").glob("python*/site-packages/pyflink"))
    program = PROGRAMS / "flink" / "totals.py"
    arguments = ["-m", "benchmarks.change.flink_cluster", str(folder), str(home), str(python), str(program)]
    with running(Child("Flink's cluster", arguments, folder / "cluster.log", _root())) as child:
        yield Cluster(folder, child)


def _root() -> Path:
    return PROGRAMS.parents[1]


def _check(*children: Child) -> None:
    for child in children:
        child.check()


def _seen(folder: Path) -> list[tuple[int, int]]:
    return read_seen_epochs(folder / "seen.log")


def _rows(folder: Path) -> Iterator[TotalRow]:
    """The rows of all files that are visible; those that take an earlier one back are left out."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        for line in path.read_bytes().splitlines():
            if not line.startswith((b"-U", b"-D")):
                row = json.loads(line[3:-1] if line.startswith(b"+") else line)
                yield row["customer"], row["events"], row["total"]


if __name__ == "__main__":
    sys.exit("python -m benchmarks change")
