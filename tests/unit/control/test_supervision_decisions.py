"""What the supervisor does about replicas that ended, hang, fall behind, or cannot be helped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockstep.config import RunSettings
from lockstep.control.supervise.slots import Slot, note_lag
from lockstep.control.supervise.supervision import GiveUp, Kill, Seen, Start, StopJob, backoff_s, decide, may_leave
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_DRAINED, EXIT_FAILED, EXIT_JOB_ERROR
from tests.unit.runtime.progress_for_runtime import NOW_US, S, said

SETTINGS = RunSettings(
    hang_timeout_s=60, start_timeout_s=180, restarts_max=3, restart_backoff_s=0.5, restart_window_s=600
)
HEAD = 100


def _running(name: str, epoch: int = HEAD, *, state: str = "running", moved_ago_s: float = 0.0) -> Seen:
    progress = said(name, epoch, state=state, moved_ago_s=moved_ago_s)
    return Seen(name, alive=True, started_us=NOW_US - 3600 * S, progress=progress)


def _ended(name: str, exit_code: int | None, *, ago_s: float = 60, restarts: int = 0) -> Seen:
    return Seen(
        name,
        alive=False,
        started_us=NOW_US - 120 * S,
        progress=None,
        exit_code=exit_code,
        ended_us=NOW_US - round(ago_s * S),
        restarts_us=tuple(NOW_US - (100 + n) * S for n in range(restarts)),
        failed_after=40 if exit_code == EXIT_JOB_ERROR else None,
    )


def _decided(*replicas: Seen) -> list[object]:
    return list(decide(replicas, HEAD, NOW_US, SETTINGS))


def test_all_replicas_are_started_in_the_beginning() -> None:
    assert _decided(_ended("r0", None), _ended("r1", None)) == [Start("r0", "auto"), Start("r1", "auto")]


def test_beside_one_that_publishes_one_replica_boots_at_a_time() -> None:
    dead = [_ended("r1", -9), _ended("r2", -9)]
    assert _decided(_running("r0"), *dead) == [Start("r1", "auto")]
    for state in ("starting", "seeding"):
        booting = replace(_running("r1", -1, state=state), started_us=NOW_US)
        assert _decided(_running("r0"), booting, dead[1]) == [], state
    assert booting.progress is not None
    in_first_epoch = replace(booting, progress=replace(booting.progress, working_on=7))
    assert _decided(_running("r0"), in_first_epoch, dead[1]) == [Start("r2", "auto")], "it may hang there"
    assert _decided(_running("r0"), _running("r1", HEAD - 9, state="catching-up"), dead[1]) == [Start("r2", "auto")]
    assert _decided(*dead) == [Start("r1", "auto"), Start("r2", "auto")], "there is nobody to be disturbed"


def test_healthy_replicas_are_left_alone() -> None:
    assert _decided(_running("r0"), _running("r1", HEAD - 3)) == []


def test_a_replica_that_died_is_started_again_at_once_from_its_own_checkpoint() -> None:
    assert _decided(_ended("r0", -9, ago_s=0), _running("r1")) == [Start("r0", "auto")]


@pytest.mark.parametrize("code", [EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_JOB_ERROR])
def test_a_replica_whose_state_is_in_doubt_is_seeded_from_a_healthy_peer(code: int) -> None:
    assert _decided(_ended("r0", code), _running("r1")) == [Start("r0", "peer")]


def test_without_a_healthy_peer_only_an_outvoted_replica_waits_for_one() -> None:
    behind = _running("r1", HEAD - SETTINGS.lead_epochs_max - 1)
    assert _decided(_ended("r0", EXIT_CHECKPOINT), behind)[:1] == [Start("r0", "auto")]
    assert _decided(_ended("r0", EXIT_DIVERGED), behind) == []


def test_two_replicas_that_take_long_over_the_same_epoch_are_not_both_killed() -> None:
    slow = [_running(name, HEAD - 1, moved_ago_s=90) for name in ("r0", "r1")]
    assert _decided(*slow) == []
    assert [type(action) for action in _decided(slow[0], _running("r1", HEAD))] == [Kill]


def test_restarts_in_a_row_wait_longer_and_longer() -> None:
    assert _decided(_ended("r0", EXIT_FAILED, ago_s=0.4, restarts=1), _running("r1")) == []
    assert _decided(_ended("r0", EXIT_FAILED, ago_s=0.6, restarts=1), _running("r1")) == [Start("r0", "auto")]
    assert _decided(_ended("r0", EXIT_FAILED, ago_s=0.6, restarts=2), _running("r1")) == []
    assert _decided(_ended("r0", EXIT_FAILED, ago_s=1.1, restarts=2), _running("r1")) == [Start("r0", "peer")]
    assert backoff_s(50, SETTINGS) == SETTINGS.restart_backoff_max_s


def test_a_replica_that_never_holds_is_given_up_while_others_run() -> None:
    decided = _decided(_ended("r0", EXIT_FAILED, restarts=3), _running("r1"))
    assert len(decided) == 1 and isinstance(decided[0], GiveUp) and decided[0].replica == "r0"
    assert _decided(replace(_ended("r0", EXIT_FAILED, restarts=3), given_up=True), _running("r1")) == []


def test_restarts_long_ago_do_not_count() -> None:
    old = replace(_ended("r0", EXIT_FAILED), restarts_us=tuple(NOW_US - 601 * S for _ in range(9)))
    assert _decided(old, _running("r1")) == [Start("r0", "auto")]


def test_the_job_stops_when_the_last_replica_cannot_be_held() -> None:
    given_up = replace(_ended("r0", EXIT_FAILED, restarts=3), given_up=True)
    decided = _decided(given_up, _ended("r1", EXIT_FAILED, restarts=3))
    assert len(decided) == 1 and isinstance(decided[0], StopJob)


def test_an_error_of_the_job_stops_it_once_no_other_replica_runs() -> None:
    assert isinstance(_decided(_ended("r0", EXIT_JOB_ERROR))[0], StopJob)
    assert any(isinstance(one, StopJob) for one in _decided(_ended("r0", EXIT_JOB_ERROR), _ended("r1", EXIT_JOB_ERROR)))


def test_an_error_that_another_replica_met_at_the_same_epoch_is_the_jobs_own() -> None:
    met_it_too = replace(_running("r1", 40), failed_after=40)
    assert isinstance(_decided(_ended("r0", EXIT_JOB_ERROR), met_it_too)[0], StopJob)
    met_another = replace(_running("r1"), failed_after=12)
    assert _decided(_ended("r0", EXIT_JOB_ERROR), met_another) == [Start("r0", "peer")]


def test_a_replica_that_someone_else_told_to_end_is_started_again() -> None:
    assert _decided(_ended("r0", EXIT_DRAINED), _running("r1")) == [Start("r0", "auto")]


def test_a_replica_that_hangs_with_work_to_do_is_killed() -> None:
    decided = _decided(_running("r0", HEAD - 1, moved_ago_s=61), _running("r1"))
    assert len(decided) == 1 and isinstance(decided[0], Kill) and decided[0].replica == "r0"


def test_a_replica_with_nothing_to_do_does_not_hang() -> None:
    assert _decided(_running("r0", HEAD, moved_ago_s=3600), _running("r1")) == []


def test_the_last_replica_is_given_more_patience_but_not_for_ever() -> None:
    assert _decided(_running("r0", HEAD - 1, moved_ago_s=61)) == []
    assert isinstance(_decided(_running("r0", HEAD - 1, moved_ago_s=301))[0], Kill)


def test_a_replica_waiting_for_its_verdict_is_not_killed() -> None:
    assert _decided(_running("r0", HEAD - 1, state="diverged", moved_ago_s=3600), _running("r1")) == []


def test_a_replica_that_does_not_start_is_replaced() -> None:
    starting = Seen("r0", alive=True, started_us=NOW_US - 179 * S, progress=None)
    assert _decided(starting, _running("r1")) == []
    late = replace(starting, started_us=NOW_US - 181 * S)
    assert isinstance(_decided(late, _running("r1"))[0], Kill)
    seeding = replace(late, progress=said("r0", -1, state="seeding"))
    assert isinstance(_decided(seeding, _running("r1"))[0], Kill)


def test_a_first_epoch_under_way_is_judged_by_what_moves_in_it_and_not_by_the_time_since_the_start() -> None:
    started_us = NOW_US - 3600 * S
    moving = said("r0", -1, state="starting", moved_ago_s=3590, working_on=0, active_ago_s=2)
    assert _decided(Seen("r0", True, started_us, moving)) == []
    still = replace(moving, active_us=NOW_US - 301 * S)
    assert isinstance(_decided(Seen("r0", True, started_us, still))[0], Kill)


def test_an_epoch_that_is_too_large_for_this_machine_is_given_the_time_it_needs() -> None:
    slow = said("r0", HEAD - 1, moved_ago_s=3600, working_on=HEAD, active_ago_s=20)
    started_us = NOW_US - 7200 * S
    assert _decided(Seen("r0", True, started_us, slow), _running("r1")) == [], "a task was done, 20 s ago"
    one_task = replace(slow, active_us=NOW_US - 3600 * S)
    assert _decided(Seen("r0", True, started_us, one_task, busy_us=NOW_US - 5 * S)) == [], "it uses the processor"
    assert isinstance(_decided(Seen("r0", True, started_us, one_task, busy_us=NOW_US - 400 * S))[0], Kill)


def test_what_a_replica_falls_behind_within_one_large_epoch_is_not_held_against_it() -> None:
    """Another one passed it quickly, and goes on sealing: hundreds of epochs wait for this one when it is done."""
    slot, began_us = Slot("r1"), NOW_US - 600 * S
    inside = said("r1", 7, working_on=8, active_ago_s=2, moved_ago_s=600)
    for after_s in range(0, 600, 5):
        head, now_us = 100 + after_s * 10, began_us + after_s * S
        word = replace(inside, active_us=now_us)
        note_lag(slot, word, head, now_us, lead=50)
        one = Seen("r1", True, began_us, word, behind_since_us=slot.behind_since_us, behind_then_epochs=93)
        assert decide([one, _running("r0", head)], head, now_us, SETTINGS) == []
    note_lag(slot, replace(inside, epoch=8, moved_us=NOW_US), head=6100, now=NOW_US, lead=50)
    assert (slot.behind_since_us, slot.behind_then_epochs) == (NOW_US, 6092), "from here on it has to gain"


def test_a_replica_that_turns_in_circles_is_replaced_once_another_has_passed() -> None:
    said_by_r0 = said("r0", HEAD - 1, moved_ago_s=299, working_on=HEAD, active_ago_s=299)
    circling = Seen("r0", True, NOW_US - 3600 * S, said_by_r0, busy_us=NOW_US)
    assert _decided(circling, _running("r1")) == []
    longer = replace(circling, progress=replace(said_by_r0, moved_us=NOW_US - 301 * S, active_us=NOW_US - 301 * S))
    assert isinstance(_decided(longer, _running("r1"))[0], Kill)
    assert _decided(longer) == [], "nobody knows whether it is not the epoch that takes so long"


def test_a_start_that_uses_the_processor_is_given_more_time_but_not_for_ever() -> None:
    slow = Seen("r0", True, NOW_US - 600 * S, None, busy_us=NOW_US - 5 * S)
    assert _decided(slow, _running("r1")) == []
    assert isinstance(_decided(replace(slow, started_us=NOW_US - 901 * S), _running("r1"))[0], Kill)
    assert isinstance(_decided(replace(slow, busy_us=0), _running("r1"))[0], Kill)


def test_a_replica_just_started_is_not_blamed_for_the_progress_of_its_predecessor() -> None:
    fresh = replace(_running("r0", HEAD - 5, moved_ago_s=3600), started_us=NOW_US - 10 * S)
    assert _decided(fresh, _running("r1")) == []


def test_a_replica_that_is_behind_and_does_not_gain_is_replaced_by_a_seeded_one() -> None:
    behind = replace(_running("r0", HEAD - 70), behind_since_us=NOW_US - 61 * S, behind_then_epochs=60)
    assert isinstance(_decided(behind, _running("r1"))[0], Kill)
    gaining = replace(behind, behind_then_epochs=90)
    assert _decided(gaining, _running("r1")) == []
    assert _decided(behind) == [], "without a peer there is nothing better"


def test_a_replica_makes_room_for_a_change_while_enough_others_compute() -> None:
    one, other, away = _running("r0"), _running("r1"), _ended("r2", -9)
    assert may_leave(one, [other, _running("r2")], 2, HEAD, SETTINGS)
    assert not may_leave(one, [other, away], 2, HEAD, SETTINGS), "r2 comes back first"
    assert may_leave(one, [other, replace(away, given_up=True)], 2, HEAD, SETTINGS), "nobody waits for it any more"
    assert may_leave(_running("r0", -1, state="starting"), [other, away], 2, HEAD, SETTINGS), "it takes nothing away"
