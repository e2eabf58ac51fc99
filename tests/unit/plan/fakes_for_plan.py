"""Specs without a connector behind them, and one instance of every kind of step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lockstep.plan.expression import Call, Column, Expression
from lockstep.plan.expression import Literal as Value
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.steps import (
    Aggregate,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    MapBatches,
    Rename,
    Select,
    Sink,
    Source,
    Step,
    Union,
    WithColumns,
)
from lockstep.plan.windows import Tumbling, Window

COUNT = Call("count", ("*",))
MINUTE_US = 60_000_000


@dataclass(frozen=True)
class FakeSource:
    name: str
    schema: Schema
    kind: str = "fake"

    def describe(self) -> str:
        return f"fake {self.name}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name}


@dataclass(frozen=True)
class FakeSink:
    path: str
    guarantee: Literal["exactly-once", "at-least-once"] = "exactly-once"
    kind: str = "fake"

    def describe(self) -> str:
        return f"fake {self.path}"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path}


def source(id: str = "logins", schema: str = "user string, ok boolean, at timestamp, n bigint") -> Source:
    return Source(id, FakeSource(id, parse_schema(schema)))


def timed(input: Step, id: str = "event_time") -> EventTime:
    return EventTime(id, input, Column("at"), 5_000_000, 30_000_000)


def counted(input: Step, id: str = "agg", window: Window | None = None, key: Expression | None = None) -> Aggregate:
    return Aggregate(id, input, (("user", key if key is not None else Column("user")),), window, (("failures", COUNT),))


def sink(input: Step, id: str = "out") -> Sink:
    return Sink(id, input, FakeSink(f"out/{id}"), "exactly-once")


def one_of_each() -> list[Step]:
    start = source()
    return [
        start,
        Filter("filter", start, ~Column("ok")),
        Select("select", start, (("user", Column("user")), ("twice", Column("n") * 2))),
        WithColumns("with_columns", start, (("day", Call("to_date", ("at",))),)),
        Drop("drop", start, ("n",)),
        Rename("rename", start, (("user", "who"),)),
        Union("union", (start, source("more"))),
        timed(start),
        counted(timed(start, "time_2"), window=Tumbling(MINUTE_US)),
        Map("map", start, lambda record: record, parse_schema("user string")),
        FlatMap("flat_map", start, lambda record: [record], parse_schema("user string")),
        MapBatches("map_batches", start, lambda table: table, parse_schema("user string")),
        sink(Filter("only", start, Value(True))),
    ]
