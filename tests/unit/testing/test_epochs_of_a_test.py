"""What a test writes as input becomes epochs with times and crashes, or is refused with the reason."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lockstep.errors import RunError
from lockstep.testing import CRASH, HEARTBEAT, at, wait
from lockstep.testing.inputs import instant_us, planned

START = instant_us("2026-01-01")
S = 1_000_000
A: list[dict[str, Any]] = [{"n": 1}]


def test_lists_of_several_sources_stand_side_by_side_and_the_shorter_one_ends_earlier() -> None:
    epochs = planned({"a": [A, HEARTBEAT, A], "b": [HEARTBEAT, [*A, *A]]}, START)
    assert [{name: len(records) for name, records in epoch.records.items()} for epoch in epochs] == [
        {"a": 1, "b": 0},
        {"a": 0, "b": 2},
        {"a": 1},
    ]
    assert [epoch.at_us - START for epoch in epochs] == [0, S, 2 * S]


def test_the_clock_is_moved_to_a_time_or_by_a_duration_and_goes_on_from_there() -> None:
    timeline = [wait("3 seconds"), A, A, at("2026-01-01T00:01:00Z"), A, wait(timedelta(minutes=1)), HEARTBEAT, A]
    epochs = planned({"a": timeline}, START, every_us=2 * S)
    assert [(epoch.at_us - START) // S for epoch in epochs] == [3, 5, 60, 120, 122]


def test_a_crash_belongs_to_the_epoch_before_it() -> None:
    epochs = planned({"a": [A, A, CRASH, A], "b": [A, CRASH]}, START)
    assert [epoch.crash for epoch in epochs] == [True, True, False]


def test_two_sources_may_say_the_same_time() -> None:
    epochs = planned({"a": [A, wait("5 seconds"), A], "b": [A, wait("5 seconds"), A]}, START)
    assert epochs[1].at_us - START == 5 * S


@pytest.mark.parametrize(
    ("timelines", "said"),
    [
        ({"a": [CRASH, A]}, 'the input of "a" begins with CRASH'),
        ({"a": [A, wait("1 second")]}, "ends with wait"),
        ({"a": [A, at("2025-12-31"), A]}, "epoch 1 is put at 2025-12-31T00:00:00Z, which is not after epoch 0"),
        ({"a": [A, wait("1 s"), A], "b": [A, wait("2 s"), A]}, "epoch 1 is put at two times"),
        ({"a": [{"n": 1}]}, "{'n': 1} for epoch 0"),
        ({"a": [A, "HEARTBEAT"]}, "'HEARTBEAT' for epoch 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(timelines: dict[str, Any], said: str) -> None:
    with pytest.raises(RunError) as caught:
        planned(timelines, START)
    assert caught.value.code == "LS0640"
    assert said in caught.value.fact


def test_an_instant_without_a_zone_is_utc() -> None:
    assert instant_us("2026-01-01T02:00:00+02:00") == instant_us("2026-01-01") == instant_us(datetime(2026, 1, 1))
    assert instant_us(datetime(2026, 1, 1, tzinfo=UTC)) == 1_767_225_600 * S
