"""Process functions in whole jobs: state, timers, time to live, side outputs, connected and broadcast streams."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import PlanError
from lockstep.runtime.measurements import Loads
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US

Row = dict[str, Any]
START = datetime.fromtimestamp(START_US / 1e6, UTC)
EVENTS = "user string, n bigint, at timestamp"


class Silence(ls.Process):
    """Tells when a user has said nothing for five seconds, and sends late records aside."""

    last = ls.value_state("timestamp")
    total = ls.reducing_state("bigint", lambda a, b: a + b, ttl="3 seconds")

    def on_record(self, record: Any, ctx: Any) -> None:
        if ctx.watermark is not None and ctx.time <= ctx.watermark:
            ctx.emit_to("late", user=record.user, at=record.at)
            return
        last = self.last.get()
        if last is not None:
            ctx.cancel_timer(last + timedelta(seconds=5), "quiet")
        newest = max(record.at, self.last.get(record.at))
        self.last.set(newest)
        self.total.add(record.n)
        ctx.set_timer(newest + timedelta(seconds=5), "quiet")
        ctx.set_epoch_timer(after="2 seconds", tag="poll")

    def on_timer(self, timer: Any, ctx: Any) -> None:
        ctx.emit(user=ctx.key.user, what=f"{timer.kind} {timer.tag}", at=timer.at, total=self.total.get())


class Rules(ls.Process):
    """Counts records that a broadcast rule lets through."""

    limits = ls.broadcast_map("string", "bigint")
    count = ls.value_state("bigint")

    def on_broadcast(self, rule: Any, ctx: Any) -> None:
        self.limits[rule.kind] = rule.least

    def on_record(self, record: Any, ctx: Any) -> None:
        if record.kind in self.limits and record.n >= self.limits[record.kind]:
            self.count.set(self.count.get(0) + 1)
            ctx.emit(user=ctx.key.user, count=self.count.get(), n=record.n)


class Stateless(ls.Process):
    """The same without a key."""

    limits = ls.broadcast_map("string", "bigint")

    def on_broadcast(self, rule: Any, ctx: Any) -> None:
        self.limits[rule.kind] = rule.least

    def on_record(self, record: Any, ctx: Any) -> None:
        if record.n >= self.limits.get(record.kind, 10**9):
            ctx.emit(n=record.n, kind=record.kind)


class Match(ls.Process):
    """Pairs each order with the visits before it."""

    visits = ls.list_state("string")

    def on_left(self, order: Any, ctx: Any) -> None:
        ctx.emit(user=ctx.key.user, item=order.kind, pages=",".join(self.visits))
        self.visits.clear()

    def on_right(self, visit: Any, ctx: Any) -> None:
        self.visits.append(visit.page)


def _silence_job() -> ls.Job:
    job = ls.Job("silence")
    events = job.source("events", ls.journal("events", schema=EVENTS, partitions=3))
    timed = events.event_time("at", out_of_order="2 seconds", idle_after=None)
    silence = timed.key_by("user").process(
        Silence(),
        schema="user string, what string, at timestamp, total bigint",
        side_outputs={"late": "user string, at timestamp"},
        name="silence",
    )
    silence.filter("what <> 'nothing'").to(ls.files("silence"))
    silence.side("late").to(ls.files("late"))
    # A native step with state beside them: it must not see the marks that keyed steps live on.
    timed.window(ls.tumbling("5 seconds")).agg(n=F.count("*")).to(ls.files("windows"))
    return job


def _events(epoch: int, chance: random.Random) -> list[Row]:
    """Records of four seconds, some of them late; joe speaks only once, and one epoch is empty."""
    if epoch == 2:
        return []
    seconds = [epoch * 4 + chance.uniform(0, 4) - chance.choice([0, 0, 0, 9]) for _ in range(30)]
    events = [
        {
            "user": chance.choice([None, "ann", "bob", ""]),
            "n": chance.randrange(100),
            "at": START + timedelta(seconds=round(second, 2)),
        }
        for second in seconds
    ]
    return [*events, {"user": "joe", "n": 5, "at": START + timedelta(seconds=1)}] if epoch == 0 else events


def test_replicas_with_other_partitions_and_one_that_crashes_agree_about_timers_and_side_outputs(
    trial: NewTrial,
) -> None:
    ran, chance = trial(_silence_job()), random.Random(3)
    given = [_events(epoch, chance) for epoch in range(5)]
    ran.start("r0", partitions=1, tasks=1)
    ran.start("r1", partitions=2, tasks=2, crash_after=frozenset({3}).__contains__)
    for epoch, events in enumerate(given):
        ran.put("events", events)
        if epoch == 3:
            assert "crashes here" in str(ran.run_to_failure())
            ran.start("r1", partitions=2, tasks=2)
            ran.wait(epoch)
        else:
            ran.run(1)
        assert len(ran.digests(epoch)) == 6
    assert ran.store.digest_mismatches() == [] and ran.store.divergences() == []
    late, newest = [], None
    for events in given:
        late += [(e["user"], e["at"]) for e in events if newest and e["at"] <= newest - timedelta(seconds=2)]
        newest = max([e["at"] for e in events] + ([newest] if newest else []))
    assert sorted(((row["user"], row["at"]) for row in ran.rows("late")), key=repr) == sorted(late, key=repr)
    joe = sorted((row["what"], row["at"], row["total"]) for row in ran.rows("silence") if row["user"] == "joe")
    # Epoch 0 is a second after START; two seconds later the poll. The sum lives for three, so the silence has none.
    assert joe == [
        ("epoch poll", START + timedelta(seconds=3), 5),
        ("event quiet", START + timedelta(seconds=6), None),
    ]
    assert sum(row["n"] for row in ran.rows("windows")) > 30


def _skewed_job() -> ls.Job:
    job = ls.Job("skewed")
    events = job.source("events", ls.journal("events", schema=EVENTS, partitions=2))
    totals = events.key_by("user").reduce(lambda a, b: {"user": a.user, "n": a.n + b.n, "at": b.at}, name="totals")
    totals.to(ls.files("totals"))
    return job


def test_a_replica_reports_how_the_records_of_a_keyed_step_are_divided(trial: NewTrial) -> None:
    ran = trial(_skewed_job())
    replica = ran.start("r0", partitions=2, tasks=2)
    for number in range(2):
        hot = [{"user": "acme", "n": 1, "at": START}] * 60
        ran.put("events", [*hot, *({"user": f"u{n}", "n": number, "at": START} for n in range(40))])
        ran.run(1)
    ran.run(1)
    loads, query = Loads(), replica.queries[0]
    for report in (json.loads(one.json) for one in query.recentProgress):
        loads.add(1, report)
    (found,) = loads.all()
    assert found.step == "totals" and found.records == 200
    assert found.keys[0].key == "acme" and found.keys[0].share == 0.6 and found.keys[0].bucket == found.largest


def _connected_job() -> ls.Job:
    job = ls.Job("connected")
    events = job.source("events", ls.journal("events", schema="user string, kind string, n bigint, at timestamp"))
    rules = job.source("rules", ls.journal("rules", schema="kind string, least bigint"))
    visits = job.source("visits", ls.journal("visits", schema="visitor string, page string, seen timestamp"))
    keyed = events.key_by(user=F.upper("user")).connect(rules.broadcast())
    keyed.process(Rules(), schema="user string, count bigint, n bigint").to(ls.files("allowed"))
    events.connect(rules.broadcast()).process(Stateless(), schema="n bigint, kind string").to(ls.files("unkeyed"))
    left = events.event_time("at", idle_after=None).key_by("user")
    right = visits.event_time("seen", idle_after=None, name="visit_time").key_by("visitor")
    left.connect(right).process(Match(), schema="user string, item string, pages string").to(ls.files("matched"))
    return job


def test_connected_and_broadcast_streams_do_what_a_plain_loop_does(trial: NewTrial) -> None:
    ran, chance = trial(_connected_job()), random.Random(8)
    ran.start(partitions=2)
    limits: dict[str, int] = {}
    counts: dict[Any, int] = defaultdict(int)
    pages: dict[Any, list[str]] = defaultdict(list)
    allowed: list[Row] = []
    matched: list[Row] = []
    for epoch in range(3):
        events: list[Row] = [
            {
                "user": chance.choice([None, "ann", "Bob"]),
                "kind": chance.choice("xyz"),
                "n": chance.randrange(100),
                "at": START + timedelta(seconds=epoch * 10 + chance.randrange(10)),
            }
            for _ in range(20)
        ]
        rules: list[Row] = [{"kind": kind, "least": chance.randrange(60)} for kind in chance.sample("xyz", 2)]
        visits: list[Row] = [
            {"visitor": chance.choice([None, "ann", "Bob"]), "page": f"p{epoch}{n}", "seen": event["at"]}
            for n, event in enumerate(events[:10])
        ]
        ran.epoch(events=events, rules=rules, visits=visits)
        # Without an event time the source's name decides: the rules of an epoch come after its events.
        for event in events:
            if event["n"] >= limits.get(event["kind"], 1000):
                user = event["user"] and event["user"].upper()
                counts[user] += 1
                allowed.append({"user": user, "count": counts[user], "n": event["n"]})
        limits.update({rule["kind"]: rule["least"] for rule in rules})
        both = [(e["at"], 0, n, e) for n, e in enumerate(events)] + [(v["seen"], 1, n, v) for n, v in enumerate(visits)]
        for _, which, _, row in sorted(both, key=lambda one: one[:3]):
            if which:
                pages[row["visitor"]].append(row["page"])
            else:
                matched.append(
                    {"user": row["user"], "item": row["kind"], "pages": ",".join(pages.pop(row["user"], []))}
                )
    assert len(allowed) > 5
    assert sorted(map(repr, ran.rows("allowed"))) == sorted(map(repr, allowed))
    assert sorted(row["n"] for row in ran.rows("unkeyed")) == sorted(row["n"] for row in allowed)
    assert sorted(map(repr, ran.rows("matched"))) == sorted(map(repr, matched))


def test_a_key_that_is_an_array_is_refused_with_the_way_out(trial: NewTrial) -> None:
    job = ls.Job("array-key")
    events = job.source("events", ls.journal("events", schema="tags array<string>"))
    events.key_by("tags").process(Typed(), schema="user string, total bigint").to(ls.files("out"))
    with pytest.raises(PlanError) as caught:
        trial(job).start()
    assert caught.value.code == "LS0150" and "concat_ws" in caught.value.hint


class Typed(ls.Process):
    """Emits a text for a number."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(user=record.user, total="many")


def test_a_process_that_emits_the_wrong_thing_stops_the_job(trial: NewTrial) -> None:
    # What else it can get wrong is in the unit tests of process functions.
    job = ls.Job("wrong")
    events = job.source("events", ls.journal("events", schema="user string, n bigint"))
    sums = events.key_by("user").process(Typed(), schema="user string, total bigint", name="sums")
    sums.to(ls.files("out"))
    ran = trial(job)
    ran.start()
    ran.put("events", [{"user": "ann", "n": 1}])
    error = ran.run_to_failure()
    assert (error.code, "'many'" in str(error), '"sums"' in error.fact) == ("LS0303", True, True), str(error)


TYPES = (
    "flag boolean, small tinyint, price decimal(10,2), day date, raw binary, tags array<string>, "
    "attributes map<string,bigint>, place struct<x:double,y:int>, local timestamp_ntz, ratio float, at timestamp"
)


class Echo(ls.Process):
    """Keeps a record of every type, and sends on what it kept before."""

    last = ls.value_state(f"struct<{TYPES.replace(' ', ':').replace(',:', ',')}>")

    def on_record(self, record: Any, ctx: Any) -> None:
        last = self.last.get()
        if last is not None:
            ctx.emit(**last)
        self.last.set(record.asdict())


def test_values_of_every_type_pass_through_state_and_come_out_as_they_were(trial: NewTrial) -> None:
    job = ls.Job("types")
    records = job.source("records", ls.journal("records", schema=TYPES))
    records.key_by("flag").process(Echo(), schema=TYPES).to(ls.files("out"))
    ran = trial(job)
    ran.start()
    given = [
        {
            "flag": True,
            "small": -3,
            "price": Decimal("12.30"),
            "day": date(2026, 3, 1),
            "raw": b"\x00\xff",
            "tags": ["a", None],
            "attributes": {"x": 1},
            "place": {"x": 0.5, "y": None},
            "local": datetime(2026, 3, 29, 2, 30),
            "ratio": 0.25,
            "at": START,
        },
        dict.fromkeys(name for name in ("flag", "small", "price", "tags", "attributes", "place", "local", "at")),
    ]
    ran.epoch(records=given)
    ran.epoch(records=[*given, {"flag": True}])
    wanted = [{"raw": None, "day": None, "ratio": None, **row} for row in (given[0], given[0], given[1])]
    assert sorted(map(_plain, ran.rows())) == sorted(map(_plain, wanted))


def _plain(row: Row) -> str:
    """A row as text, whichever way its zone and its map are written."""
    at, attributes = row["at"], row["attributes"]
    plain = {**row, "at": at and at.isoformat(), "attributes": attributes and dict(attributes)}
    return repr(sorted(plain.items()))
