"""Assigners, and what windows compute."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from lockstep.errors import FunctionError, LockstepError
from lockstep.keyed.accumulators import Totals
from lockstep.keyed.codec import time_us, utc_time
from lockstep.keyed.operator import Arrival
from lockstep.keyed.records import Record
from lockstep.keyed.reducing import Folder, Reducer
from lockstep.keyed.windows.assigners import Own, Regular, Sessions
from lockstep.keyed.windows.contents import Added, Contents, Folded, InOrder, Processed, Reduced
from lockstep.keyed.windows.custom import WindowAssigner
from lockstep.keyed.windows.operator import WindowOperator
from lockstep.keyed.windows.panes import Pane
from lockstep.keyed.windows.results import Results
from lockstep.plan.accumulated import accumulated
from lockstep.plan.expression import call
from lockstep.plan.triggers import AT_WATERMARK, Firing, Trigger
from tests.unit.keyed.turns_for_windows import COLUMNS, KEYS, Epoch, Event, Keys

SCHEMA = pa.schema([("key", pa.string()), ("value", pa.int64()), ("at", pa.int64())])
PANE = Pane(Record({"key": "a"}), None, None, None, utc_time(0), 0, "on_time", True)
DAY_US = 86_400_000_000


def _kept(contents: Contents, values: list[tuple[int, int]]) -> Any:
    kept = None
    for at_us, value in values:
        kept = contents.add(kept, Arrival(0, ("a", value, at_us), at_us))
    return kept


def test_days_are_those_of_utc_and_an_offset_moves_them_whatever_clocks_on_walls_do() -> None:
    """In Berlin the night of 2026-03-29 has no two o'clock; windows of time do not notice."""
    berlin = ZoneInfo("Europe/Berlin")
    before, after = datetime(2026, 3, 29, 1, 30, tzinfo=berlin), datetime(2026, 3, 29, 3, 30, tzinfo=berlin)
    assert time_us(after) - time_us(before) == 3_600_000_000
    (day,) = Regular(DAY_US, DAY_US, 0).windows(time_us(after), ())
    assert [utc_time(edge or 0).isoformat() for edge in day] == [
        "2026-03-29T00:00:00+00:00",
        "2026-03-30T00:00:00+00:00",
    ]
    (shifted,) = Regular(DAY_US, DAY_US, 23 * 3_600_000_000).windows(time_us(before), ())
    assert utc_time(shifted[0] or 0) == datetime(2026, 3, 28, 23, tzinfo=UTC)
    (old,) = Regular(DAY_US, DAY_US, 0).windows(time_us(datetime(1969, 12, 31, 12, tzinfo=UTC)), ())
    assert old == (-DAY_US, 0), "before 1970 too a window begins at or before its records"


def test_an_assigner_of_the_users_own_is_asked_with_the_record_and_its_answer_is_checked() -> None:
    class Weeks(WindowAssigner):
        def assign(self, record: Any) -> Any:
            if record.value == 0:
                return "soon"
            if record.value == 1:
                return [(record.at, record.at)]
            if record.value == 2:
                raise KeyError("shelf")
            if record.value == 3:
                return []
            start = record.at.replace(hour=0, minute=0) - timedelta(days=record.at.weekday())
            return [(start, start + timedelta(days=7)), (start, start + timedelta(days=7))]

    own = Own("weeks", Weeks(), COLUMNS)
    at = datetime(2026, 4, 2, 15, 30, tzinfo=UTC)
    assert own.windows(None, ("a", 9, at)) == [
        (time_us(datetime(2026, 3, 30, tzinfo=UTC)), time_us(datetime(2026, 4, 6, tzinfo=UTC)))
    ]
    assert own.windows(None, ("a", 3, at)) == []
    for value, code in ((0, "LS0360"), (1, "LS0360"), (2, "LS0301")):
        with pytest.raises(FunctionError) as caught:
            own.windows(None, ("a", value, at))
        assert caught.value.code == code
        assert "weeks" in str(caught.value)


def test_a_record_without_a_time_is_in_no_window_of_time() -> None:
    assert Regular(10, 10, 0).windows(None, ()) == []
    assert Sessions(10).windows(None, ()) == []


def test_what_depends_on_order_follows_the_times_of_the_records_not_their_coming() -> None:
    names = ("first", "last", "collect_list")
    columns = [accumulated(call(name, "value"), name, "") for name in names]
    columns.append(accumulated(call("max_by", "value", "key"), "best", ""))
    contents = InOrder(Added(Totals(columns, SCHEMA)))
    numbers = list(range(12))
    random.Random(5).shuffle(numbers)
    kept = _kept(contents, [(number * 10, number) for number in numbers])
    assert list(contents.results(kept, PANE)) == [(0, 11, list(range(12)), 0)]
    assert next(iter(contents.results(contents.merge(kept, _kept(contents, [(5, 99)])), PANE)))[2][1] == 99


def test_records_of_one_time_are_in_the_order_of_their_positions_whatever_epoch_they_came_in() -> None:
    names = ("first", "last", "collect_list")
    columns = [accumulated(call(name, "value"), name, "") for name in names]
    columns += [accumulated(call(name, "value", "key"), name, "") for name in ("max_by", "min_by")]
    contents = InOrder(Added(Totals(columns, SCHEMA)))
    places = [("s", "0", 0), ("s", "0", 1), ("s", "0", 1, 0), ("s", "0", 1, 1), ("s", "1", 0), ("t", "0", 0)]
    for seed in range(5):
        numbers = list(range(len(places)))
        random.Random(seed).shuffle(numbers)
        kept = None
        for number in numbers:
            kept = contents.add(kept, Arrival(0, ("a", number, 7), 7, places[number]))
        assert list(contents.results(kept, PANE)) == [(0, 5, list(range(6)), 0, 0)]


def test_reduce_makes_one_record_of_many_and_merges_two() -> None:
    schema = pa.schema([("value", pa.int64()), ("at", pa.int64())])
    reducer = Reducer("best", lambda a, b: a if a.value >= b.value else b, SCHEMA)
    contents = Reduced(reducer, SCHEMA, ("value", "at"))
    assert contents.schema == schema
    kept = contents.merge(_kept(contents, [(1, 5), (2, 9)]), _kept(contents, [(3, 7)]))
    assert list(contents.results(kept, PANE)) == [(9, 2)]


def test_a_fold_begins_anew_in_every_window_and_its_results_do_not_change_afterwards() -> None:
    def grow(seen: dict[str, Any], record: Any) -> dict[str, Any]:
        seen["values"].append(record.value)
        return seen

    schema = pa.schema([("values", pa.list_(pa.int64()))])
    fold = Folded(Folder("grow", grow, {"values": []}, schema, COLUMNS), schema)
    operator = WindowOperator(
        Regular(10, 10, 0), Trigger(early=Firing(count=1)), 0, "event", fold, Results(KEYS, schema)
    )
    keys = Keys(operator)
    sent = keys.epoch(Epoch(None, 1, (Event("a", 1, 7), Event("a", 12, 8), Event("a", 3, 9))))
    assert [values[3] for _, values, _ in sent] == [[7], [7, 9], [8]]
    in_order = InOrder(fold)
    kept = in_order.merge(_kept(in_order, [(5, 1), (1, 2)]), _kept(in_order, [(3, 3)]))
    assert list(in_order.results(kept, PANE)) == [([2, 3, 1],)]


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (None, []),
        ({"n": 1}, [(1,)]),
        ((2,), [(2,)]),
        ([{"n": 1}, {"n": None}], [(1,), (None,)]),
        (iter([{"n": 4}]), [(4,)]),
        ([], []),
    ],
)
def test_a_window_function_returns_no_record_one_or_many(made: Any, wanted: list[tuple[Any, ...]]) -> None:
    contents = Processed("sizes", lambda records, window: made, pa.schema([("n", pa.int64())]), COLUMNS)
    assert list(contents.results(_kept(contents, [(1, 1)]), PANE)) == wanted


@pytest.mark.parametrize(
    ("made", "code"), [(5, "LS0302"), ({"m": 1}, "LS0302"), ({"n": "x"}, "LS0303"), (ZeroDivisionError("x"), "LS0301")]
)
def test_a_window_function_that_returns_something_else_or_raises_is_explained(made: Any, code: str) -> None:
    def function(records: list[Any], window: Any) -> Any:
        if isinstance(made, Exception):
            raise made
        return made

    contents = Processed("sizes", function, pa.schema([("n", pa.int64())]), COLUMNS)
    with pytest.raises(LockstepError) as caught:
        contents.results(_kept(contents, [(1, 1)]), PANE)
    assert caught.value.code == code
    assert "sizes" in str(caught.value)


def test_a_window_function_is_told_about_its_window() -> None:
    told: list[Pane] = []

    def tell(records: list[Any], window: Pane) -> None:
        told.append(window)

    contents = Processed("tell", tell, pa.schema([("n", pa.int64())]), COLUMNS)
    trigger = Trigger(early=Firing(count=2))
    results = Results(KEYS, contents.schema)
    keys = Keys(WindowOperator(Regular(10, 10, 0), trigger, 5, "event", contents, results))
    keys.epoch(Epoch(None, 100, (Event("a", 1, 0), Event("a", 2, 1))))
    keys.epoch(Epoch(12, 200, (Event("a", 3, 2),)))
    keys.epoch(Epoch(15, 300, ()))
    assert [(one.timing, one.pane, one.is_final) for one in told] == [
        ("early", 0, False),
        ("on_time", 1, False),
        ("late", 2, False),
    ]
    assert (told[1].start, told[1].end, told[1].watermark) == (utc_time(0), utc_time(10), utc_time(12))
    assert (told[0].key.key, told[0].watermark, told[1].epoch_time) == ("a", None, utc_time(200))
    once = WindowOperator(Regular(10, 10, 0), AT_WATERMARK, 0, "event", contents, results)
    keys = Keys(once)
    keys.epoch(Epoch(None, 1, (Event(None, 1, 0),)))
    keys.epoch(Epoch(10, 2, ()))
    assert (told[-1].is_final, told[-1].key.key) == (True, None)
