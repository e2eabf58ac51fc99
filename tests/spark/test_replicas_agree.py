"""Replicas of different shapes over one ledger: equal digests, each epoch published once, whoever crashed when."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from decimal import Decimal, localcontext
from typing import Any

import lockstep as ls
from lockstep import F
from lockstep.connect.reading import Reader
from lockstep.runtime.state.recovery import VERSION_FROM
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]
PARTITIONS = 4


def _floats(seed: int) -> list[Row]:
    """Amounts of all sizes, of both signs and hard to add; some keys have NaN or infinities among them."""
    chance = random.Random(seed)
    rows = [
        {"key": key, "x": chance.choice([-1, 1]) * chance.random() * 10.0 ** chance.randrange(-3, 16), "word": word}
        for key in ("a", "b", "c", None)
        for word in ("red", "green", "blue", "red")
        for _ in range(30)
    ]
    rows += [{"key": "small", "x": chance.randrange(1, 10_000) / 100, "word": None} for _ in range(200)]
    special = {"nan": [math.nan], "plus": [math.inf], "minus": [-math.inf], "both": [math.inf, -math.inf]}
    for key, values in special.items():
        rows += [{"key": key, "x": value, "word": "w"} for value in (1.5, *values)]
    rows.append({"key": "null", "x": None, "word": None})
    chance.shuffle(rows)
    return rows


def _put_spread(ran: Trial, rows: list[Row]) -> None:
    for partition in range(PARTITIONS):
        ran.put("amounts", rows[partition::PARTITIONS], partition)


def _exactly(values: list[float | None]) -> float | None:
    """The sum as a person with much patience and paper would write it."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    special = {value for value in known if math.isinf(value)}
    if any(math.isnan(value) for value in known) or len(special) == 2:
        return math.nan
    if special:
        return special.pop()
    with localcontext() as context:
        context.prec = 100
        return float(sum(Decimal(repr(value)) for value in known))


def test_replicas_with_other_partitions_and_tasks_agree_to_the_last_digit(trial: NewTrial) -> None:
    job = ls.Job("floats")
    amounts = job.source(
        "amounts", ls.journal("amounts", schema="key string, x double, word string", partitions=PARTITIONS)
    )
    amounts.key_by("key").agg(
        total=F.sum("x"), mean=F.avg("x"), words=F.collect_set("word"), least=F.min("x"), n=F.count("x")
    ).to(ls.files("out"))
    ran = trial(job)
    ran.start("r0", partitions=1, tasks=1)
    ran.start("r1", partitions=5, tasks=4)
    given: dict[str | None, list[Row]] = defaultdict(list)
    for epoch in range(3):
        rows = _floats(seed=epoch)
        _put_spread(ran, rows)
        ran.run(1)
        digests = ran.digests(epoch)
        assert len(digests) == 2 and len(set(digests.values())) == 1, digests
        for row in rows:
            given[row["key"]].append(row)
        for row in ran.rows(epoch=epoch):
            values = [one["x"] for one in given[row["key"]]]
            wanted = _exactly(values)
            assert repr(row["total"]) == repr(wanted), row["key"]
            mean = None if wanted is None else wanted / sum(value is not None for value in values)
            assert repr(row["mean"]) == repr(mean), row["key"]
            assert row["words"] == sorted({one["word"] for one in given[row["key"]]} - {None})
    assert ran.store.digest_mismatches() == []
    assert ran.store.divergences() == []


def test_a_float_too_large_to_be_added_exactly_is_refused_with_the_way_out(trial: NewTrial) -> None:
    job = ls.Job("large-floats")
    amounts = job.source("amounts", ls.journal("amounts", schema="key string, x double"))
    amounts.key_by("key").agg(total=F.sum("x"), name="totals").to(ls.files("out"))
    ran = trial(job)
    ran.start()
    ran.put("amounts", [{"key": "a", "x": 1e21}])
    error = ran.run_to_failure()
    assert (error.code, '"totals"' in error.fact, "exact_floats=False" in error.hint) == ("LS0212", True, True)


def _several_sinks() -> ls.Job:
    job = ls.Job("several-sinks")
    events = job.source(
        "events", ls.journal("events", schema="user string, n bigint, tags array<string>", partitions=2)
    )
    events.to(ls.files("raw"))
    events.filter("n % 2 = 0").select("n").to(ls.files("even", format="jsonl"))
    numbers = events.select("user", "n")
    numbers.to(ls.sqlite("out.db", table="numbers"))
    numbers.to(ls.files("numbers"))
    return job


def _events(epoch: int) -> list[Row]:
    return [
        {"user": chr(97 + n % 5) if n % 4 else None, "n": n, "tags": [str(n)] * (n % 3)}
        for n in range(epoch * 100, epoch * 100 + 40)
    ]


def _seen(ran: Trial, epoch: int | None = None) -> dict[str, list[str]]:
    return {
        "raw": sorted(map(repr, ran.rows("raw", epoch))),
        "even": sorted(map(repr, ran.rows("even", epoch))),
        "numbers": sorted(map(repr, ran.rows("out.db", epoch, "numbers"))),
        "the same in files": sorted(map(repr, ran.rows("numbers", epoch))),
    }


def _wanted(rows: list[Row]) -> dict[str, list[str]]:
    numbers = sorted(repr({"user": row["user"], "n": row["n"]}) for row in rows)
    return {
        "raw": sorted(map(repr, rows)),
        "even": sorted(repr({"n": row["n"]}) for row in rows if row["n"] % 2 == 0),
        "numbers": numbers,
        "the same in files": numbers,
    }


def test_all_sinks_of_a_job_get_each_epoch_once_whichever_replica_is_first(trial: NewTrial) -> None:
    ran = trial(_several_sinks())
    ran.start("r0")
    ran.start("r1", tasks=1)
    for epoch in range(3):
        ran.epoch(events=_events(epoch) if epoch != 1 else [])
        assert _seen(ran, epoch) == _wanted(_events(epoch) if epoch != 1 else []), f"epoch {epoch}"
        assert len(ran.digests(epoch)) == 8
    assert _seen(ran) == _wanted([*_events(0), *_events(2)])
    assert ran.store.digest_mismatches() == []


def test_an_epoch_staged_by_the_executors_has_the_rows_and_digests_of_one_through_the_driver(trial: NewTrial) -> None:
    small, large = trial(_several_sinks(), "small"), trial(_several_sinks(), "large", rows_through_driver_max=0)
    for epoch in range(3):
        for ran in (small, large):
            if epoch == 0:
                ran.start(tasks=2)
            ran.epoch(events=_events(epoch) if epoch != 1 else [])
        assert _seen(large, epoch) == _seen(small, epoch) == _wanted(_events(epoch) if epoch != 1 else [])
        assert large.digests(epoch) == small.digests(epoch)
    assert not list((large.folder / "raw").rglob("*.tmp"))


def _many_from_few() -> ls.Job:
    job = ls.Job("many-from-few")
    events = job.source("events", ls.journal("events", schema="users array<string>, n bigint", partitions=2))
    each = events.explode("users", as_="user")
    each.to(ls.files("all"))
    totals = each.key_by("user").agg(total=F.sum("n"))
    totals.to(ls.files("totals"))
    totals.to(ls.sqlite("totals.db", table="totals", key="user"))
    return job


def test_an_epoch_that_turns_out_to_be_large_is_staged_and_its_state_is_right_afterwards(trial: NewTrial) -> None:
    """Two records make sixty rows, which nobody could know before: the way through the driver ends after ten."""
    bounded, free = trial(_many_from_few(), "bounded", rows_through_driver_max=10), trial(_many_from_few(), "free")
    users = [f"user {n}" for n in range(15)]
    totals: dict[str, int] = defaultdict(int)
    for epoch, count in enumerate([2, 15, 1, 15, 0]):
        chosen = users[:count]
        for ran in (bounded, free):
            if epoch == 0:
                ran.start("r0", partitions=2, tasks=2)
            elif epoch == 4:
                ran.stop()
                ran.start("r0", partitions=2, tasks=2)
            ran.put("events", [{"users": chosen, "n": 10**epoch}], 0)
            ran.put("events", [{"users": chosen, "n": 10**epoch}], 1)
            ran.run(1)
        for user in chosen:
            totals[user] += 2 * 10**epoch
        wanted = sorted((user, totals[user]) for user in chosen)
        assert sorted((row["user"], row["total"]) for row in bounded.rows("totals", epoch)) == wanted
        assert len(bounded.rows("all", epoch)) == 2 * count
        assert bounded.digests(epoch) == free.digests(epoch)
    kept = {row["user"]: row["total"] for row in bounded.rows("totals.db", None, "totals")}
    assert kept == dict(totals)
    assert bounded.store.digest_mismatches() == []


def test_a_crash_between_publishing_and_committing_repeats_nothing_and_loses_nothing(trial: NewTrial) -> None:
    job = ls.Job("crashing")
    events = job.source("events", ls.journal("events", schema="user string, n bigint"))
    events.key_by("user").agg(total=F.sum("n")).to(ls.files("out"))
    ran = trial(job)
    total = 0
    for epoch in range(3):
        crashes = epoch == 1
        replica = ran.start(crash_after=frozenset({epoch} if crashes else ()).__contains__)
        ran.put("events", [{"user": "ann", "n": 10**epoch}])
        total += 10**epoch
        if crashes:
            assert "crashes here" in str(ran.run_to_failure())
            assert replica.committed == epoch - 1
            ran.start()
            ran.wait(epoch)
        else:
            ran.run(1)
        ran.stop()
        assert ran.rows(epoch=epoch) == [{"user": "ann", "total": total}], f"epoch {epoch}"
    assert len(ran.rows()) == 3
    assert list(Reader(ran.folder / "out").epochs()) == [0, 1, 2]
    assert ran.store.digest_mismatches() == []


def test_a_replica_that_joins_late_follows_the_ledger_and_agrees_about_every_epoch(trial: NewTrial) -> None:
    job = ls.Job("late-joiner")
    events = job.source("events", ls.journal("events", schema="user string, n bigint", partitions=2))
    events.key_by("user").agg(total=F.sum("n")).to(ls.files("out"))
    ran = trial(job)
    ran.start("r0")
    for epoch in range(3):
        ran.epoch(events=[{"user": "ann", "n": epoch}, {"user": "bob", "n": 1}])
    ran.start("r1", partitions=3)
    ran.wait(2)
    ran.epoch(events=[{"user": "ann", "n": 5}])
    for epoch in range(4):
        assert len(set(ran.digests(epoch).values())) == 1 and len(ran.digests(epoch)) == 2
    assert ran.rows(epoch=3) == [{"user": "ann", "total": 8}]


def test_a_sink_of_rows_that_another_sink_has_joins_in_with_the_state_there_is(trial: NewTrial) -> None:
    def job(*, more: bool) -> ls.Job:
        made = ls.Job("one-more-sink")
        events = made.source("events", ls.journal("events", schema="user string, n bigint"))
        totals = events.key_by("user").agg(total=F.sum("n")).to(ls.files("out"))
        if more:
            totals.to(ls.sqlite("totals.db", table="totals", key="user"))
        return made

    before = trial(job(more=False))
    before.start()
    last = before.epoch(events=[{"user": "ann", "n": 1}, {"user": "bob", "n": 2}])
    before.stop()
    after = trial(job(more=True))
    after.now_us = before.now_us
    # As `lockstep run` notes it for a job whose file has changed.
    after.store.set_fact(VERSION_FROM, str(last))
    after.start()
    after.epoch(events=[{"user": "ann", "n": 10}])
    assert after.rows(epoch=1) == [{"user": "ann", "total": 11}]
    # Bob was published before there was this sink: nothing was computed again.
    assert after.rows("totals.db", table="totals") == [{"user": "ann", "total": 11}]
