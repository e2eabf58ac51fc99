"""From a window step to its operator: schemas, clocks and what is computed."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.api.windowed import WindowedStream
from lockstep.compile.keyed import operator_of
from lockstep.compile.registry import FAMILIES
from lockstep.errors import PlanError
from lockstep.keyed.codec import utc_time
from lockstep.plan.windowed import WindowStep
from tests.unit.keyed.turns_for_windows import Epoch, Event, Keys

assert FAMILIES, "they register their operators when they are imported"

COLUMNS = pa.schema([("c0", pa.string()), ("c1", pa.int64()), ("c2", pa.timestamp("us", "UTC"))])
TIME = pa.timestamp("us", "UTC")


def events() -> Stream:
    return ls.Job("operators").source("events", ls.journal("events", schema="key string, value bigint, at timestamp"))


def keys_of(stream: Stream, *computed: pa.DataType) -> Keys:
    step = stream._step
    assert isinstance(step, WindowStep)
    fields = [*COLUMNS, *(pa.field(f"x{number}", kind) for number, kind in enumerate(computed))]
    return Keys(operator_of(step, (pa.schema(fields),)))


def by_key(window: Any) -> WindowedStream:
    return events().event_time("at").key_by("key").window(window)


def _grow(total: int, record: Any) -> int:
    return int(total + record.value)


def test_windows_of_processing_time_end_by_the_time_of_epochs_and_need_no_event_time() -> None:
    keyed = events().key_by("key").window(ls.tumbling("3 us", time="processing"))
    keys = keys_of(keyed.fold(0, _grow, schema="total bigint"))
    sent = [
        keys.epoch(Epoch(None, 3, (Event("a", None, 1),))),
        keys.epoch(Epoch(None, 5, (Event("a", None, 2), Event(None, None, 7)))),
        keys.epoch(Epoch(None, 7, (Event("a", None, 4),))),
        keys.epoch(Epoch(None, 20, ())),
    ]
    window = (utc_time(3), utc_time(6))
    assert [[values for _, values, _ in part] for part in sent] == [
        [],
        [],
        [("a", *window, 3), (None, *window, 7)],
        [("a", utc_time(6), utc_time(9), 4)],
    ]


def test_results_have_keys_window_and_values_and_late_records_all_their_columns() -> None:
    aside = events().event_time("at").key_by("key", day="date(at)").window(ls.session("5 us")).late_to_side()
    operator = keys_of(
        aside.agg(n=F.count("*"), top=F.max("value"), far=F.sum(F.col("value") * 0.5)), pa.float64(), pa.date32()
    )
    assert [output.names for output in operator.operator.outputs] == [
        ["key", "day", "window_start", "window_end", "n", "top", "far"],
        ["key", "value", "at"],
    ]
    assert operator.operator.outputs[0].types == [
        pa.string(),
        pa.date32(),
        TIME,
        TIME,
        pa.int64(),
        pa.int64(),
        pa.float64(),
    ]


def test_updates_of_sessions_come_in_every_epoch_that_changes_them() -> None:
    keys = keys_of(by_key(ls.session("5 us")).updates().count())
    sent = [
        keys.epoch(Epoch(None, 1, (Event("a", 1, 0), Event("a", 9, 0)))),
        keys.epoch(Epoch(3, 2, (Event("a", 5, 0),))),
        keys.epoch(Epoch(50, 3, ())),
    ]
    assert [[(values[1], values[2], values[3]) for _, values, _ in part] for part in sent] == [
        [(utc_time(1), utc_time(6), 1), (utc_time(9), utc_time(14), 1)],
        [(utc_time(1), utc_time(14), 3)],
        [],
    ]
    assert (keys.cells, keys.timers) == ({}, {})


def test_an_initial_value_that_does_not_fit_is_refused_before_anything_runs() -> None:
    with pytest.raises(PlanError) as caught:
        keys_of(by_key(ls.tumbling("3 us")).fold("much", _grow, schema="total bigint"))
    assert caught.value.code == "LS0172"


def test_a_global_window_goes_on_for_ever_and_a_purged_one_begins_again() -> None:
    for purge, wanted in ((False, [2, 4, 6]), (True, [2, 2, 2])):
        windowed = events().key_by("key").window(ls.global_()).trigger(ls.on_count(2), purge=purge)
        keys = keys_of(windowed.count())
        sent = keys.epoch(Epoch(None, 1, tuple(Event("a", None, number) for number in range(7))))
        assert [values for _, values, _ in sent] == [("a", None, None, size) for size in wanted]
