"""Every step without state, against the same thing written in plain Python. One job: a query costs seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lockstep as ls
from lockstep import F
from lockstep.runtime.endings import is_job_error
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US, Trial

Row = dict[str, Any]
SCHEMA = "user string, ok boolean, n bigint, place struct<city: string, zip: int>, tags array<string>"
LETTERS = "letter string, position int"
FIRST: list[Row] = [
    {"user": "ann", "ok": True, "n": 1, "place": {"city": "Ulm", "zip": 89073}, "tags": ["a", "b"]},
    {"user": None, "ok": None, "n": 7, "place": None, "tags": None},
    {"user": "bob", "ok": False, "n": None, "place": {"city": None, "zip": 1}, "tags": []},
]
SECOND: list[Row] = [{"user": "Zoë", "ok": False, "n": -3, "place": {"city": "Köln", "zip": None}, "tags": [None]}]
OTHER: list[Row] = [{"n": 100, "user": "eve"}, {"n": None, "user": None}]


def _doubled(record: Any) -> Row:
    return {"user": record.user, "twice": None if record["n"] is None else 2 * record.n}


def _letters(record: Any) -> Iterator[Row]:
    for position, letter in enumerate(record.user or ""):
        yield {"letter": letter, "position": position}


def _capital(record: Any) -> Row:
    return {"letter": record.letter.upper(), "position": record.position}


def _in_arrow(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.record_batch({"n_plus": pc.add(batch["n"], 1), "user": batch["user"]})


def _none_for_most(batch: pa.RecordBatch) -> pa.Table:
    return pa.table({"user": batch["user"]}).filter(pc.equal(batch["user"], "ann"))


def _job() -> ls.Job:
    job = ls.Job("stateless")
    logins = job.source("logins", ls.journal("logins", schema=SCHEMA))
    other = job.source("other", ls.journal("other", schema="n bigint, user string"))
    small = logins.select("user", "n")
    logins.filter(~F.col("ok")).select("user").to(ls.files("by-expression"))
    logins.filter("NOT ok").select("user").to(ls.files("by-text"))
    logins.filter(lambda r: ~r.ok).select("user").to(ls.files("by-lambda"))
    logins.select("n", upper=F.upper("user"), city="place.city").to(ls.files("selected"))
    logins.with_columns(n=F.col("n") + 1, old=F.col("n"), seen=ls.epoch_time()).drop("place", "tags").to(
        ls.files("widened")
    )
    logins.drop("place", "tags", "ok").rename(user="who", n="user").to(ls.files("renamed"))
    small.union(other).to(ls.files("united"))
    logins.with_columns(long=lambda r: F.transform(r.tags, lambda tag: F.concat(tag, F.lit("!")))).select("long").to(
        ls.files("nested")
    )
    small.map(_doubled, schema="user string, twice bigint").to(ls.files("mapped"))
    small.flat_map(_letters, schema=LETTERS).to(ls.files("flattened"))
    letters = small.map(_doubled, schema="user string, twice bigint").flat_map(_letters, schema=LETTERS)
    letters.map(_capital, schema=LETTERS).filter("letter <> 'B'").to(ls.files("chained"))
    small.map_batches(_in_arrow, schema="user string, n_plus bigint").to(ls.files("in-arrow"))
    small.map_batches(_none_for_most, schema="user string").to(ls.files("fewer"))
    return job


@pytest.fixture(scope="module")
def ran(session: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    made = Trial(session, _job(), tmp_path_factory.mktemp("stateless") / "project", {})
    made.start()
    made.epoch(logins=FIRST, other=OTHER)
    made.epoch()
    made.epoch(logins=SECOND)
    yield made
    made.close()


def _same(ran: Trial, path: str, first: list[Row], second: list[Row]) -> None:
    for epoch, wanted in ((0, first), (1, []), (2, second)):
        found = Counter(repr(row) for row in ran.rows(path, epoch))
        assert found == Counter(repr(row) for row in wanted), f"epoch {epoch} of {path}"


@pytest.mark.parametrize("path", ["by-expression", "by-text", "by-lambda"])
def test_a_filter_keeps_what_holds_and_drops_what_is_null(ran: Trial, path: str) -> None:
    keep = [[{"user": row["user"]} for row in rows if row["ok"] is False] for rows in (FIRST, SECOND)]
    _same(ran, path, *keep)


def test_select_computes_its_columns_from_the_record(ran: Trial) -> None:
    wanted = [
        [
            {
                "n": row["n"],
                "upper": row["user"] and row["user"].upper(),
                "city": row["place"] and row["place"]["city"],
            }
            for row in rows
        ]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "selected", *wanted)


def test_with_columns_reads_the_old_record_and_epoch_time_is_the_ledgers(ran: Trial) -> None:
    from datetime import UTC, datetime, timedelta

    for epoch, rows in ((0, FIRST), (2, SECOND)):
        seen = datetime.fromtimestamp(START_US / 1e6, UTC) + timedelta(seconds=epoch + 1)
        wanted = [
            {
                "user": row["user"],
                "ok": row["ok"],
                "n": None if row["n"] is None else row["n"] + 1,
                "old": row["n"],
                "seen": seen,
            }
            for row in rows
        ]
        assert sorted(map(repr, ran.rows("widened", epoch))) == sorted(
            repr(dict(row, seen=found["seen"])) for row, found in zip(wanted, ran.rows("widened", epoch), strict=True)
        )
        assert {row["seen"] for row in ran.rows("widened", epoch)} == {seen}


def test_rename_can_hand_a_name_from_one_column_to_another(ran: Trial) -> None:
    wanted = [[{"who": row["user"], "user": row["n"]} for row in rows] for rows in (FIRST, SECOND)]
    _same(ran, "renamed", *wanted)


def test_union_matches_columns_by_name_and_keeps_repeats(ran: Trial) -> None:
    first = [{"user": row["user"], "n": row["n"]} for row in [*FIRST, *OTHER]]
    _same(ran, "united", first, [{"user": row["user"], "n": row["n"]} for row in SECOND])


def test_a_lambda_inside_a_function_reaches_into_arrays(ran: Trial) -> None:
    wanted = [
        [
            {"long": row["tags"] and [tag and tag + "!" for tag in row["tags"]] if row["tags"] is not None else None}
            for row in rows
        ]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "nested", *wanted)


def test_map_makes_one_record_of_each_with_a_python_function(ran: Trial) -> None:
    wanted = [
        [{"user": row["user"], "twice": None if row["n"] is None else 2 * row["n"]} for row in rows]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "mapped", *wanted)


def test_flat_map_makes_any_number_of_records_of_each(ran: Trial) -> None:
    wanted = [
        [{"letter": letter, "position": position} for row in rows for position, letter in enumerate(row["user"] or "")]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "flattened", *wanted)


def test_functions_right_after_each_other_are_called_in_turn(ran: Trial) -> None:
    wanted = [
        [
            {"letter": letter.upper(), "position": position}
            for row in rows
            for position, letter in enumerate(row["user"] or "")
            if letter.upper() != "B"
        ]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "chained", *wanted)


def test_map_batches_works_on_arrow_and_may_reorder_columns(ran: Trial) -> None:
    wanted = [
        [{"user": row["user"], "n_plus": None if row["n"] is None else row["n"] + 1} for row in rows]
        for rows in (FIRST, SECOND)
    ]
    _same(ran, "in-arrow", *wanted)


def test_map_batches_may_return_fewer_records(ran: Trial) -> None:
    _same(ran, "fewer", [{"user": "ann"}], [])


def test_an_expression_that_fails_on_a_record_is_the_jobs_error(trial: NewTrial) -> None:
    job = ls.Job("dividing")
    numbers = job.source("numbers", ls.journal("numbers", schema="n bigint"))
    numbers.select(inverse="100 / n").to(ls.files("out"))
    ran = trial(job)
    ran.start()
    ran.put("numbers", [{"n": 0}])
    error = ran.run_to_failure()
    assert (error.code, error.fact) == ("LS0215", 'step "select" divides by zero'), str(error)
    assert "the expression: 100 / n." in error.why
    assert is_job_error(error)
