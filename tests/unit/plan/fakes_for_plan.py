"""Specs without a connector behind them, and one instance of every kind of step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.plan.changes import AggregateOfChanges, AsEvents, Latest
from lockstep.plan.distinct import Distinct
from lockstep.plan.explode import Explode
from lockstep.plan.expression import Call, Column, Expression
from lockstep.plan.expression import Literal as Value
from lockstep.plan.joins import CoGroup, IntervalJoin, TableJoin, WindowJoin
from lockstep.plan.keyed import SideOutput
from lockstep.plan.rolling import RollingAggregate, RollingExtreme, RollingFold, RollingReduce
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.specs import Guarantee
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
from lockstep.plan.triggers import AT_WATERMARK
from lockstep.plan.windowed import Processing, WindowStep
from lockstep.plan.windows import Session, Tumbling, Window

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
    guarantee: Guarantee = "exactly-once"
    kind: str = "fake"
    key: tuple[str, ...] = ()
    deletes: bool = False

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


def rolling_steps(start: Step) -> list[Step]:
    streams, keys = (start,), ((("user", Column("user")),),)
    return [
        RollingReduce("reduce", streams, keys, False, lambda one, two: two),
        RollingFold("fold", streams, keys, True, 0, lambda total, record: total, parse_schema("total bigint")),
        RollingExtreme("min_by", streams, keys, False, Column("n"), False),
        RollingAggregate("rolling", streams, keys, True, (("failures", COUNT),)),
        Distinct("distinct", streams, keys, MINUTE_US),
        Explode("explode", start, Call("split", ("user", " ")), ("word",)),
    ]


def changing_steps(start: Step) -> list[Step]:
    totals, keys = counted(start, "totals"), ((("user", Column("user")),),)
    latest = Latest("latest", (totals,), keys)
    return [
        totals,
        latest,
        AsEvents("as_events", totals),
        AggregateOfChanges("of_changes", (latest,), ((("failures", Column("failures")),),), (("users", COUNT),)),
    ]


def window_steps(start: Step) -> list[Step]:
    computation = Processing(lambda records, window: None, parse_schema("size bigint"))
    keys = ((("user", Column("user")),),)
    late = WindowStep("late_windows", (start,), keys, Session(MINUTE_US), AT_WATERMARK, computation, MINUTE_US, True)
    return [late, SideOutput("late", late, "late")]


@dataclass(frozen=True)
class FakeTable:
    path: str
    schema: Schema
    kind: str = "table"

    def describe(self) -> str:
        return f"fake {self.path}"

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path}


def join_steps(start: Step) -> list[Step]:
    paid = source("paid", "user string, cents bigint, at timestamp")
    left, right = timed(start, "left_time"), timed(paid, "right_time")
    on, keys = (("user", "user"),), (("user", Column("user")),)
    table = FakeTable("customers", parse_schema("id string, name string"))
    return [
        IntervalJoin("interval_join", left, on, "left", ("", "_paid"), right, -MINUTE_US, MINUTE_US),
        WindowJoin("window_join", left, on, "inner", ("", "_paid"), right, Tumbling(MINUTE_US)),
        TableJoin("table_join", start, (("user", "id"),), "left", None, table),
        CoGroup("co_group", (left, right), (keys, keys), Tumbling(MINUTE_US), max, parse_schema("total bigint")),
    ]


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
        *rolling_steps(start),
        *changing_steps(start),
        *window_steps(timed(start, "time_3")),
        *join_steps(start),
        sink(Filter("only", start, Value(True))),
    ]
