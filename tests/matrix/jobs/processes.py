"""Process functions: every kind of state, timers of both clocks, side outputs, connected and broadcast streams."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from itertools import pairwise
from random import Random
from typing import Any

import lockstep as ls
from lockstep.testing import Trial
from tests.matrix.case import Case, Expected, Given, Inputs, Row, Rows
from tests.matrix.clock import epoch_time_us, micros, watermarks
from tests.matrix.inputs import SCHEMA, epochs_of, two_sides
from tests.matrix.jobs.rolling import in_order
from tests.matrix.jobs.windows import LATE_S, SECOND, utc

TTL_S, WAIT_S, POLL_S = 3, 5, 2
PARTITIONS = 2
"""Of the journal whose records have ties."""
ENDING = 5
"""Epochs after the input that a job with one stage has."""
KEPT = "k string, count bigint, numbers array<bigint>, kinds bigint, most bigint, recent bigint"


class Keeper(ls.Process):
    """Keeps something of every kind, and tells it with each record; timers tell how many records there were."""

    count = ls.value_state("bigint")
    numbers = ls.list_state("bigint")
    kinds = ls.map_state("string", "bigint")
    most = ls.reducing_state("bigint", max)
    recent = ls.value_state("bigint", ttl=f"{TTL_S} seconds")

    def on_record(self, record: Any, ctx: Any) -> None:
        count = self.count.get(0) + 1
        self.count.set(count)
        if record.n is not None:
            self.numbers.set([*self.numbers.get(), record.n][-3:])
            self.kinds[str(record.n)] = count
            self.most.add(record.n)
        numbers, kinds = self.numbers.get(), len(self.kinds)
        ctx.emit(k=ctx.key.k, count=count, numbers=numbers, kinds=kinds, most=self.most.get(), recent=self.recent.get())
        self.recent.set(count)
        if record.at is not None:
            ctx.set_timer(record.at + timedelta(seconds=WAIT_S), "quiet")
        ctx.set_epoch_timer(after=f"{POLL_S} seconds", tag="poll")

    def on_timer(self, timer: Any, ctx: Any) -> None:
        ctx.emit_to("timers", k=ctx.key.k, tag=timer.tag, at=timer.at, count=self.count.get())


class Ordered(ls.Process):
    """Tells for each record which number it has in its key, and what the one before it said."""

    count = ls.value_state("bigint")
    last = ls.value_state("bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        count = self.count.get(0) + 1
        ctx.emit(k=ctx.key.k, number=count, n=record.n, at=record.at, before=self.last.get())
        self.count.set(count)
        if record.n is None:
            self.last.clear()
        else:
            self.last.set(record.n)


def states(_: Given) -> ls.Job:
    """State, timers and order."""
    job = ls.Job("states")
    source = job.source("events", ls.journal("events", schema=SCHEMA, partitions=PARTITIONS))
    by_key = source.event_time("at", out_of_order=f"{LATE_S} seconds", idle_after=None).key_by("k")
    kept = by_key.process(
        Keeper(),
        schema=KEPT,
        side_outputs={"timers": "k string, tag string, at timestamp, count bigint"},
        name="keeper",
    )
    kept.to(ls.files("out/kept"), name="kept")
    kept.side("timers").to(ls.files("out/timers"), name="timers")
    schema = "k string, number bigint, n bigint, at timestamp, before bigint"
    by_key.process(Ordered(), schema=schema, ordered=True, name="order").to(ls.files("out/ordered"), name="in_order")
    return job


def ties(chance: Random, epochs: int) -> Inputs:
    """Many records have the key and the time of another one: in their own epoch or in the one before."""
    made = epochs_of(chance, epochs)
    for before, records in pairwise([[], *made]):
        like = [row for row in (*before, *records) if row["at"] is not None]
        for row in chance.sample(like, min(len(like), 4)):
            records.insert(chance.randrange(len(records) + 1), {**row, "n": chance.randrange(100)})
    return {"events": made}


def put_by_turns(trial: Trial, given: Given, epoch: int) -> None:
    """One record into each partition of the journal, then the next."""
    for partition in range(PARTITIONS):
        if records := given.inputs["events"][epoch][partition::PARTITIONS]:
            trial.put("events", records, partition)


def _by_position(records: list[Row]) -> list[Row]:
    """As the journal has them: a partition's records, then those of the next."""
    return [
        {**row, "partition": partition} for partition in range(PARTITIONS) for row in records[partition::PARTITIONS]
    ]


def states_expected(given: Given) -> Expected:
    """Key by key and epoch by epoch: timers that are due, records, timers that became due."""
    passed = watermarks(given, {"events": LATE_S})
    kept: dict[Any, Kept] = defaultdict(Kept)
    held: dict[Any, Held] = defaultdict(Held)
    found: dict[str, Rows] = {"kept": [], "timers": [], "in_order": []}
    for epoch in range(given.end + ENDING):
        now_us = passed[min(epoch, len(passed) - 1)]
        records = in_order(_by_position(given.inputs["events"][epoch])) if epoch < given.end else []
        for key in {*kept, *(row["k"] for row in records)}:
            mine = [row for row in records if row["k"] == key]
            found["timers"] += kept[key].timers(epoch, key, now_us)
            found["kept"] += [kept[key].record(epoch, row) for row in mine]
            found["timers"] += kept[key].timers(epoch, key, now_us)
            found["in_order"] += held[key].epoch(epoch, mine, now_us)
    return found


class Kept:
    """What the keeper knows of a key."""

    def __init__(self) -> None:
        self.count = 0
        self.numbers: list[int] = []
        self.kinds: set[int] = set()
        self.recent: tuple[int, int] | None = None
        self.due: set[tuple[int, str]] = set()

    def record(self, epoch: int, row: Row) -> tuple[Any, ...]:
        """What it tells of a record."""
        self.count += 1
        if row["n"] is not None:
            self.numbers = [*self.numbers, row["n"]][-3:]
            self.kinds.add(row["n"])
        lives = self.recent is not None and self.recent[1] + TTL_S * SECOND > epoch_time_us(epoch)
        recent = self.recent[0] if self.recent is not None and lives else None
        self.recent = (self.count, epoch_time_us(epoch))
        if row["at"] is not None:
            self.due.add((micros(row["at"]) + WAIT_S * SECOND, "quiet"))
        self.due.add((epoch_time_us(epoch) + POLL_S * SECOND, "poll"))
        most = max(self.kinds, default=None)
        return epoch, row["k"], self.count, self.numbers, len(self.kinds), most, recent

    def timers(self, epoch: int, key: Any, now_us: int) -> Rows:
        """Those that are due, once."""
        now = {"quiet": now_us, "poll": epoch_time_us(epoch)}
        rung = sorted(one for one in self.due if one[0] <= now[one[1]])
        self.due -= set(rung)
        return [(epoch, key, tag, utc(at_us), self.count) for at_us, tag in rung]


class Held:
    """The records of a key that wait for event time to pass them."""

    def __init__(self) -> None:
        self.waiting: list[Row] = []
        self.count = 0
        self.last: Any = None

    def epoch(self, epoch: int, records: list[Row], now_us: int) -> Rows:
        """Those that waited, then those that come too late to wait. Of one time: by position, whenever they came."""
        free = [row for row in self.waiting if micros(row["at"]) <= now_us]
        self.waiting = [row for row in self.waiting if micros(row["at"]) > now_us]
        at_once = [row for row in records if row["at"] is None or micros(row["at"]) <= now_us]
        self.waiting += [row for row in records if row["at"] is not None and micros(row["at"]) > now_us]
        free.sort(key=lambda row: (row["at"], row["partition"]))
        return [self._told(epoch, row) for row in (*free, *at_once)]

    def _told(self, epoch: int, row: Row) -> tuple[Any, ...]:
        before, self.last = self.last, row["n"]
        self.count += 1
        return epoch, row["k"], self.count, row["n"], row["at"], before


class Match(ls.Process):
    """Every left record with the numbers that came from the right since the last one."""

    numbers = ls.list_state("bigint")

    def on_left(self, record: Any, ctx: Any) -> None:
        ctx.emit(k=ctx.key.k, n=record.n, numbers=self.numbers.get())
        self.numbers.clear()

    def on_right(self, record: Any, ctx: Any) -> None:
        self.numbers.append(record.big if record.big is not None else 0)


class Rules(ls.Process):
    """Left records beside what was broadcast from the right: the newest value of a name, and how many there were."""

    values = ls.broadcast_map("string", "bigint")
    seen = ls.broadcast_state("bigint")
    mine = ls.value_state("bigint")

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        self.seen.set(self.seen.get(0) + 1)
        if record.k is not None and record.n is not None:
            self.values[record.k] = record.n

    def on_record(self, record: Any, ctx: Any) -> None:
        self.mine.set(self.mine.get(0) + 1)
        found = self.values.get(record.k) if record.k is not None else None
        ctx.emit(k=record.k, rule=found, seen=self.seen.get(0), mine=self.mine.get())


class WithoutKey(ls.Process):
    """The same for a stream that is not keyed: only what is broadcast can be kept."""

    seen = ls.broadcast_state("bigint")

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        self.seen.set(self.seen.get(0) + 1)

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(n=record.n, seen=self.seen.get(0))


def connected(_: Given) -> ls.Job:
    """Two streams for one process function."""
    job = ls.Job("connected")
    left, right = (job.source(side, ls.journal(side, schema=SCHEMA)) for side in ("left", "right"))
    both = left.key_by("k").connect(right.key_by("k"))
    both.process(Match(), schema="k string, n bigint, numbers array<bigint>").to(
        ls.files("out/matched"), name="matched"
    )
    ruled = left.key_by("k").connect(right.broadcast())
    schema = "k string, rule bigint, seen bigint, mine bigint"
    ruled.process(Rules(), schema=schema, name="rules").to(ls.files("out/ruled"), name="ruled")
    unkeyed = left.connect(right.broadcast()).process(WithoutKey(), schema="n bigint, seen bigint", name="unkeyed")
    unkeyed.to(ls.files("out/unkeyed"), name="unkeyed_rows")
    return job


def connected_expected(given: Given) -> Expected:
    """Without event time the source's name decides: within an epoch the left comes before the right."""
    found: dict[str, Rows] = {"matched": [], "ruled": [], "unkeyed_rows": []}
    numbers: dict[Any, list[int]] = defaultdict(list)
    mine: dict[Any, int] = defaultdict(int)
    values: dict[Any, int] = {}
    seen = 0
    for epoch in range(given.end):
        for row in given.inputs["left"][epoch]:
            key = row["k"]
            mine[key] += 1
            found["matched"].append((epoch, key, row["n"], numbers.pop(key, [])))
            rule = values.get(key) if key is not None else None
            found["ruled"].append((epoch, key, rule, seen, mine[key]))
            found["unkeyed_rows"].append((epoch, row["n"], seen))
        for row in given.inputs["right"][epoch]:
            numbers[row["k"]].append(row["big"] if row["big"] is not None else 0)
            seen += 1
            if row["k"] is not None and row["n"] is not None:
                values[row["k"]] = row["n"]
    return found


CASES = [
    Case("states and timers", "processes", states, ties, states_expected, feed=put_by_turns),
    Case("connected streams", "processes", connected, two_sides, connected_expected),
]
