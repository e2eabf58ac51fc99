"""Python functions that raise: named and stopped at, or skipped into the dead-letter journal, each record once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lockstep as ls
from lockstep import F
from lockstep.plan.schema import parse_schema
from lockstep.store.dead_letters import SCHEMA, journal_name
from lockstep.store.journal import open_journal
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial

Row = dict[str, Any]


def _inverse(record: Any) -> Row:
    return {"user": record.user, "inverse": 100 // record.n}


def _inverses(record: Any) -> Iterator[Row]:
    yield {"user": record.user, "inverse": 1}
    yield {"user": record.user, "inverse": 100 // record.n}


def _batch(batch: Any) -> Any:
    raise ValueError("no batches today")


def _line_of(code: str) -> int:
    return 1 + Path(__file__).read_text(encoding="utf-8").splitlines().index(code)


def _job(**functions: Any) -> ls.Job:
    """A job with these functions by the method that takes each; its sink has the method's name, too."""
    job = ls.Job("python-errors")
    numbers = job.source("numbers", ls.journal("numbers", schema="user string, n bigint", partitions=2))
    for method, (function, on_error) in functions.items():
        stream = getattr(numbers, method)(
            function, schema="user string, inverse bigint", name=f"invert_{method}", on_error=on_error
        )
        stream.to(ls.files(method))
    return job


def _letters(ran: Trial) -> list[Row]:
    journal = open_journal(ran.place.home, journal_name(ran.place.job), parse_schema(SCHEMA))
    rows = [row for batch in journal.read(0, 0, journal.ends()[0]) for row in batch.to_pylist()]
    journal.close()
    return rows


def test_a_function_that_raises_stops_the_job_with_step_line_and_record(trial: NewTrial) -> None:
    ran = trial(_job(map=(_inverse, "fail")))
    ran.start()
    ran.put("numbers", [{"user": "ann", "n": 4}, {"user": "bob", "n": 0}])
    error = ran.run_to_failure()
    assert error.code == "LS0301"
    assert '"invert_map"' in error.fact and "ZeroDivisionError" in error.fact
    line = _line_of('    return {"user": record.user, "inverse": 100 // record.n}')
    assert f"test_python_errors.py:{line} in _inverse" in error.why
    assert "'user': 'bob', 'n': 0" in error.why
    assert 'on_error="skip"' in error.hint
    assert ran.rows("map") == [], "nothing of the epoch may be published"


def test_a_function_of_batches_that_raises_stops_the_job_too(trial: NewTrial) -> None:
    # What else a function can get wrong is in the unit tests of Python steps.
    ran = trial(_job(map_batches=(_batch, "fail")))
    ran.start()
    ran.put("numbers", [{"user": "ann", "n": 4}])
    error = ran.run_to_failure()
    assert (error.code, '"invert_map_batches"' in error.fact) == ("LS0301", True), str(error)
    assert "no batches today" in str(error)


def test_skipped_records_are_in_the_dead_letter_journal_once_although_both_replicas_met_them(trial: NewTrial) -> None:
    ran = trial(_job(map=(_inverse, "skip"), flat_map=(_inverses, "skip")))
    ran.start("r0", tasks=1)
    ran.start("r1", tasks=2)
    ran.put("numbers", [{"user": "ann", "n": 4}, {"user": "bob", "n": 0}, {"user": "bob", "n": 0}], 0)
    ran.put("numbers", [{"user": "bob", "n": 0}, {"user": "eve", "n": None}], 1)
    ran.run(1)
    ran.epoch(numbers=[{"user": "joe", "n": 50}])
    letters = sorted((row["step"], row["source"], row["partition"], row["offset"]) for row in _letters(ran))
    assert letters == [
        (step, "numbers", partition, offset)
        for step in ("invert_flat_map", "invert_map")
        for partition, offset in (("0", 1), ("0", 2), ("1", 0), ("1", 1))
    ]
    errors = [row["error"] for row in _letters(ran)]
    assert all("ZeroDivisionError" in error or "TypeError" in error for error in errors)
    assert [len(ran.rows("map", epoch)) for epoch in (0, 1)] == [1, 1]
    assert [len(ran.rows("flat_map", epoch)) for epoch in (0, 1)] == [2, 2]
    assert ran.store.digest_mismatches() == []


def test_marks_pass_by_python_functions_on_their_way_to_event_time(trial: NewTrial) -> None:
    from datetime import UTC, datetime, timedelta

    day = datetime(2026, 3, 1, tzinfo=UTC)
    job = ls.Job("marks-pass")
    events = job.source("events", ls.journal("events", schema="second bigint"))
    timed = events.map(_timed, schema="at timestamp").map_batches(_unchanged, schema="at timestamp")
    timed.event_time("at").window(ls.tumbling("10 seconds")).agg(n=F.count("*")).to(ls.files("out"))
    ran = trial(job)
    replica = ran.start()
    ran.epoch(events=[{"second": 3}, {"second": 15}])
    ran.stop()
    # Only the mark tells the new incarnation how far time had come: this epoch has no record.
    replica = ran.start()
    ran.epoch()
    ran.epoch()
    assert replica.watermark_ms == round((day + timedelta(seconds=15)).timestamp() * 1000)
    assert ran.rows() == [{"window_start": day, "window_end": day + timedelta(seconds=10), "n": 1}]


def _timed(record: Any) -> Row:
    from datetime import UTC, datetime, timedelta

    return {"at": datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=record.second)}


def _unchanged(batch: Any) -> Any:
    return batch
