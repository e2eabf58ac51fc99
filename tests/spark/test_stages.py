"""Jobs that Spark refuses as one query: cut into stages joined by journals, and loops."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.errors import LockstepError
from lockstep.testing import Trial
from tests.spark.conftest import NewTrial

Row = dict[str, Any]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "user string, n bigint, at timestamp"


def _epochs(seed: int, epochs: int = 7) -> list[list[Row]]:
    chance = random.Random(seed)
    return [
        [
            {
                "user": chance.choice(["ann", "bob", None]),
                "n": chance.randrange(10),
                "at": DAY + timedelta(seconds=epoch * 10 + chance.randrange(10)),
            }
            for _ in range(0 if epoch == 3 else 20)
        ]
        for epoch in range(epochs)
    ]


def _job() -> ls.Job:
    job = ls.Job("stages")
    events = job.source("events", ls.journal("events", schema=SCHEMA)).event_time("at")
    windows = events.key_by("user").window(ls.tumbling("10 seconds")).agg(n=F.count("*"), total=F.sum("n"))
    windows.to(ls.files("windows"))
    windows.key_by("user").agg(windows=F.count("*"), most=F.max("n")).to(ls.files("rolling"), name="rolling_sink")
    windows.window(ls.tumbling("30 seconds")).agg(total=F.sum("total"), users=F.count("*")).to(ls.files("of_windows"))
    events.key_by("user").agg(n=F.count("*")).to(ls.files("counts"))
    return job


def _windows(epochs: list[list[Row]], closed_before: datetime) -> dict[tuple[str | None, datetime], tuple[int, int]]:
    found: dict[tuple[str | None, datetime], list[int]] = defaultdict(list)
    for row in (row for rows in epochs for row in rows):
        start = row["at"] - timedelta(seconds=row["at"].second % 10)
        if start + timedelta(seconds=10) <= closed_before:
            found[row["user"], start].append(row["n"])
    return {key: (len(values), sum(values)) for key, values in found.items()}


@pytest.mark.parametrize("crashes", [{6}, pytest.param({1, 6}, marks=pytest.mark.long)], ids=["one", "two"])
def test_results_of_results_are_what_plain_python_says_and_a_crash_changes_nothing(
    trial: NewTrial, crashes: set[int]
) -> None:
    running = trial(_job())
    crashed: set[int] = set()

    def crash_once(epoch: int) -> bool:
        if epoch not in crashes or epoch in crashed:
            return False
        crashed.add(epoch)
        return True

    epochs = _epochs(1, 5)
    running.start("r0", partitions=2, crash_after=crash_once)
    for rows in [*epochs, *[[]] * 5]:
        running.put("events", rows)
        epoch = running.seal().epoch
        try:
            running.wait(epoch)
        except LockstepError:
            running.replicas["r0"].stop()
            running.start("r0", partitions=2, crash_after=crash_once)
            running.wait(epoch)
    assert crashed == crashes
    _check(running, epochs)


def _check(running: Trial, epochs: list[list[Row]]) -> None:
    # The last records stay open; their newest time closes what is before it.
    expected = _windows(epochs, max(row["at"] for rows in epochs for row in rows))
    found = {(row["user"], row["window_start"]): (row["n"], row["total"]) for row in running.rows("windows")}
    assert found == expected
    rolling = {row["user"]: row["windows"] for row in running.rows("rolling")}
    assert rolling == Counter(user for user, _ in expected)
    of_windows = [(row["window_start"], row["total"]) for row in running.rows("of_windows")]
    first = sum(total for (_, at), (_, total) in expected.items() if at < DAY + timedelta(seconds=30))
    assert of_windows == [(DAY, first)]
    counts = {row["user"]: row["n"] for row in running.rows("counts")}
    assert counts == Counter(row["user"] for rows in epochs for row in rows)


def test_a_loop_goes_round_until_its_records_leave_or_too_often(trial: NewTrial) -> None:
    job = ls.Job("loop")

    def collatz(numbers: Stream) -> tuple[Stream, Stream]:
        following = numbers.with_columns(n=F.when(F.col("n") % 2 == 0, F.expr("n div 2")).otherwise(F.col("n") * 3 + 1))
        return following.filter("n > 1"), following.filter("n = 1")

    numbers = job.source("numbers", ls.journal("numbers", schema="begin bigint, n bigint"))
    numbers.iterate(collatz, rounds=4).to(ls.files("out"))
    running = trial(job)
    running.start("r0", partitions=1)
    running.start("r1", partitions=2)
    running.epoch(numbers=[{"begin": n, "n": n} for n in range(2, 12)])
    running.run(7)

    def steps(n: int) -> int:
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    assert {(row["begin"], row["round"]) for row in running.rows()} == {
        (n, steps(n) - 1) for n in range(2, 12) if steps(n) - 1 <= 4
    }
    assert running.store.digest_mismatches() == []
    gave_up = [text for _, _, kind, _, text in running.store.events() if kind == "loop-gave-up"]
    left = sum(steps(n) - 1 > 4 for n in range(2, 12))
    assert gave_up == [f"loop-iterate: {left} records of epoch 4 were still going after 4 rounds"]


def test_a_keyed_step_runs_beside_rolling_results_in_the_same_query(trial: NewTrial) -> None:
    job = ls.Job("beside")
    events = job.source("events", ls.journal("events", schema=SCHEMA))
    events.key_by("user").agg(n=F.count("*")).to(ls.files("native"))
    events.key_by("user").fold(0, lambda held, record: held + 1, schema="n bigint").to(ls.files("folded"))
    assert [stage.output_mode for stage in job.graph().stages] == ["update"]
    running = trial(job)
    running.start("r0", partitions=2)
    for rows in _epochs(3, 2):
        running.epoch(events=rows)
    key = lambda row: str(row["user"])  # noqa: E731
    for epoch in range(2):
        native = sorted(running.rows("native", epoch), key=key)
        assert native and native == sorted(running.rows("folded", epoch), key=key)
