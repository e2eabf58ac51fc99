"""How event time is decided: it follows the records, and the clock only where there are none."""

from __future__ import annotations

from dataclasses import replace

from lockstep.runtime.decide.marks import TimeStep, next_active, next_marks
from lockstep.store.protocols import Entry

S = 1_000_000
STEP = TimeStep("at", ("events",), out_of_order_us=2 * S, idle_after_us=5 * S)


def _after(previous: Entry, epoch_time_us: int, *, observed_us: int | None = None, records: int = 0) -> Entry:
    """The epoch after ``previous``, as a sealer would propose it."""
    advanced = {"events": records > 0}
    return Entry(
        epoch=previous.epoch + 1,
        epoch_time_us=epoch_time_us,
        cut={"events": {"0": previous.cut["events"]["0"] + records}},
        marks=next_marks((STEP,), previous, {"at": observed_us}, epoch_time_us, advanced),
        records=records,
        active_us=next_active(previous, advanced, epoch_time_us),
    )


def _first(epoch_time_us: int, mark_us: int | None) -> Entry:
    return Entry(0, epoch_time_us, {"events": {"0": 10}}, {"at": mark_us}, 10, active_us={"events": epoch_time_us})


def test_the_mark_is_the_highest_event_time_that_was_seen() -> None:
    later = _after(_first(100 * S, 90 * S), 101 * S, observed_us=95 * S, records=5)
    assert later.marks == {"at": 95 * S}
    assert _after(later, 102 * S, observed_us=94 * S, records=5).marks == {"at": 95 * S}


def test_a_backlog_after_a_long_pause_of_the_job_is_not_late() -> None:
    before = _first(100 * S, 99 * S)
    resumed = _after(before, 160 * S, observed_us=100 * S, records=20_000)
    assert resumed.marks == {"at": 100 * S}
    # The next part of the backlog, whose event times go on where the pause began.
    assert _after(resumed, 161 * S, observed_us=120 * S, records=20_000).marks == {"at": 120 * S}


def test_a_quiet_source_stops_holding_time_back_after_idle_after() -> None:
    entry = _first(100 * S, 100 * S)
    marks = []
    for second in range(101, 109):
        entry = _after(entry, second * S, observed_us=100 * S if second == 101 else None)
        marks.append(entry.marks["at"])
    # Live data: at once as far as epoch time minus out_of_order, then at the pace of the clock.
    assert marks == [100 * S] * 4 + [103 * S, 104 * S, 105 * S, 106 * S]


def test_event_time_of_a_replayed_history_goes_on_at_the_pace_of_the_clock_when_idle() -> None:
    entry = _first(1_000_000 * S, 50 * S)
    begun_us = entry.epoch_time_us
    for second in range(1, 61):
        entry = _after(entry, begun_us + second * S)
    assert entry.marks == {"at": (50 + 60) * S}


def test_a_pause_of_the_job_is_no_silence_of_its_sources_even_if_the_first_epoch_after_it_is_empty() -> None:
    resumed = _after(_first(100 * S, 99 * S), 160 * S, observed_us=100 * S)
    assert resumed.marks == {"at": 100 * S}
    assert resumed.active_us == {"events": 160 * S}
    assert _after(resumed, 161 * S, records=10).marks == {"at": 100 * S}


def test_event_time_has_not_begun_before_the_first_record_however_long_nothing_comes() -> None:
    entry = Entry(0, 1_000_000 * S, {"events": {"0": 0}}, {"at": None}, active_us={"events": 1_000_000 * S})
    for second in range(1, 61):
        entry = _after(entry, (1_000_000 + second) * S)
    assert entry.marks == {"at": None}
    history = _after(entry, 1_000_061 * S, records=10)
    assert _after(history, 1_000_062 * S, observed_us=50 * S, records=10).marks == {"at": 50 * S}


def test_a_source_that_never_came_does_not_hold_back_one_that_did() -> None:
    steps = (STEP, TimeStep("other", ("others",), out_of_order_us=2 * S, idle_after_us=5 * S))
    silent = {"events": 100 * S, "others": 100 * S}
    previous = Entry(7, 110 * S, {"events": {"0": 5}, "others": {"0": 0}}, {"at": 50 * S, "other": None}, 5, None, None)
    previous = replace(previous, active_us=silent)
    marks = next_marks(steps, previous, {"at": 60 * S}, 111 * S, {"events": True, "others": False})
    assert marks == {"at": 60 * S, "other": 109 * S}
