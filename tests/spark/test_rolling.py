"""Rolling results, distinct, branches and explode in replicas of different shapes, against plain Python."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import LockstepError
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]
DAY = datetime(2026, 3, 1, tzinfo=UTC)
SCHEMA = "user string, n bigint, x double, words array<string>, tags map<string,bigint>, at timestamp"
EPOCHS = 2
PARTITIONS = 2
OUT_OF_ORDER_S = 5
WITHIN_S = 8
COLUMNS = {
    "each": ["who", "n", "total", "twice", "last"],
    "once": ["user", "at"],
    "said": ["user", "said"],
    "most": ["user", "most", "least", "first"],
}


def _input(seed: int) -> list[list[list[Row]]]:
    """Records of each epoch and partition: out of order, some at the same time, some late, keys and values null."""
    chance = random.Random(seed)

    def row(epoch: int) -> Row:
        return {
            "user": chance.choice([None, "ann", "bob", "eve"]),
            "n": chance.choice([None, *range(-3, 3)]),
            "x": chance.choice([None, chance.randrange(-1000, 1000) / 100]),
            "words": chance.choice([None, [], ["a"], ["b", "a", None]]),
            "tags": chance.choice([None, {}, {"k": 1}, {"k": 2, "l": None}]),
            "at": DAY + timedelta(seconds=epoch * 10 + chance.randrange(0, 10) - chance.choice([0, 0, 0, 6, 20])),
        }

    return [[[row(epoch) for _ in range(20)] for _ in range(PARTITIONS)] for epoch in range(EPOCHS)]


def _in_order(epoch: list[list[Row]]) -> list[Row]:
    """By event time, then by partition, then by offset: how a keyed step sees them."""
    return sorted((row for part in epoch for row in part), key=lambda row: row["at"])


def _append(words: str, record: Any) -> str:
    return f"{words} {record.word}"[-40:]


def _job() -> ls.Job:
    job = ls.Job("rolling")
    events = job.source("events", ls.journal("events", schema=SCHEMA, partitions=PARTITIONS)).event_time(
        "at", out_of_order=f"{OUT_OF_ORDER_S} seconds"
    )
    values: dict[str, Any] = {
        "n": F.count("*"),
        "total": F.sum("x"),
        "twice": F.sum(F.col("n") * 2),
        "last": F.last("n"),
    }
    events.key_by(who="upper(user)").agg(**values, per_record=True).to(ls.files("each"))
    events.distinct("user", within=f"{WITHIN_S} seconds").select("user", "at").to(ls.files("once"))
    order: dict[str, Any] = {"most": F.max_by("x", "n"), "least": "min_by(x, n)", "first": F.first("n")}
    events.key_by("user").agg(**order, name="by_order").to(ls.files("most"))
    words = events.explode("words", as_="word")
    words.key_by("user").fold("", _append, schema="said string", name="said").to(ls.files("said"))
    return job


def _by_order(records: list[Row]) -> tuple[Any, Any, Any]:
    """The value at the largest and the smallest number, and the first number: among equals the first that came."""
    numbers = [one for one in records if one["n"] is not None]
    best = [pick(numbers, key=lambda one: one["n"])["x"] if numbers else None for pick in (max, min)]
    return best[0], best[1], records[0]["n"]


def _run(ran: Trial, epochs: list[list[list[Row]]]) -> None:
    ran.start("narrow", partitions=1, tasks=1)
    ran.start("wide", partitions=3, tasks=3)
    for epoch in epochs:
        for partition, rows in enumerate(epoch):
            ran.put("events", rows, partition)
        ran.run(1)


def _published(ran: Trial, path: str, columns: list[str]) -> list[tuple[Any, ...]]:
    found = [(epoch, *(row[name] for name in columns)) for epoch in range(EPOCHS) for row in ran.rows(path, epoch)]
    return sorted(found, key=repr)


def _expected(epochs: list[list[list[Row]]]) -> dict[str, list[tuple[Any, ...]]]:
    """All results, record by record, in plain Python."""
    made: dict[str, list[tuple[Any, ...]]] = {name: [] for name in COLUMNS}
    history: dict[Any, list[Row]] = {}
    said: dict[Any, str] = {}
    passed: list[Row] = []
    watermark = newest = DAY - timedelta(days=1)
    for number, epoch in enumerate(epochs):
        rows = _in_order(epoch)
        for row in rows:
            user, mine = row["user"], history.setdefault(row["user"], [])
            mine.append(row)
            cents = [round(one["x"] * 100) for one in mine if one["x"] is not None]
            numbers = [one["n"] for one in mine if one["n"] is not None]
            total, twice = sum(cents) / 100 if cents else None, 2 * sum(numbers) if numbers else None
            made["each"].append((number, user and user.upper(), len(mine), total, twice, row["n"]))
            if row["at"] + timedelta(seconds=WITHIN_S) > watermark and not _any_near(row, passed):
                passed.append(row)
                made["once"].append((number, user, row["at"]))
            for word in row["words"] or []:
                said[user] = f"{said.get(user, '')} {word}"[-40:]
        for user in {row["user"] for row in rows}:
            made["most"].append((number, user, *_by_order(history[user])))
        for user in {row["user"] for row in rows if row["words"]}:
            made["said"].append((number, user, said[user]))
        newest = max([newest, *(row["at"] for row in rows)])
        watermark = newest - timedelta(seconds=OUT_OF_ORDER_S)
    return {name: sorted(rows, key=repr) for name, rows in made.items()}


def _any_near(row: Row, passed: list[Row]) -> bool:
    return any(one["user"] == row["user"] and abs(one["at"] - row["at"]).total_seconds() < WITHIN_S for one in passed)


def test_rolling_results_equal_plain_python_and_replicas_of_other_shapes_agree(trial: NewTrial) -> None:
    epochs, ran = _input(seed=21), trial(_job())
    _run(ran, epochs)
    wanted = _expected(epochs)
    for name, rows in wanted.items():
        assert _published(ran, name, COLUMNS[name]) == rows, name
    assert 4 < len(wanted["once"]) < len(wanted["each"]) / 2
    for epoch in range(EPOCHS):
        digests = ran.digests(epoch)
        sinks = {sink for _, sink in digests}
        assert len(sinks) == len(wanted)
        for sink in sinks:
            assert digests["narrow", sink] == digests["wide", sink], (epoch, sink)


def test_branches_exclude_each_other_and_elements_keep_their_record(trial: NewTrial) -> None:
    job = ls.Job("branches")
    events = job.source("events", ls.journal("events", schema=SCHEMA, partitions=PARTITIONS))
    branches = events.split(low="n < 0", small=F.col("n") < 2)
    for name in branches:
        branches[name].select("user", "n").to(ls.files(name))
    events.explode("words").select("user", "words").to(ls.files("words"))
    events.explode(word="words", outer=True, name="all_words").select("user", "word").to(ls.files("all"))
    events.explode("tags", as_=("tag", "value")).select("user", "tag", "value").to(ls.files("tags"))
    timed = events.explode(letter="split(user, '')").event_time("at")
    timed.key_by("letter").window(ls.tumbling("1 hour")).agg(n=F.count("*")).to(ls.files("letters"))
    epochs, ran = _input(seed=22), trial(job)
    ran.start()
    for epoch in epochs:
        ran.epoch(events=[row for part in epoch for row in part])
    late = {"user": "z", "at": DAY + timedelta(days=1)}
    ran.epoch(events=[late])
    ran.run(1)
    rows = [*(row for epoch in epochs for part in epoch for row in part), {**dict.fromkeys(SCHEMA), **late, "n": None}]

    def published(path: str, *names: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row[name] for name in names) for row in ran.rows(path)), key=repr)

    def wanted(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        return sorted(found, key=repr)

    low = [(row["user"], row["n"]) for row in rows if row["n"] is not None and row["n"] < 0]
    small = [(row["user"], row["n"]) for row in rows if row["n"] is not None and 0 <= row["n"] < 2]
    rest = [(row["user"], row["n"]) for row in rows if row["n"] is None or row["n"] >= 2]
    assert published("low", "user", "n") == wanted(low)
    assert published("small", "user", "n") == wanted(small)
    assert published("rest", "user", "n") == wanted(rest)
    words = [(row["user"], word) for row in rows for word in row.get("words") or []]
    nothing = [(row["user"], None) for row in rows if not row.get("words")]
    assert published("words", "user", "words") == wanted(words)
    assert published("all", "user", "word") == wanted(words + nothing)
    tags = [(row["user"], *pair) for row in rows for pair in (row.get("tags") or {}).items()]
    assert published("tags", "user", "tag", "value") == wanted(tags)
    counted = {(row["letter"], row["n"]) for row in ran.rows("letters") if row["window_start"] >= DAY}
    users = [row["user"] for row in rows if row["user"] not in (None, "z") and row["at"] >= DAY]
    assert counted == {(letter, sum(user.count(letter) for user in users)) for letter in set("".join(users))}


def test_a_union_of_different_types_names_the_column_and_both_types(trial: NewTrial) -> None:
    job = ls.Job("mixed")
    one = job.source("one", ls.journal("one", schema="user string, n bigint"))
    two = job.source("two", ls.journal("two", schema="n string, user string"))
    one.union(two).to(ls.files("out"))
    with pytest.raises(LockstepError, match='different types in column "n"') as caught:
        trial(job).start()
    assert caught.value.code == "LS0176"
    assert "bigint" in caught.value.why and "string" in caught.value.why


def test_what_cannot_be_exploded_is_refused(trial: NewTrial) -> None:
    job = ls.Job("flat")
    events = job.source("events", ls.journal("events", schema=SCHEMA))
    events.explode("tags", as_="tag").to(ls.files("out"))
    with pytest.raises(LockstepError, match="a map has keys and values") as caught:
        trial(job).start()
    assert caught.value.code == "LS0175"
