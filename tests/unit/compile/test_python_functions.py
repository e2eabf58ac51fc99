"""Python steps as a worker runs them, without Spark: what functions may return, what passes by, what is explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import pyarrow as pa
import pytest

from lockstep.compile.hidden_columns import arrow_hidden
from lockstep.compile.python_steps import BATCH_RECORDS_MAX, Kind, PythonStep, PythonSteps
from lockstep.errors import LockstepError, from_wire

MARKED = [("__mark", "boolean"), ("__mark_event_time", "timestamp")]
POSITION = [("__source", "string"), ("__partition", "string"), ("__offset", "bigint")]
SCHEMA = pa.schema([("user", pa.string()), ("n", pa.int64())])
Hidden = list[tuple[str, str]]


def _step(
    function: Any,
    kind: Kind = "map",
    hidden: Hidden | None = None,
    on_error: Literal["fail", "skip"] = "fail",
    dead_letters: Any = None,
) -> PythonStep:
    return PythonStep("enrich", kind, function, SCHEMA, arrow_hidden(hidden or []), on_error, dead_letters)


def _input(rows: list[dict[str, Any]], hidden: Hidden | None = None) -> pa.RecordBatch:
    given = pa.schema([("word", pa.string()), ("n", pa.int64())])
    return pa.RecordBatch.from_pylist(rows, pa.schema([*given, *arrow_hidden(hidden or [])]))


def _rows(step: PythonStep | PythonSteps, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    return [row for batch in step(batches) for row in batch.to_pylist()]


def _error(step: PythonStep | PythonSteps, *batches: pa.RecordBatch) -> LockstepError:
    with pytest.raises(RuntimeError) as caught:
        _rows(step, *batches)
    error = from_wire(str(caught.value))
    assert error is not None, "Spark passes on nothing but the text"
    return error


@dataclass
class _Login:
    user: str
    n: int


@pytest.mark.parametrize(
    "function",
    [
        lambda record: {"user": record.word, "n": record["n"]},
        lambda record: (record.word, record.n),
        lambda record: _Login(record.word, record.n),
        lambda record: {"n": record.n, "user": dict(record)["word"]},
    ],
    ids=["dict", "tuple", "dataclass", "another order"],
)
def test_a_record_may_come_back_in_any_plain_form(function: Any) -> None:
    assert _rows(_step(function), _input([{"word": "a", "n": 1}])) == [{"user": "a", "n": 1}]


def test_a_field_left_out_is_null() -> None:
    assert _rows(_step(lambda record: {"user": "a"}), _input([{"word": "a", "n": 1}])) == [{"user": "a", "n": None}]


def test_flat_map_takes_lists_and_generators_and_nothing() -> None:
    def words(record: Any) -> Iterator[dict[str, Any]]:
        for word in (record.word or "").split():
            yield {"user": word, "n": record.n}

    batch = _input([{"word": "a b", "n": 1}, {"word": None, "n": 2}, {"word": "c", "n": 3}])
    assert [row["user"] for row in _rows(_step(words, "flat_map"), batch)] == ["a", "b", "c"]


def test_marks_pass_by_functions_that_could_not_take_them() -> None:
    batch = _input([{"word": None, "n": None, "__mark": True, "__mark_event_time": 5}, {"word": "a", "n": 1}], MARKED)
    found = _rows(_step(lambda record: {"user": record.word.upper(), "n": record.n}, hidden=MARKED), batch)
    marks = [row for row in found if row["__mark"]]
    assert len(marks) == 1 and marks[0]["user"] is None and marks[0]["__mark_event_time"] is not None
    assert [row["user"] for row in found if not row["__mark"]] == ["A"]


def test_hidden_columns_follow_the_record_they_came_with() -> None:
    rows = [
        {"word": "a b", "n": 1, "__source": "s", "__partition": "0", "__offset": 7},
        {"word": "c", "n": 2, "__source": "s", "__partition": "1", "__offset": 9},
    ]
    step = _step(lambda r: [{"user": word} for word in r.word.split()], "flat_map", hidden=POSITION)
    found = [(row["user"], row["__partition"], row["__offset"]) for row in _rows(step, _input(rows, POSITION))]
    assert found == [("a", "0", 7), ("b", "0", 7), ("c", "1", 9)]


def test_functions_do_not_see_hidden_columns() -> None:
    rows = [{"word": "a", "n": 1, "__source": "s", "__partition": "0", "__offset": 7}]
    step = _step(lambda record: {"user": ",".join(record)}, hidden=POSITION)
    assert _rows(step, _input(rows, POSITION))[0]["user"] == "word,n"


@pytest.mark.parametrize(
    ("function", "code", "says"),
    [
        (lambda record: record.word.upper(), "LS0301", "AttributeError"),
        (lambda record: record.wrd, "LS0301", "there are: word, n"),
        (lambda record: None, "LS0302", "None"),
        (lambda record: ("a", 1, 2), "LS0302", "user, n"),
        (lambda record: {"usr": "a"}, "LS0302", "usr"),
        (lambda record: {"user": 5}, "LS0303", "5"),
        (lambda record: {"n": 2**70}, "LS0303", str(2**70)),
        (lambda record: setattr(record, "n", 5), "LS0301", "read-only"),
    ],
)
def test_what_goes_wrong_in_a_function_is_explained(function: Any, code: str, says: str) -> None:
    error = _error(_step(function), _input([{"word": None, "n": 17}]))
    assert error.code == code and says in str(error) and '"enrich"' in error.fact
    assert "17" in str(error), "the record has to be shown"


def test_skipped_records_are_handed_over_once_each_with_their_place() -> None:
    kept: list[tuple[str, str, dict[str, Any]]] = []
    rows = [
        {"word": word, "n": n, "__source": "s", "__partition": "0", "__offset": n}
        for n, word in enumerate(["a", None, "b", None])
    ]
    step = _step(
        lambda record: {"user": record.word.upper()},
        hidden=POSITION,
        on_error="skip",
        dead_letters=lambda key, step, facts: kept.append((key, step, facts)),
    )
    assert [row["user"] for row in _rows(step, _input(rows, POSITION))] == ["A", "B"]
    assert [(name, facts["source"], facts["partition"], facts["offset"]) for _, name, facts in kept] == [
        ("enrich", "s", "0", 1),
        ("enrich", "s", "0", 3),
    ]
    assert len({key for key, _, _ in kept}) == 2
    again: list[str] = []
    step = _step(step.function, "map", POSITION, "skip", lambda key, step, facts: again.append(key))
    _rows(step, _input(rows[:2], POSITION), _input(rows[2:], POSITION))
    assert again == [key for key, _, _ in kept], "the key may not depend on how records are cut into batches"


def test_map_batches_may_not_change_the_number_of_records_behind_event_time() -> None:
    hidden = [("__event_time", "timestamp")]
    step = _step(lambda batch: pa.table({"user": ["a"], "n": [1]}), "map_batches", hidden)
    error = _error(step, _input([{"word": "a", "n": 1}, {"word": "b", "n": 2}], hidden))
    assert error.code == "LS0304"


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_map_batches_may_not_change_the_number_of_records_if_their_order_is_asked_for(on_error: Any) -> None:
    kept: list[str] = []
    step = _step(_fewer, "map_batches", POSITION, on_error, lambda key, *_: kept.append(key))
    rows = [{"word": "a", "n": n, "__source": "s", "__partition": "0", "__offset": n} for n in range(3)]
    assert len(_rows(step, _input(rows, POSITION))) == 1, "nobody asks"
    error = _error(replace(step, origins_wanted=True), _input(rows, POSITION))
    assert (error.code, kept) == ("LS0305", []), "it is not the fault of one record"
    assert "1 rows for 3 records" in error.fact and "flat_map" in error.hint
    whole = _step(lambda batch: batch.rename_columns(["user", "n"]), "map_batches", POSITION)
    assert [row["__offset"] for row in _rows(replace(whole, origins_wanted=True), _input(rows, POSITION))] == [0, 1, 2]


def _fewer(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.rename_columns(["user", "n"]).slice(0, batch.num_rows // 3)


def test_a_row_without_a_position_that_is_skipped_is_kept_as_well() -> None:
    kept: dict[str, Any] = {}
    step = _step(lambda record: 1 / 0, "map", [], "skip", lambda key, _, facts: kept.update({key: facts}))
    assert _rows(step, _input([{"word": "a", "n": 1}, {"word": "b", "n": 2}])) == []
    assert [(facts["source"], facts["offset"]) for facts in kept.values()] == [("", 0), ("", 0)]


@pytest.mark.parametrize(
    ("function", "code"),
    [
        (lambda batch: [1], "LS0302"),
        (lambda batch: pa.table({"user": ["a"]}), "LS0303"),
        (lambda batch: pa.table({"user": ["a"], "n": ["b"]}), "LS0303"),
        (lambda batch: batch.column("wrong"), "LS0301"),
    ],
    ids=["no table", "a column is missing", "another type", "raises"],
)
def test_what_map_batches_gets_wrong_is_explained(function: Any, code: str) -> None:
    assert _error(_step(function, "map_batches"), _input([{"word": "a", "n": 1}])).code == code


def test_map_batches_may_return_an_empty_table() -> None:
    step = _step(
        lambda batch: pa.table({"user": pa.array([], pa.string()), "n": pa.array([], pa.int64())}), "map_batches"
    )
    assert _rows(step, _input([{"word": "a", "n": 1}])) == []


def test_in_a_chain_each_function_takes_what_the_one_before_made_and_marks_pass_by_all() -> None:
    first = _step(lambda record: {"user": record.word, "n": record.n + 1}, hidden=MARKED)
    second = _step(lambda record: [{"user": record.user, "n": each} for each in range(record.n)], "flat_map", MARKED)
    rows: list[dict[str, Any]] = [
        {"word": None, "n": None, "__mark": True, "__mark_event_time": 5},
        {"word": "a", "n": 1},
    ]
    found = _rows(PythonSteps((first, second)), _input(rows, MARKED))
    assert [row["__mark_event_time"] is not None for row in found if row["__mark"]] == [True]
    assert [(row["user"], row["n"]) for row in found if not row["__mark"]] == [("a", 0), ("a", 1)]


def test_an_error_in_a_chain_names_the_step_that_it_happened_in() -> None:
    fine = PythonStep("fine", "map", lambda record: (record.word, record.n), SCHEMA, arrow_hidden([]), "fail", None)
    wrong = PythonStep("wrong", "map", lambda record: record.missing, SCHEMA, arrow_hidden([]), "fail", None)
    after = PythonStep("after", "map", lambda record: record, SCHEMA, arrow_hidden([]), "fail", None)
    error = _error(PythonSteps((fine, wrong, after)), _input([{"word": "a", "n": 1}]))
    assert 'step "wrong"' in error.fact


def test_in_a_chain_no_function_gets_more_records_at_a_time_than_spark_would_give_it() -> None:
    sizes: list[int] = []

    def counted(batch: pa.RecordBatch) -> pa.RecordBatch:
        sizes.append(batch.num_rows)
        return batch

    many = _step(lambda record: [{"user": record.word, "n": n} for n in range(record.n)], "flat_map")
    rows = _rows(
        PythonSteps((many, _step(counted, "map_batches"))), _input([{"word": "a", "n": BATCH_RECORDS_MAX + 5}])
    )
    assert [row["n"] for row in rows] == list(range(BATCH_RECORDS_MAX + 5))
    assert sizes == [BATCH_RECORDS_MAX, 5]
