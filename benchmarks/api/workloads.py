"""What is measured: for each operator a Lockstep job and, where one can be written, the same in PySpark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as sf
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import LongType, StructType

import lockstep as ls
from benchmarks.api.events import SCHEMA
from lockstep import F
from lockstep.api.stream import Stream

FEW_KEYS, MANY_KEYS = 1_000, 50_000
EVERY = 10
"""A process function sends a record on after so many records of its key."""
RULES_SCHEMA = "rule string, least bigint"
_COUNTS = "key string, count bigint, total bigint"

Streams = Mapping[str, Stream]
Frames = Mapping[str, DataFrame]


@dataclass(frozen=True)
class Workload:
    """One operator: the streams it reads (each with so many keys), our job, the hand-written query, and the target."""

    name: str
    keys: int
    ours: Callable[[Streams], Stream]
    by_hand: Callable[[Frames], DataFrame] | None
    output_mode: str = "append"
    streams: tuple[str, ...] = ("events",)
    rules: bool = False
    ratio_min: float | None = None


class Count(ls.Process):
    """Counts and adds up, and speaks after every tenth record of a key."""

    count = ls.value_state("bigint")
    total = ls.value_state("bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        """One more."""
        count = self.count.get(0) + 1
        total = self.total.get(0) + record.n
        self.count.set(count)
        self.total.set(total)
        if count % EVERY == 0:
            ctx.emit(key=record.key, count=count, total=total)


class Rules(ls.Process):
    """Holds records against rules that every partition knows."""

    rules = ls.broadcast_map("string", "bigint")

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        """A new rule."""
        del ctx
        self.rules[record.rule] = record.least

    def on_record(self, record: Any, ctx: Any) -> None:
        """Which rules does it meet?"""
        met = [rule for rule, least in self.rules.items() if record.n >= least]
        if met:
            ctx.emit(key=record.key, rule=min(met))


class CountByHand(StatefulProcessor):  # type: ignore[misc]
    """The same as :class:`Count`, as one writes it for ``transformWithState``."""

    every = EVERY

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Declare the state."""
        self._state = handle.getValueState("state", StructType().add("count", LongType()).add("total", LongType()))

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        """The records of one key in one batch."""
        del timerValues
        held = self._state.get()
        count, total = (held[0], held[1]) if held is not None else (0, 0)
        for row in rows:
            count, total = count + 1, total + row.n
            if self.every and count % self.every == 0:
                yield Row(key=key[0], count=count, total=total)
        self._state.update((count, total))
        if not self.every:
            yield Row(key=key[0], count=count, total=total)

    def close(self) -> None:
        """Nothing is open."""


class FoldByHand(CountByHand):
    """One result for each key and batch."""

    every = 0


def _timed(stream: Stream) -> Stream:
    return stream.event_time("at")


def _window(streams: Streams) -> Stream:
    windows = _timed(streams["events"]).key_by("key").window(ls.tumbling("10 seconds"))
    return windows.agg(count=F.count("*"), total=F.sum("n"))


def _window_by_hand(frames: Frames) -> DataFrame:
    grouped = frames["events"].withWatermark("at", "0 seconds").groupBy("key", sf.window("at", "10 seconds"))
    return _named(grouped.agg(sf.count("*").alias("count"), sf.sum("n").alias("total")), "window")


def _session(streams: Streams) -> Stream:
    sessions = _timed(streams["events"]).key_by("key").window(ls.session("1 second"))
    return sessions.agg(count=F.count("*"), total=F.sum("n"))


def _session_by_hand(frames: Frames) -> DataFrame:
    grouped = frames["events"].withWatermark("at", "0 seconds").groupBy("key", sf.session_window("at", "1 second"))
    return _named(grouped.agg(sf.count("*").alias("count"), sf.sum("n").alias("total")), "session_window")


def _named(frame: DataFrame, window: str) -> DataFrame:
    bounds = [sf.col(f"{window}.start").alias("window_start"), sf.col(f"{window}.end").alias("window_end")]
    return frame.select("key", *bounds, "count", "total")


def _join(streams: Streams) -> Stream:
    left = _timed(streams["events"]).rename(at="left_at", n="left_n")
    right = _timed(streams["others"]).rename(at="right_at", n="right_n")
    return left.join(right, on="key", between=("0 seconds", "1 second"))


def _join_by_hand(frames: Frames) -> DataFrame:
    left = frames["events"].withColumnsRenamed({"at": "left_at", "n": "left_n"}).withWatermark("left_at", "0 seconds")
    right = frames["others"].withColumnsRenamed({"at": "right_at", "n": "right_n", "key": "right_key"})
    near = "key = right_key AND right_at >= left_at AND right_at <= left_at + INTERVAL 1 SECOND"
    joined = left.join(right.withWatermark("right_at", "0 seconds"), sf.expr(near))
    return joined.select("key", "left_n", "left_at", "right_n", "right_at")


def _process(streams: Streams) -> Stream:
    return streams["events"].key_by("key").process(Count(), schema=_COUNTS)


def _process_by_hand(frames: Frames) -> DataFrame:
    return _stateful(frames, CountByHand())


def _fold(streams: Streams) -> Stream:
    def add(held: dict[str, int], record: Any) -> dict[str, int]:
        return {"count": held["count"] + 1, "total": held["total"] + record.n}

    return streams["events"].key_by("key").fold({"count": 0, "total": 0}, add, schema="count bigint, total bigint")


def _reduce(streams: Streams) -> Stream:
    counted = streams["events"].select("key", count=F.lit(1).cast("bigint"), total="n")
    return counted.key_by("key").reduce(
        lambda held, record: (held.key, held.count + record.count, held.total + record.total)
    )


def _fold_by_hand(frames: Frames) -> DataFrame:
    return _stateful(frames, FoldByHand())


def _stateful(frames: Frames, processor: StatefulProcessor) -> DataFrame:
    grouped = frames["events"].groupBy("key")
    made = grouped.transformWithState(processor, StructType.fromDDL(_COUNTS), "update", "none")
    assert isinstance(made, DataFrame)
    return made


def _broadcast(streams: Streams) -> Stream:
    events, rules = streams["events"], streams["rules"]
    return events.key_by("key").connect(rules.broadcast()).process(Rules(), schema="key string, rule string")


WORKLOADS = (
    Workload("native window aggregation", FEW_KEYS, _window, _window_by_hand, ratio_min=0.9),
    Workload("native session windows", FEW_KEYS, _session, _session_by_hand, ratio_min=0.9),
    Workload("interval join", MANY_KEYS, _join, _join_by_hand, streams=("events", "others"), ratio_min=0.9),
    Workload("broadcast join with Python", FEW_KEYS, _broadcast, None, rules=True),
    Workload("process, 1,000 keys", FEW_KEYS, _process, _process_by_hand, "update", ratio_min=1.0),
    Workload("process, 50,000 keys", MANY_KEYS, _process, _process_by_hand, "update", ratio_min=5.0),
    Workload("reduce, 1,000 keys", FEW_KEYS, _reduce, _fold_by_hand, "update", ratio_min=1.0),
    Workload("fold, 50,000 keys", MANY_KEYS, _fold, _fold_by_hand, "update", ratio_min=5.0),
)
__all__ = ["RULES_SCHEMA", "SCHEMA", "WORKLOADS", "Workload"]
