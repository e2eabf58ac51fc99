"""Which row of a key a keyed sink keeps: the newest one, whatever the shape of the replica that publishes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from tests.spark.conftest import NewTrial

START = datetime(2026, 1, 1, tzinfo=UTC)
Record = dict[str, Any]
Tables = dict[str, list[tuple[Any, ...]]]


def at(second: int) -> str:
    return (START + timedelta(seconds=second)).isoformat()


def keyed(name: str, *key: str) -> Any:
    return ls.sqlite("out.db", table=name, key=key)


def in_two_shapes(trial: NewTrial, job: Callable[[], ls.Job], epochs: Sequence[dict[str, list[Record]]]) -> Tables:
    """What the keyed tables hold, the same for two replicas that publish alone and have nothing in common.

    One has one partition and brings its rows through the driver, the other has three and stages them in executors.
    """
    found = []
    for partitions, tasks, settings in ((1, 1, {}), (3, 4, {"rows_through_driver_max": 0})):
        ran = trial(job(), f"project-{partitions}", **settings)
        ran.start(partitions=partitions, tasks=tasks)
        for epoch in epochs:
            for name, records in epoch.items():
                ran.put(name, records)
            ran.run(1)
        names = [sink.id for sink in ran.graph.sinks if sink.spec.key]
        rows = {
            name: sorted((tuple(row.values()) for row in ran.rows("out.db", table=name)), key=repr) for name in names
        }
        digests = [{sink: digest for (_, sink), digest in ran.digests(epoch).items()} for epoch in range(len(epochs))]
        found.append((rows, digests))
        ran.stop()
    assert found[0] == found[1]
    return found[0][0]


class Split(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        for word in tuple.line.split():
            collector.emit([word])


class Count(ls.Bolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        n = self.state[tuple.word] = self.state.get(tuple.word, 0) + 1
        collector.emit({"word": tuple.word, "n": n})


@pytest.mark.long
def test_the_word_count_of_the_guide_publishes_twelve_not_nine(trial: NewTrial) -> None:
    def job() -> ls.Job:
        t = ls.Topology("word-count")
        t.spout("lines", ls.journal("lines", schema="line string"))
        t.bolt("split", Split(), fields="word string").shuffle("lines")
        t.bolt("count", Count(), fields="word string, n bigint", tasks=8).fields("split", "word")
        t.sink("count", keyed("words", "word"), name="words")
        return t.job()

    lines = [{"line": "be be be"}] * 4 + [{"line": "to"}]
    assert in_two_shapes(trial, job, [{"lines": lines}, {}])["words"] == [("be", 12), ("to", 1)]


class Told(ls.Process):
    """Tells of every record, on two outputs in turn, and of a timer, which may fire before a record that comes late."""

    seen = ls.value_state("bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        n = self.seen.get(0) + 1
        self.seen.set(n)
        if n % 2:
            ctx.emit(user=ctx.key.user, said=f"{n} {record.said}")
        else:
            ctx.emit_to("even", user=ctx.key.user, said=f"{n} {record.said}")
        if n == 1:
            ctx.set_timer(ctx.time + timedelta(seconds=5))

    def on_timer(self, timer: Any, ctx: Any) -> None:
        ctx.emit(user=ctx.key.user, said=f"timer {self.seen.get()}")


def every_kind() -> ls.Job:
    made = ls.Job("newest")
    source = made.source("events", ls.journal("events", schema="user string, city string, said string, at timestamp"))
    source.select("user", "said").to(keyed("by_position", "user"), name="by_position")
    events = source.event_time("at", out_of_order="10 seconds")
    events.select("user", "said").to(keyed("by_time", "user"), name="by_time")
    parts = events.flat_map(
        lambda one: [(one["user"], f"{one['said']}.{n}") for n in range(12)], schema="user string, part string"
    )
    parts.to(keyed("parts", "user"), name="parts")
    by_user = events.key_by("user")
    by_user.count(per_record=True).to(keyed("counted", "user"), name="counted")
    told = by_user.process(Told(), schema="user string, said string", side_outputs={"even": "user string, said string"})
    told.union(told.side("even")).to(keyed("told", "user"), name="told")
    windows = by_user.window(ls.tumbling("1 hour")).trigger(ls.on_count(1)).agg(n=F.count("*"))
    windows.select("user", "n").to(keyed("windows", "user"), name="windows")
    return made


EVENTS: list[list[Record]] = [
    [
        {"user": "ann", "city": "Rome", "said": "first", "at": at(0)},
        *({"user": "bob", "city": "Rome", "said": str(n), "at": at(100)} for n in range(1, 13)),
        *({"user": None, "city": "Ulm", "said": str(n), "at": at(100 - n)} for n in range(1, 13)),
    ],
    [{"user": "ann", "city": "Bonn", "said": "late", "at": at(2)}],
]


def test_every_kind_of_step_says_which_of_its_rows_is_the_newest(trial: NewTrial) -> None:
    found = in_two_shapes(trial, every_kind, [{"events": epoch} for epoch in EVENTS])
    assert found["by_position"] == [("ann", "late"), ("bob", "12"), (None, "12")]
    assert found["by_time"] == [("ann", "late"), ("bob", "12"), (None, "1")]
    assert found["parts"] == [("ann", "late.11"), ("bob", "12.11"), (None, "1.11")]
    assert found["counted"] == [("ann", 2), ("bob", 12), (None, 12)]
    # Ann's timer is due before her late record comes, though its time is later.
    assert found["told"] == [("ann", "2 late"), ("bob", "12 12"), (None, "12 1")]
    assert found["windows"] == [("ann", 2), ("bob", 12), (None, 12)]


def test_sparks_own_steps_with_state_know_their_newest_row(trial: NewTrial) -> None:
    def job() -> ls.Job:
        made = ls.Job("natives")
        events = made.source(
            "events", ls.journal("events", schema="user string, city string, said string, at timestamp")
        ).event_time("at", out_of_order="1 hour")
        tags = made.source("tags", ls.journal("tags", schema="user string, tag string, noted timestamp")).event_time(
            "noted", out_of_order="1 hour"
        )
        cities = events.key_by("user", "city").agg(n=F.count("*"))
        cities.to(keyed("cities", "user"), name="cities")
        cities.to(keyed("pairs", "user", "city"), name="pairs")
        counts = [
            stream.key_by("user").agg(n=F.count("*"), name=name).with_columns(of=F.lit(name))
            for stream, name in ((tags, "tagged"), (events, "visited"))
        ]
        counts[0].union(counts[1]).to(keyed("united", "user"), name="united")
        near = events.join(tags, on="user", between=("-1 minute", "1 minute"))
        near.select("user", "said", "tag").to(keyed("near", "user"), name="near")
        return made

    visits: list[Record] = [
        {"user": "ann", "city": f"city {n * 7 % 12}", "said": str(n), "at": at(50 if n < 6 else 60)} for n in range(12)
    ]
    visits += [{**one, "user": None} for one in visits]
    tags = [{"user": user, "tag": str(n), "noted": at(50)} for n in range(1, 13) for user in ("ann", None)]
    found = in_two_shapes(trial, job, [{"events": visits, "tags": tags}])
    assert found["cities"] == [("ann", f"city {11 * 7 % 12}", 1), (None, f"city {11 * 7 % 12}", 1)]
    assert found["pairs"] == [(user, f"city {n}", 1) for user in ("ann", None) for n in sorted(range(12), key=str)]
    # The newest visit is ten seconds after the newest tag.
    assert found["united"] == [("ann", 12, "visited"), (None, 12, "visited")]
    # Null equals nothing, so it joins nothing.
    assert found["near"] == [("ann", "11", "12")]
