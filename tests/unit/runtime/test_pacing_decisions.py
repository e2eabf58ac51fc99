"""When to seal and how much: the interval, the heartbeat, the lead, and who is waited for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.config import RunSettings
from lockstep.runtime.decide.pacing import (
    COLD_EPOCHS,
    GROWTH,
    EpochCost,
    Seal,
    View,
    Wait,
    decide,
    first_record_limit,
    in_set,
    next_record_limit,
    seal_interval_s,
    typical_s,
)
from lockstep.store.protocols import Progress, Published
from tests.unit.runtime.progress_for_runtime import NOW_US, S, said

SETTINGS = RunSettings(epoch_interval_s=0.1, heartbeat_interval_s=1.0, lead_epochs_max=10, lag_timeout_s=3.0)


def _view(epoch: int, since_s: float | None, *progress: Progress, has_data: bool = True) -> View:
    sealed = None if since_s is None else NOW_US - round(since_s * S)
    return View(epoch, NOW_US, sealed, has_data, progress)


def test_the_first_epoch_is_sealed_at_once_even_without_data() -> None:
    assert decide(_view(0, None, has_data=False), SETTINGS) == Seal()


def test_data_waits_for_the_interval_and_no_longer() -> None:
    assert decide(_view(5, 0.04), SETTINGS) == Wait(0.06, "interval")
    assert decide(_view(5, 0.1), SETTINGS) == Seal()


def test_without_data_the_heartbeat_seals() -> None:
    waiting = decide(_view(5, 0.5, has_data=False), SETTINGS)
    assert isinstance(waiting, Wait) and waiting.reason == "data" and 0 < waiting.seconds <= 0.5
    assert decide(_view(5, 1.0, has_data=False), SETTINGS) == Seal()


def test_with_a_clock_set_back_intervals_and_heartbeats_count_from_when_the_replica_was_ready() -> None:
    view = _view(5, -3600)
    assert decide(replace(view, waited_s=0.04), SETTINGS) == Wait(0.06, "interval")
    assert decide(replace(view, waited_s=0.1), SETTINGS) == Seal()
    quiet = replace(view, has_data=False)
    assert isinstance(decide(replace(quiet, waited_s=0.9), SETTINGS), Wait)
    assert decide(replace(quiet, waited_s=1.0), SETTINGS) == Seal()


def test_the_interval_follows_the_slowest_live_replica() -> None:
    slow, quick = said("r0", 4, epoch_s=0.5), said("r1", 4, epoch_s=0.1)
    assert seal_interval_s(_view(5, 1, slow, quick), SETTINGS) == pytest.approx(0.65)
    assert seal_interval_s(_view(5, 1, slow), SETTINGS) == 0.1, "alone it may go as fast as it can"
    silent = said("r0", 4, epoch_s=0.5, said_ago_s=6)
    assert seal_interval_s(_view(5, 1, silent, quick), SETTINGS) == 0.1


def test_a_replica_a_few_epochs_behind_is_hardly_felt_and_gains_all_the_same() -> None:
    behind, ahead = said("r0", 1, epoch_s=0.3, state="catching-up"), said("r1", 8, epoch_s=0.2)
    beside_it = seal_interval_s(_view(9, 1, behind, ahead), SETTINGS)
    calm = seal_interval_s(_view(9, 1, said("r0", 8, epoch_s=0.25), said("r1", 8, epoch_s=0.25)), SETTINGS)
    assert behind.epoch_s < beside_it <= calm * 1.3
    first = said("r0", 1, state="starting")
    assert seal_interval_s(_view(9, 1, first, ahead), SETTINGS) == pytest.approx(beside_it, rel=0.2), "from its seed on"
    assert seal_interval_s(_view(9, 1, said("r0", -1, state="starting"), ahead), SETTINGS) == 0.1, "not while it boots"


def test_a_replica_that_is_far_behind_moves_three_times_as_fast_as_the_head() -> None:
    behind = said("r0", 1, epoch_s=0.4, state="catching-up")
    assert seal_interval_s(_view(99, 1, behind, said("r1", 98)), SETTINGS) == pytest.approx(1.2)


def test_one_very_slow_replica_cannot_stretch_the_interval_beyond_the_lag_timeout() -> None:
    hanging = said("r0", 4, epoch_s=100)
    assert seal_interval_s(_view(5, 1, hanging, said("r1", 4)), SETTINGS) <= SETTINGS.lag_timeout_s


def test_nobody_seals_beyond_the_lead_over_the_slowest_in_the_set() -> None:
    slow = said("r0", 4, moved_ago_s=0.5)
    assert decide(_view(14, 1, slow, said("r1", 13)), SETTINGS) == Seal()
    waiting = decide(_view(15, 1, slow, said("r1", 14)), SETTINGS)
    assert isinstance(waiting, Wait) and waiting.reason == "lead"


@pytest.mark.parametrize(
    "absent",
    [
        said("r0", 4, moved_ago_s=3.5),
        said("r0", 4, state="catching-up"),
        said("r0", 4, state="diverged"),
        said("r0", 4, state="failed"),
        said("r0", 4, said_ago_s=10),
    ],
    ids=["hanging", "catching up", "diverged", "failed", "silent"],
)
def test_a_replica_out_of_the_set_holds_nobody_back(absent: Progress) -> None:
    assert decide(_view(100, 5, absent, said("r1", 99)), SETTINGS) == Seal()


def test_a_replica_with_nothing_to_do_stays_in_the_set() -> None:
    view = _view(5, 60, said("r0", 4, moved_ago_s=60))
    assert in_set(view.progress[0], view, SETTINGS)


@given(
    limit=st.integers(100, 2_000_000),
    records=st.integers(0, 2_000_000),
    epoch_s=st.floats(0.001, 1000),
    fixed_s=st.floats(0, 10),
    waited_s=st.floats(0, 1000),
    before_s=st.floats(0, 1000),
    cold=st.booleans(),
)
def test_the_record_limit_stays_within_its_bounds_and_grows_in_steps(
    limit: int, records: int, epoch_s: float, fixed_s: float, waited_s: float, before_s: float, *, cold: bool
) -> None:
    settings = RunSettings(records_per_epoch_min=100, records_per_epoch_max=2_000_000)
    more = {"waited_s": waited_s, "before_s": before_s}
    new = next_record_limit(limit, records, epoch_s, settings, fixed_s, cold=cold, **more)
    assert 100 <= new <= 2_000_000
    assert new <= GROWTH * max(limit, records)
    assert not cold or new >= limit


def test_a_slow_epoch_lowers_the_record_limit_although_it_was_not_full() -> None:
    assert next_record_limit(10_000, 1_000, 2.0, RunSettings(epoch_target_s=1.0)) == 500


@given(usual=st.lists(st.floats(0.1, 0.3), min_size=4, max_size=7), pauses=st.lists(st.floats(1, 100), max_size=3))
def test_a_few_epochs_with_a_long_pause_do_not_change_what_an_epoch_typically_takes(
    usual: list[float], pauses: list[float]
) -> None:
    assert 0.1 <= typical_s([*pauses, *usual]) <= 0.3


def test_a_machine_that_is_overrun_gets_few_large_epochs_and_no_crawl() -> None:
    """Each epoch takes 1.5 s and 0.1 ms a record; 2,000 records a second arrive."""
    limit, waiting, cost = 20_000, 0.0, EpochCost()
    for _ in range(200):
        records = int(min(limit, waiting))
        took_s = 1.5 + records * 0.0001
        waiting += 2000 * took_s - records
        cost = cost.after(records, took_s)
        limit = next_record_limit(limit, records, took_s, RunSettings(epoch_target_s=1.0), cost.fixed_s)
    assert waiting < 3 * 2000 * took_s, "no backlog grows"


def test_slow_records_still_make_epochs_smaller() -> None:
    """Each record takes 1 ms: the target of a second holds about a thousand."""
    limit, cost = 20_000, EpochCost()
    for _ in range(50):
        took_s = 0.1 + limit * 0.001
        cost = cost.after(limit, took_s)
        limit = next_record_limit(limit, limit, took_s, RunSettings(epoch_target_s=1.0), cost.fixed_s)
    assert 500 < limit < 1500


def _worked_off(settings: RunSettings, backlog: int = 4_000_000) -> list[tuple[int, float]]:
    """Records and seconds of the epochs in which a backlog ends: 0.4 s each and 5 us a record, cold ones 2 s more."""
    limit, cost, now_s, done = first_record_limit(settings), EpochCost(), 0.0, list[tuple[int, float]]()
    while backlog:
        records, cold = min(limit, backlog), len(done) < COLD_EPOCHS
        took_s = 0.4 + records * 5e-6 + (2 if cold else 0)
        cost = cost if cold else cost.after(records, took_s)
        if done:
            more = {"waited_s": now_s, "before_s": done[-1][1]}
            limit = next_record_limit(limit, records, took_s, settings, cost.fixed_s, cold=cold, **more)
        backlog, now_s = backlog - records, now_s + took_s
        done.append((records, took_s))
    return done


def test_a_backlog_is_worked_off_in_large_epochs_and_none_of_them_outlasts_the_lag_timeout() -> None:
    settings = RunSettings()
    done = _worked_off(settings)
    assert max(took_s for _, took_s in done) < settings.lag_timeout_s
    warm_s = sum(took_s for _, took_s in done[COLD_EPOCHS:])
    patient_s = sum(took_s for _, took_s in _worked_off(RunSettings(epoch_target_behind_s=0))[COLD_EPOCHS:])
    assert warm_s < 0.8 * patient_s, "whoever is behind is not held to epochs of a second"
    cold = [records for records, _ in done[: COLD_EPOCHS + 1]]
    assert cold == [1000, 1000, 2000, 4000, 8000, 16_000], "being cold is not having slow records"
    large = next(number for number, (records, _) in enumerate(done) if records > 150_000)
    assert large <= COLD_EPOCHS + 3, "and few steps lead to the large ones"


def test_a_first_epoch_is_small_and_slow_records_are_found_before_it_is_large() -> None:
    """A join of one key: each pair takes 1 us. 20,000 records at once took 100 s, and were begun again and again."""
    settings = RunSettings()
    limit, cost, before_s, took = first_record_limit(settings), EpochCost(), 0.0, list[float]()
    for number in range(20):
        took_s = 0.3 + (limit / 2) ** 2 * 1e-6
        took.append(took_s)
        cold = number < COLD_EPOCHS
        cost = cost if cold else cost.after(limit, took_s)
        if before_s:
            limit = next_record_limit(limit, limit, took_s, settings, cost.fixed_s, cold=cold, before_s=before_s)
        before_s = took_s
    assert took[0] < 1 and max(took) < 10
    assert all(took_s < settings.lag_timeout_s for took_s in took[-5:])


def test_after_a_restart_the_epochs_before_say_how_large_one_may_be() -> None:
    def published(records: int, epoch_s: float) -> Published:
        return Published(1, "r0", 0, records, None, None, epoch_s)

    live = [published(10, 0.1), published(200, 0.2)]
    assert first_record_limit(RunSettings(), live) == 1000, "small ones say nothing"
    slow = [published(500_000, 9.0), published(40_000, 1.5)]
    assert first_record_limit(RunSettings(), [*live, *slow]) == 10_000
    assert first_record_limit(RunSettings(records_per_epoch_max=300), slow) == 300


def test_a_record_that_waited_long_is_no_backlog_if_its_epoch_was_not_full() -> None:
    settings = RunSettings(epoch_target_s=1.0, epoch_target_behind_s=2.0)
    assert next_record_limit(10_000, 5_000, 1.5, settings, waited_s=3600) == int(5_000 / 1.5)
