"""Joins over random input, against DuckDB: disorder, lateness, duplicates, nulls, empty epochs, and a restart."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep as ls
from lockstep.plan.joins import JoinKind
from lockstep.store.protocols import Entry
from tests.spark.conftest import NewTrial
from tests.spark.harness import ReplicaHere, Trial, optimized_plan, state_rows

Row = dict[str, Any]
Epochs = list[tuple[list[Row], list[Row]]]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "k bigint, n bigint, at timestamp"
ARROW = pa.schema([("epoch", pa.int64()), ("k", pa.int64()), ("n", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
KINDS: tuple[JoinKind, ...] = ("inner", "left", "right", "full")
EPOCHS = 5
LEFT_DISORDER_S, RIGHT_DISORDER_S = 2, 6
LOWER_S, UPPER_S = -3, 8
BONUSES = [(0, 7), (1, 1), (1, 2), (None, 5)]
"""The table: key 1 is there twice, key 2 is not, and a null key has no partner."""


def _records(chance: random.Random, epoch: int) -> list[Row]:
    """Around ``epoch`` times ten seconds, to the microsecond; some late, some twice, some without key or time."""
    made: list[Row] = []
    for n in range(18):
        late_s = chance.choice([0, 0, 0, 2, 5, 8, 25])
        micros = chance.choice([0, 0, 1, 500, 999_999])
        at = DAY + timedelta(seconds=epoch * 10 + chance.randrange(0, 10) - late_s, microseconds=micros)
        row = {"k": chance.choice([None, 0, 1, 2]), "n": epoch * 100 + n, "at": chance.choice([at] * 15 + [None])}
        made += [row] * chance.choice([1, 1, 1, 2])
    return made


def _input(seed: int) -> Epochs:
    """One epoch is empty, in one only the left stream has records."""
    chance = random.Random(seed)
    epochs = [(_records(chance, epoch), _records(chance, epoch)) for epoch in range(EPOCHS)]
    epochs[1], epochs[3] = ([], []), (epochs[3][0], [])
    return epochs


def _database(epochs: Epochs) -> duckdb.DuckDBPyConnection:
    """What each stream was given, and how far time had come in each epoch."""
    database = duckdb.connect()
    database.execute("SET TimeZone = 'UTC'")
    for side, name in enumerate(("left_given", "right_given")):
        rows = [{"epoch": e, **row} for e, both in enumerate(epochs) for row in both[side]]
        database.register(name, pa.Table.from_pylist(rows, ARROW))
    seen = """coalesce((SELECT max("at") FROM {side}_given g WHERE g.epoch < e.epoch), 'epoch'::TIMESTAMPTZ)"""
    database.execute(f"""
        CREATE TABLE clock AS  -- time has come as far as on the slower side, in whole milliseconds
        SELECT e.epoch, date_trunc('milliseconds', least(
            {seen.format(side="left")} - INTERVAL {LEFT_DISORDER_S} SECOND,
            {seen.format(side="right")} - INTERVAL {RIGHT_DISORDER_S} SECOND)) AS passed
        FROM range({EPOCHS + 1}) AS e(epoch)
    """)
    return database


def _streams(job: ls.Job) -> tuple[ls.Stream, ls.Stream]:
    left = job.source("left", ls.journal("left", schema=SCHEMA, partitions=2))
    return left, job.source("right", ls.journal("right", schema=SCHEMA, partitions=2))


def _timed(left: ls.Stream, right: ls.Stream) -> tuple[ls.Stream, ls.Stream]:
    return (
        left.event_time("at", out_of_order=f"{LEFT_DISORDER_S} seconds", name="left_time"),
        right.event_time("at", out_of_order=f"{RIGHT_DISORDER_S} seconds", name="right_time"),
    )


def _run(ran: Trial, epochs: Epochs, restarted: str, partitions: int) -> None:
    """All epochs and one without records; a replica starts again from its checkpoint in the middle."""
    for number, (left, right) in enumerate(epochs):
        if number == 2:
            ran.replicas[restarted].stop()
            ran.start(restarted, partitions=partitions)
        ran.epoch(left=left, right=right)
    ran.run(1)


def _published(trial: Trial, path: str) -> list[tuple[Any, ...]]:
    rows = [(epoch, *row.values()) for epoch in range(EPOCHS + 1) for row in trial.rows(path, epoch)]
    return sorted(rows, key=repr)


def _answer(database: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    return sorted(database.execute(query).fetchall(), key=repr)


INTERVAL = f"""
-- Late is what is older than the time that the epoch before had reached.
WITH late AS (SELECT epoch + 1 AS epoch, passed FROM clock UNION ALL SELECT 0, 'epoch'::TIMESTAMPTZ),
l AS (SELECT row_number() OVER () AS id, g.* FROM left_given g JOIN late USING (epoch) WHERE g."at" >= late.passed),
r AS (SELECT row_number() OVER () AS id, g.* FROM right_given g JOIN late USING (epoch) WHERE g."at" >= late.passed),
pairs AS (
    SELECT l.id AS l_id, r.id AS r_id, greatest(l.epoch, r.epoch) AS epoch FROM l JOIN r ON l.k = r.k
    AND r."at" BETWEEN l."at" + INTERVAL ({LOWER_S}) SECOND AND l."at" + INTERVAL ({UPPER_S}) SECOND
)
-- A pair comes out with its second record, a record alone when event time has passed its last chance.
SELECT p.epoch, l.k, l.n, l."at", r.n, r."at" FROM pairs p JOIN l ON l.id = l_id JOIN r ON r.id = r_id
UNION ALL
SELECT (SELECT min(epoch) FROM clock c WHERE c.passed > l."at" + INTERVAL {UPPER_S} SECOND AND c.epoch >= l.epoch) AS e,
    l.k, l.n, l."at", NULL, NULL
FROM l WHERE e IS NOT NULL AND id NOT IN (SELECT l_id FROM pairs) AND {{left}}
UNION ALL
SELECT (SELECT min(epoch) FROM clock c WHERE c.passed > r."at" - INTERVAL ({LOWER_S}) SECOND AND c.epoch >= r.epoch) AS e,
    r.k, NULL, NULL, r.n, r."at"
FROM r WHERE e IS NOT NULL AND id NOT IN (SELECT r_id FROM pairs) AND {{right}}
"""  # noqa: E501


def test_an_interval_join_pairs_what_came_in_time_and_gives_the_rest_when_it_has_no_chance(trial: NewTrial) -> None:
    job = ls.Job("intervals")
    left, right = _timed(*_streams(job))
    between = (f"{LOWER_S} seconds", f"{UPPER_S} seconds")
    for kind in KINDS:
        left.join(right, on="k", how=kind, between=between, suffixes=("_l", "_r"), name=f"{kind}_join").to(
            ls.files(f"o/{kind}")
        )
    epochs, ran = _input(seed=21), trial(job)
    ran.start(partitions=2)
    _run(ran, epochs, "r0", partitions=2)
    database = _database(epochs)
    for kind in KINDS:
        outer = {"left": kind in ("left", "full"), "right": kind in ("right", "full")}
        wanted = _answer(database, INTERVAL.format(**outer))
        assert _published(ran, f"o/{kind}") == wanted, kind
        assert len(wanted) > 30


HISTORY = datetime(2023, 10, 1, tzinfo=UTC)
"""Well before the epoch time of trials."""
LOWER_US, UPPER_US = -2_000, 1_000_000
AROUND_US = ((-2_001, -2_000), (-1_999, 0), (1_000_000, 1_000_001), (500, 999_999))
"""Where the records of the large history are, around each of the small one: at the bounds to the microsecond."""


def _histories(minutes: int) -> tuple[list[Row], list[Row]]:
    small: list[Row] = [{"k": 1, "n": n, "at": HISTORY + timedelta(minutes=n)} for n in range(minutes)]
    large = [
        {"k": 1, "n": one["n"], "at": one["at"] + timedelta(microseconds=us)}
        for one in small
        for us in AROUND_US[one["n"] % len(AROUND_US)]
    ]
    return small, large


@pytest.mark.long
def test_a_small_history_does_not_fill_the_state_of_a_join_with_a_large_one(trial: NewTrial) -> None:
    job = ls.Job("histories", records_per_epoch_max=240, max_ahead_s="1 hour")
    small, large = _timed(*_streams(job))
    between = (f"{LOWER_US} microseconds", f"{UPPER_US} microseconds")
    small.join(large, on="k", between=between, suffixes=("_s", "_l"), name="joined").to(ls.files("o"))
    given, ran = _histories(minutes=800), trial(job)
    replica = ran.start()
    for name, rows in zip(("left", "right"), given, strict=True):
        ran.put(name, rows)
    kept = [_state_after(ran, replica, ran.seal())]
    while (entry := ran.seal()).records:
        kept.append(_state_after(ran, replica, entry))
    kept.append(_state_after(ran, replica, entry))
    wanted = [
        (one["n"], other["n"], other["at"])
        for one in given[0]
        for other in given[1]
        if LOWER_US <= (other["at"] - one["at"]) // timedelta(microseconds=1) <= UPPER_US
    ]
    found = [(row["n_s"], row["n_l"], row["at_l"]) for row in ran.rows("o")]
    assert sorted(found) == sorted(wanted) and len(wanted) == 1200
    # Of the small one an hour (60 records) and an epoch's share (120), of the large one what came since the watermark
    # (240). Without waiting the small one is read when the large one is half through: 400 and 240.
    assert max(kept) < 480 and kept[-1] < 20, kept
    held = [entry.held for entry in ran.store.entries(0, len(kept)) if entry.held]
    assert held and all(list(one) == ["left"] and list(one["left"]) == ["right"] for one in held)
    condition = optimized_plan(replica).split("Join Inner", 1)[1].splitlines()[0]
    assert "INTERVAL" not in condition, "a pair costs comparisons of numbers"
    assert condition.index("unix_micros") < condition.index("as double"), "the exact one first: it decides"


def _state_after(ran: Trial, replica: ReplicaHere, entry: Entry) -> int:
    ran.wait(entry.epoch)
    return state_rows(replica)


WINDOW = """
WITH {assigned},
pairs AS (
    SELECT l.id AS l_id, r.id AS r_id, greatest(l.epoch, r.epoch) AS epoch
    FROM l JOIN r ON l.k = r.k AND l.begin = r.begin
)
SELECT p.epoch, l.k, l.begin, l.finish, l.n, l."at", r.n, r."at"
FROM pairs p JOIN l ON l.id = l_id JOIN r ON r.id = r_id
UNION ALL
SELECT (SELECT min(epoch) FROM clock c WHERE c.passed >= l.finish AND c.epoch >= l.epoch) AS e,
    l.k, l.begin, l.finish, l.n, l."at", NULL, NULL
FROM l WHERE e IS NOT NULL AND id NOT IN (SELECT l_id FROM pairs)
UNION ALL
SELECT (SELECT min(epoch) FROM clock c WHERE c.passed >= r.finish AND c.epoch >= r.epoch) AS e,
    r.k, r.begin, r.finish, NULL, NULL, r.n, r."at"
FROM r WHERE e IS NOT NULL AND id NOT IN (SELECT r_id FROM pairs)
"""
ASSIGNED = """
{name} AS (
    SELECT row_number() OVER () AS id, g.*, begin, begin + INTERVAL {size} SECOND AS finish
    FROM {side}_given g, LATERAL (
        SELECT time_bucket(INTERVAL {every} SECOND, g."at") - INTERVAL {every} SECOND * back AS begin
        FROM range({size} // {every}) AS b(back)
    ) WHERE begin + INTERVAL {size} SECOND > g."at" AND NOT EXISTS (
        SELECT 1 FROM clock c WHERE c.epoch < g.epoch + {grace} AND c.passed >= begin + INTERVAL {size} SECOND)
)"""


def _assigned(size: int, every: int, *, grace: int) -> str:
    """Both sides by window, without what is late: Spark's own joins still take what the epoch itself makes late."""
    sides = (("l", "left"), ("r", "right"))
    return ",".join(ASSIGNED.format(name=n, side=s, size=size, every=every, grace=grace) for n, s in sides)


CO_GROUP = """
WITH {assigned},
everything AS (
    SELECT 'l' AS side, k, begin, finish, n FROM l UNION ALL SELECT 'r', k, begin, finish, n FROM r
)
SELECT (SELECT min(epoch) FROM clock c WHERE c.passed >= finish) AS e, k, begin, count(*) FILTER (side = 'l'),
    list_sort(coalesce(list(n) FILTER (side = 'r'), []))
FROM everything GROUP BY k, begin, finish HAVING e IS NOT NULL
"""


def _gathered(key: Any, left: list[Any], right: list[Any], window: Any) -> list[Row]:
    assert [one.at for one in left] == sorted(one.at for one in left)
    return [{"k": key.k, "start": window.start, "lefts": len(left), "rights": sorted(one.n for one in right)}]


def _with_bonus(epochs: Epochs) -> Epochs:
    """The left records as the table makes them."""
    return [
        (
            [{**row, "n": row["n"] * 10 + bonus} for row in left for k, bonus in BONUSES if row["k"] == k is not None],
            right,
        )
        for left, right in epochs
    ]


def _windows_job(table: Path) -> ls.Job:
    """A table before the event time, then a window join and a co-group."""
    job = ls.Job("windows")
    plain, right = _streams(job)
    bonuses = ls.table(table)
    plain.join(bonuses, on={"k": "key"}, how="left", name="looked_up").to(ls.files("o/left_table"))
    joined = plain.join(bonuses, on={"k": "key"}, name="bonus").with_columns(n="n * 10 + bonus").drop("bonus")
    left, right = _timed(joined, right)
    ten, twenty = ls.tumbling("10 seconds"), ls.sliding("20 seconds", every="10 seconds")
    left.join(right, on="k", how="full", window=twenty, suffixes=("_l", "_r"), name="slides").to(ls.files("o/full"))
    grouped = left.key_by("k").co_group(right.key_by("k")).window(ten)
    schema = "k bigint, start timestamp, lefts bigint, rights array<bigint>"
    grouped.apply(_gathered, schema=schema).to(ls.files("o/co_group"))
    return job


def test_window_joins_co_groups_and_tables_agree_between_replicas_and_with_sql(trial: NewTrial, tmp_path: Path) -> None:
    table = tmp_path / "bonuses.parquet"
    pq.write_table(pa.table({"key": [k for k, _ in BONUSES], "bonus": [bonus for _, bonus in BONUSES]}), table)
    epochs, ran = _input(seed=22), trial(_windows_job(table))
    ran.start("r0", partitions=1)
    ran.start("r1", partitions=2, tasks=1)
    _run(ran, epochs, "r1", partitions=2)
    for epoch in range(EPOCHS + 1):
        digests = ran.digests(epoch)
        for sink in ran.graph.sinks:
            assert digests["r0", sink.id] == digests["r1", sink.id], (epoch, sink.id)
    database = _database(_with_bonus(epochs))
    assert _published(ran, "o/full") == _answer(database, WINDOW.format(assigned=_assigned(20, 10, grace=0)))
    assert _published(ran, "o/co_group") == _answer(database, CO_GROUP.format(assigned=_assigned(10, 10, grace=1)))
    looked_up = [(row["k"], row["n"], row["bonus"]) for row in ran.rows("o/left_table")]
    found: dict[int | None, list[Any]] = {None: [None], 0: [7], 1: [1, 2], 2: [None]}
    wanted = [(row["k"], row["n"], bonus) for left, _ in epochs for row in left for bonus in found[row["k"]]]
    assert sorted(looked_up, key=repr) == sorted(wanted, key=repr)
