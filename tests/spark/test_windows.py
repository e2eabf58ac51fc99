"""Windows in whole jobs: Spark's own sessions and updates, and windows of every other kind, against plain Python."""

from __future__ import annotations

import random
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.keyed.codec import time_us, utc_time
from lockstep.plan.triggers import Firing, Trigger
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US, Trial
from tests.unit.keyed.test_windows_triggers import Model
from tests.unit.keyed.turns_for_windows import Epoch, Event

Row = dict[str, Any]
SCHEMA = "user string, n bigint, price double, at timestamp"
DAY = datetime(2026, 3, 28, 22, tzinfo=UTC)
SECOND = 1_000_000
EPOCHS = 4
EMPTY = 2
OUT_OF_ORDER_US = 5 * SECOND
GAP_US = 4 * SECOND


def _input(seed: int) -> list[list[Row]]:
    """Records around ten seconds an epoch: disorder, late ones, far too late ones, the same ones twice, null keys."""
    chance = random.Random(seed)
    epochs = []
    for epoch in range(EPOCHS):
        records = []
        for number in range(0 if epoch == EMPTY else 30):
            seconds = epoch * 10 + chance.uniform(0, 10) - chance.choice([0, 0, 0, 0, 4, 9, 21, 45])
            record = {
                "user": chance.choice([None, "ann", "bob"]),
                "n": epoch * 100 + number,
                "price": chance.choice([None, chance.randrange(0, 10_000) / 100]),
                "at": DAY + timedelta(milliseconds=round(1000 * seconds)),
            }
            records += [record] * chance.choice([1, 1, 1, 2])
        epochs.append(records)
    return epochs


def _clock(epochs: list[list[Row]]) -> list[int | None]:
    """The watermark of each epoch and of one more: the highest time of the epochs before it, less the disorder."""
    marks: list[int | None] = []
    highest: int | None = None
    for records in [*epochs, []]:
        marks.append(None if highest is None else highest - OUT_OF_ORDER_US)
        highest = max([time_us(row["at"]) for row in records] + ([] if highest is None else [highest]), default=None)
    return marks


def _run(ran: Trial, epochs: list[list[Row]]) -> None:
    """Two replicas of different shapes that have to agree; an epoch after the last gives the clock its last push."""
    ran.start("r0", partitions=1)
    ran.start("r1", partitions=3, tasks=1)
    for records in [*epochs, []]:
        done = ran.epoch(events=records)
        digests = ran.digests(done)
        sinks = {sink for _, sink in digests}
        assert sinks
        assert all(digests["r0", sink] == digests["r1", sink] for sink in sinks), done


def _published(ran: Trial, path: str, columns: list[str]) -> list[tuple[Any, ...]]:
    found = [(epoch, *(row[name] for name in columns)) for epoch in range(EPOCHS + 1) for row in ran.rows(path, epoch)]
    return sorted(found, key=repr)


def _total(rows: list[Row]) -> tuple[Any, ...]:
    prices = [round(row["price"] * 100) for row in rows if row["price"] is not None]
    return len(rows), sum(row["n"] for row in rows), sum(prices) / 100 if prices else None


def _sessions(epochs: list[list[Row]], *, keyed: bool) -> list[tuple[Any, ...]]:
    """As Spark does it: late is what would have been over in the epoch before; a session closes with its epoch."""
    clock = _clock(epochs)
    live: dict[Any, list[Row]] = defaultdict(list)
    results = []
    for epoch, records in enumerate([*epochs, []]):
        before = (clock[epoch - 1] if epoch else None) or 0
        for row in records:
            if time_us(row["at"]) + GAP_US > before:
                live[row["user"] if keyed else None].append(row)
        for key, rows in live.items():
            for run in _split(rows):
                end_us = time_us(run[-1]["at"]) + GAP_US
                if end_us <= (clock[epoch] or 0):
                    name = (key,) if keyed else ()
                    results.append((epoch, *name, run[0]["at"], utc_time(end_us), *_total(run)))
                    live[key] = [row for row in live[key] if not any(row is one for one in run)]
    return sorted(results, key=repr)


def _split(rows: list[Row]) -> list[list[Row]]:
    runs: list[list[Row]] = []
    for row in sorted(rows, key=lambda one: one["at"]):
        if runs and time_us(row["at"]) - time_us(runs[-1][-1]["at"]) <= GAP_US:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def _updates(epochs: list[list[Row]]) -> list[tuple[Any, ...]]:
    """The total of each window after each epoch that has added to it; windows begin at three past ten."""
    clock = _clock(epochs)
    held: dict[tuple[Any, int], list[Row]] = defaultdict(list)
    results = []
    for epoch, records in enumerate(epochs):
        touched = set()
        for row in records:
            at_us = time_us(row["at"])
            start_us = at_us - (at_us - 3 * SECOND) % (10 * SECOND)
            before = (clock[epoch - 1] if epoch else None) or 0
            if start_us + 10 * SECOND > before:
                held[row["user"], start_us].append(row)
                touched.add((row["user"], start_us))
        for user, start_us in touched:
            end = utc_time(start_us + 10 * SECOND)
            results.append((epoch, user, utc_time(start_us), end, *_total(held[user, start_us])))
    return sorted(results, key=repr)


VALUES: dict[str, Any] = {"records": F.count("*"), "total": F.sum("n"), "money": F.sum("price")}
COLUMNS = ["window_start", "window_end", "records", "total", "money"]


def _sessions_job(name: str) -> tuple[ls.Job, ls.Stream]:
    """A job with sessions of both kinds, and its records for what else is to be in it."""
    job = ls.Job(name)
    events = job.source("events", ls.journal("events", schema=SCHEMA, partitions=2)).event_time(
        "at", out_of_order="5 seconds"
    )
    session = ls.session("4 seconds")
    events.key_by("user").window(session).agg(**VALUES).to(ls.files("sessions"))
    events.window(session).agg(**VALUES).to(ls.files("unkeyed"))
    return job, events


class Halves(ls.WindowAssigner):
    """The first and the second half of each ten seconds, and the ten seconds as a whole."""

    def assign(self, record: Any) -> list[tuple[datetime, datetime]]:
        whole = record.at.replace(second=record.at.second // 10 * 10, microsecond=0)
        half = record.at.replace(second=record.at.second // 5 * 5, microsecond=0)
        return [(whole, whole + timedelta(seconds=10)), (half, half + timedelta(seconds=5))]


def _listed(records: list[Any], window: Any) -> Row:
    return {"values": [record.n for record in records], "timing": window.timing}


def _cheaper(one: Any, two: Any) -> Any:
    return min(one, two, key=lambda record: (record.price is None, record.price or 0, record.n))


def test_sessions_are_left_to_spark() -> None:
    job, _ = _sessions_job("native-windows")
    assert not job.graph().python_steps


@pytest.mark.long
def test_sessions_updates_and_windows_of_every_other_kind_give_what_plain_python_gives(trial: NewTrial) -> None:
    """One job: its sessions are a part of a query that there is anyway."""
    job, events = _sessions_job("all-windows")
    by_user, by_name = events.key_by("user"), events.key_by(name="upper(user)")
    trigger = ls.at_watermark(early=ls.on_count(4), late=ls.on_count(1))
    late_ones = (
        by_user.window(ls.sliding("10 seconds", every="5 seconds")).trigger(trigger).allowed_lateness("6 seconds")
    )
    listed = late_ones.late_to_side().process(_listed, schema="values array<bigint>, timing string")
    listed.to(ls.files("listed"))
    listed.side("late").to(ls.files("late"))
    by_name.window(Halves()).reduce(_cheaper).select("name", "window_start", "window_end", "n").to(ls.files("halves"))
    shifted = by_user.window(ls.tumbling("10 seconds", offset="3 seconds"))
    shifted.updates().agg(**VALUES).to(ls.files("updates"))
    epochs, ran = _input(32), trial(job)
    _run(ran, epochs)
    _check_listed(ran, epochs)
    assert _published(ran, "updates", ["user", *COLUMNS]) == _updates(epochs)
    _check_halves(ran, epochs)
    _check_sessions(ran, epochs)


def _check_sessions(ran: Trial, epochs: list[list[Row]]) -> None:
    sessions = _sessions(epochs, keyed=True)
    assert _published(ran, "sessions", ["user", *COLUMNS]) == sessions
    assert _published(ran, "unkeyed", COLUMNS) == _sessions(epochs, keyed=False)
    assert 10 < sum(row[4] for row in sessions) < sum(map(len, epochs)), "some have to be late, or this tests little"


def _model(epochs: list[list[Row]], trigger: Trigger, windows_of: Any, lateness_us: int = 0) -> Model:
    """The model of the pure tests over the rows of this one: a record's value is its place in the input."""
    clock, place, given = _clock(epochs), 0, []
    for number, records in enumerate([*epochs, []]):
        events = []
        for row in records:
            events.append(Event(row["user"], time_us(row["at"]), place))
            place += 1
        given.append(Epoch(clock[number], START_US + (number + 1) * SECOND, tuple(events)))
    return Model(given, trigger, lateness_us, "event", windows_of)


def _check_listed(ran: Trial, epochs: list[list[Row]]) -> None:
    def sliding(at_us: int | None) -> list[Any]:
        assert at_us is not None
        newest = at_us // (5 * SECOND) * 5 * SECOND
        return [(start, start + 10 * SECOND) for start in (newest - 5 * SECOND, newest)]

    rows = [row for records in epochs for row in records]
    trigger = Trigger(early=Firing(count=4), late=Firing(count=1))
    model = _model(epochs, trigger, sliding, 6 * SECOND)
    wanted = [
        (one.epoch, one.key, one.start_us, one.end_us, [rows[place]["n"] for place in one.values], one.timing)
        for one in model.results()
    ]
    found = [
        (epoch, row["user"], time_us(row["window_start"]), time_us(row["window_end"]), row["values"], row["timing"])
        for epoch in range(EPOCHS + 1)
        for row in ran.rows("listed", epoch)
    ]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert {row[-1] for row in found} == {"early", "on_time", "late"}
    late = sorted(row["n"] for row in ran.rows("late"))
    assert late == sorted(rows[event.value]["n"] for _, event in model.late)
    assert late
    assert list(ran.rows("late")[0]) == ["user", "n", "price", "at"]


def _check_halves(ran: Trial, epochs: list[list[Row]]) -> None:
    def halves(at_us: int | None) -> list[Any]:
        assert at_us is not None
        whole, half = at_us - at_us % (10 * SECOND), at_us - at_us % (5 * SECOND)
        return [(whole, whole + 10 * SECOND), (half, half + 5 * SECOND)]

    rows = [row for records in epochs for row in records]
    wanted = []
    for one in _model(epochs, Trigger(), halves).results():
        cheap = [((row := rows[place])["price"] is None, row["price"] or 0, row["n"]) for place in one.values]
        name = one.key and one.key.upper()
        wanted.append((one.epoch, name, utc_time(one.start_us or 0), utc_time(one.end_us or 0), min(cheap)[2]))
    assert _published(ran, "halves", ["name", "window_start", "window_end", "n"]) == sorted(wanted, key=repr)
