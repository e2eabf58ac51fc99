"""What Spark says of a replica's queries, kept in the store for people: state, busy time, the physical plan."""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from lockstep.errors import StoreError
from lockstep.keyed.loads import LOAD_PREFIX, LOADS, StepLoad, summed

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from lockstep.store.protocols import Facts

EVERY_S = 10.0
"""Two short calls into the JVM for each stage, and one word to the store: a thousandth of the time at most."""
LOAD_EPOCHS = 30
"""Loads are summed over so many epochs, of which one is looked at each time: those of the last five minutes."""
PLAN_CHARACTERS_MAX = 20_000
_WAITING = "latestOffset"
"""Spark's word for the time in which a query waits for its next epoch to be sealed: nothing is done in it."""
_WHOLE = "triggerExecution"


@dataclass(frozen=True)
class OperatorMeasure:
    """One operator with state, in the newest epoch of its stage."""

    stage: int
    name: str
    rows: int
    memory_bytes: int
    update_ms: float
    commit_ms: float


@dataclass(frozen=True)
class StageMeasure:
    """What a stage's newest epoch took without waiting for it, and the parts of that, longest first."""

    stage: int
    total_ms: float
    parts_ms: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Measured:
    """What one replica measured last."""

    operators: tuple[OperatorMeasure, ...] = ()
    stages: tuple[StageMeasure, ...] = ()
    plans: tuple[tuple[int, str], ...] = ()
    """(stage, Spark's physical plan of it)."""
    loads: tuple[StepLoad, ...] = ()
    """Of keyed steps, in the newest epochs that were looked at."""

    def operators_of(self, stage: int) -> list[OperatorMeasure]:
        """Those of one stage."""
        return [one for one in self.operators if one.stage == stage]

    def to_text(self) -> str:
        """As it is kept in the store."""
        return json.dumps({**asdict(replace(self, loads=())), "loads": [one.to_json() for one in self.loads]})

    @staticmethod
    def from_text(text: str) -> Measured:
        """What :meth:`to_text` gave.

        >>> one = Measured((OperatorMeasure(1, "dedupe", 7, 900, 3.0, 4.0),), (StageMeasure(1, 8.0, (("a", 8.0),)),))
        >>> Measured.from_text(one.to_text()) == one
        True
        """
        kept = json.loads(text)
        stages = [(one["stage"], one["total_ms"], one["parts_ms"]) for one in kept["stages"]]
        return Measured(
            tuple(OperatorMeasure(**one) for one in kept["operators"]),
            tuple(StageMeasure(stage, total, tuple((n, ms) for n, ms in parts)) for stage, total, parts in stages),
            tuple((stage, text) for stage, text in kept["plans"]),
            tuple(StepLoad.from_json(one) for one in kept.get("loads", ())),
        )


def measured_key(replica: str) -> str:
    """Fact: what this replica measured last."""
    return f"measured:{replica}"


def measured(reports: Iterable[tuple[int, Mapping[str, Any]]], plans: Sequence[tuple[int, str]]) -> Measured:
    """From Spark's reports on the newest batch of each stage.

    >>> state = {"operatorName": "stateStoreSave", "numRowsTotal": 40, "memoryUsedBytes": 9,
    ...     "allUpdatesTimeMs": 2, "commitTimeMs": 5}
    >>> took = {"triggerExecution": 300, "latestOffset": 180, "addBatch": 90, "walCommit": 30}
    >>> one = measured([(1, {"stateOperators": [state], "durationMs": took})], [])
    >>> one.operators[0].rows, one.stages[0].total_ms, one.stages[0].parts_ms
    (40, 120, (('addBatch', 90), ('walCommit', 30)))
    """
    operators, stages = [], []
    for stage, report in reports:
        took: Mapping[str, float] = report.get("durationMs", {})
        parts = sorted(((n, ms) for n, ms in took.items() if n not in (_WHOLE, _WAITING) and ms), key=lambda p: -p[1])
        stages.append(StageMeasure(stage, max(0, took.get(_WHOLE, 0) - took.get(_WAITING, 0)), tuple(parts)))
        operators += [_operator(stage, one) for one in report.get("stateOperators", ())]
    return Measured(tuple(operators), tuple(stages), tuple(plans))


def _operator(stage: int, said: Mapping[str, Any]) -> OperatorMeasure:
    return OperatorMeasure(
        stage,
        str(said.get("operatorName", "")),
        int(said.get("numRowsTotal", 0)),
        int(said.get("memoryUsedBytes", 0)),
        float(said.get("allUpdatesTimeMs", 0)),
        float(said.get("commitTimeMs", 0)),
    )


class Loads:
    """How the records of keyed steps were divided in the newest epochs that were looked at."""

    def __init__(self) -> None:
        self._texts: dict[str, deque[Sequence[str]]] = {}
        self._batches: dict[int, int] = {}

    def add(self, stage: int, report: Mapping[str, Any]) -> None:
        """What Spark reports of a batch; the same one twice counts once.

        >>> loads, text = Loads(), '{"of": [], "buckets": [[3], [9]], "keys": [["acme", 3, 9.0]]}'
        >>> report = {"batchId": 7, "observedMetrics": {"load of count": {"loads": [text]}, "event_time": {}}}
        >>> loads.add(1, report)
        >>> loads.add(1, report)
        >>> [(one.step, one.records, one.keys[0].share) for one in loads.all()]
        [('count', 9, 1.0)]
        """
        batch = int(report.get("batchId", -1))
        if self._batches.get(stage) == batch:
            return
        self._batches[stage] = batch
        for name, row in report.get("observedMetrics", {}).items():
            if name.startswith(LOAD_PREFIX) and (texts := row.get(LOADS)):
                self._texts.setdefault(name.removeprefix(LOAD_PREFIX), deque(maxlen=LOAD_EPOCHS)).append(texts)

    def all(self) -> tuple[StepLoad, ...]:
        """By step."""
        return tuple(summed(step, [text for one in kept for text in one]) for step, kept in self._texts.items())


class Measuring:
    """Asks Spark every ten seconds; telemetry, so whatever fails is tried again then and harms nothing."""

    def __init__(self, store: Facts, replica: str) -> None:
        self._store = store
        self._replica = replica
        self._next_s = time.monotonic() + EVERY_S
        self._plans: list[tuple[int, str]] = []
        """They stay as they are for as long as the queries run."""
        self._loads = Loads()

    def look(self, queries: Sequence[StreamingQuery]) -> None:
        """Report on these queries, those of stage 1, 2 and so on, if it is time for that."""
        if time.monotonic() < self._next_s:
            return
        self._next_s = time.monotonic() + EVERY_S
        pairs = list(enumerate(queries, 1))
        try:
            reports = [(stage, report) for stage, query in pairs if (report := _newest(query)) is not None]
            self._plans = self._plans or [(stage, _physical(query)) for stage, query in pairs]
            for stage, report in reports:
                self._loads.add(stage, report)
            found = replace(measured(reports, self._plans), loads=self._loads.all())
            self._store.set_fact(measured_key(self._replica), found.to_text())
        except (Py4JError, StoreError, ValueError) as error:
            print(f"not measured: {error}", file=sys.stderr, flush=True)


def _newest(query: StreamingQuery) -> dict[str, Any] | None:
    """Spark's report on the newest batch, in one call: its objects in Python take dozens."""
    progress = query._jsq.lastProgress()
    return None if progress is None else dict(json.loads(progress.json()))


def _physical(query: StreamingQuery) -> str:
    text = str(query._jsq.explainInternal(False)).replace("== Physical Plan ==", "").strip()
    return text[:PLAN_CHARACTERS_MAX]
