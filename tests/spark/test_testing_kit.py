"""The testing kit, as a user's tests use it: whole jobs over epochs that the test writes down."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lockstep as ls
from lockstep import F
from lockstep.errors import RunError
from lockstep.testing import CRASH, HEARTBEAT, at, run, wait

Row = dict[str, Any]


def _logins() -> ls.Job:
    """Sources and sinks of several kinds, none of which may be touched."""
    job = ls.Job("kit")
    logins = job.source("logins", ls.files("/nowhere/in", schema="user string, ok boolean, at timestamp"))
    ticks = job.source("ticks", ls.rate(1_000_000))
    failed = logins.event_time("at", out_of_order="2 seconds", idle_after="5 seconds").filter("NOT ok")
    failed.key_by("user").window(ls.tumbling("10 seconds")).agg(failures=F.count("*")).to(
        ls.sqlite("/nowhere/out.db", table="failures"), name="failures"
    )
    logins.select("user", now=ls.epoch_time()).to(ls.console(), name="seen")
    ticks.to(ls.files("/nowhere/ticks"))
    return job


def _login(user: str, at: str, ok: bool = False) -> Row:
    return {"user": user, "ok": ok, "at": f"2026-01-01T00:00:{at}Z"}


def test_a_job_runs_over_epochs_that_a_test_writes_and_its_output_is_read_by_sink_and_epoch(
    lockstep_spark: SparkSession,
) -> None:
    logins = [
        [_login("ann", "01"), _login("ann", "02"), _login("bob", "03", ok=True)],
        CRASH,
        at("2026-01-01T00:00:13Z"),
        [_login("bob", "13"), _login("ann", "05")],
        HEARTBEAT,
        # Late: the window it belongs to is closed by the time it comes.
        [_login("ann", "04")],
        wait("1 minute"),
        HEARTBEAT,
        HEARTBEAT,
    ]
    ticks = [HEARTBEAT, [{"seq": 1, "at": "2026-01-01"}]]
    result = run(_logins(), {"logins": logins, "ticks": ticks}, spark=lockstep_spark, replicas=1)
    first = {"user": "ann", "window_start": "2026-01-01", "window_end": "2026-01-01 00:00:10", "failures": 3}
    second = {"user": "bob", "window_start": "2026-01-01 00:00:10Z", "window_end": "2026-01-01 00:00:20Z"}
    assert result.sink("failures") == [{**second, "failures": 1}, first]
    assert [len(rows) for rows in result.epochs("failures")] == [0, 0, 1, 0, 0, 1]
    assert result.epochs("failures")[2] == [first]
    assert result.sink("/nowhere/ticks").column("seq") == [1]
    assert [len(rows) for rows in result.epochs("files")] == [0, 1, 0, 0, 0, 0]
    times = [str(rows[0]["now"])[11:19] if rows else "" for rows in result.epochs("seen")]
    assert times == ["00:00:00", "00:00:13", "", "00:00:15", "", ""]
    assert result.sinks == ("failures", "seen", "files")
    assert not Path("/nowhere").exists()
    with pytest.raises(RunError, match='no sink "failure"') as caught:
        result.sink("failure")
    assert '"failures"' in caught.value.hint
    with pytest.raises(RunError, match="3 sinks"):
        result.sink()


def test_updates_are_read_as_they_stand_skipped_records_are_there_and_a_run_to_the_end_leaves_nothing_on_its_way(
    lockstep_spark: SparkSession,
) -> None:
    job = ls.Job("totals")
    numbers = job.source("numbers", ls.journal("numbers", schema="user string, n bigint"))
    halves = numbers.map(_half, schema="user string, half bigint", on_error="skip")
    totals = halves.key_by("user").agg(total=F.sum("half"))
    totals.to(ls.files("out/totals"), name="totals")
    numbers.key_by("user").max_by("n").to(ls.files("out/largest"), name="largest")
    # A second stage: what it makes of an epoch comes an epoch later.
    users = totals.key_by("total").fold(0, lambda n, _: n + 1, schema="users bigint")
    users.to(ls.files("out/users"), name="users")
    epochs = [[{"user": "ann", "n": 4}, {"user": "bob", "n": 3}], [{"user": "ann", "n": 6}, {"user": None, "n": 2}]]
    result = run(job, epochs, spark=lockstep_spark, until_done=True, replicas=1)
    assert result.sink("totals") == [
        {"user": "ann", "total": 2},
        {"user": "ann", "total": 5},
        {"user": None, "total": 1},
    ]
    assert result.latest("totals", by="user") == [{"user": "ann", "total": 5}, {"user": None, "total": 1}]
    assert result.latest("largest", by="user") == [
        {"user": "ann", "n": 6},
        {"user": "bob", "n": 3},
        {"user": None, "n": 2},
    ]
    assert result.latest("users", by="total") == [{"total": total, "users": 1} for total in (1, 2, 5)]
    assert ["ValueError: 3 is odd" in row["error"] for row in result.dead_letters] == [True]


def _half(record: Row) -> Row:
    if record["n"] % 2:
        raise ValueError(f"{record['n']} is odd")
    return {"user": record["user"], "half": record["n"] // 2}


def test_a_function_that_is_not_the_same_in_every_replica_fails_the_test_and_is_named(
    lockstep_spark: SparkSession,
) -> None:
    job = ls.Job("unsteady")
    numbers = job.source("numbers", ls.journal("numbers", schema="n bigint"))
    numbers.map(_by_chance, schema="n bigint, chance bigint", name="unsteady").to(ls.files("out"))
    with pytest.raises(RunError) as caught:
        run(job, [[{"n": 1}]], spark=lockstep_spark)
    assert caught.value.code == "LS0641"
    assert "unsteady" in caught.value.why


def _by_chance(record: Row) -> Row:
    return {**record, "chance": int.from_bytes(os.urandom(4))}
