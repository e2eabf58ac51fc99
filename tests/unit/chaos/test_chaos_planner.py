"""Schedules: whatever the seed, every sequence is legal and one replica stays whole."""

from __future__ import annotations

from itertools import combinations, pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.chaos.catalogue import all_actions
from lockstep.chaos.planner import PAUSE_S, Planned, away_s, hopeless, may_begin, plan
from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob

BROAD = {Part.JOB, Part.DISK, Part.STORE, Part.NETWORK}
ASKED = {Part.SHAPE, Part.SEALING}
WRITTEN = {Part.STORE, Part.DISK}
BY_NAME = {action.name: action for action in all_actions()}
SCHEDULES = st.tuples(
    st.integers(0, 2**32),
    st.floats(20, 400),
    st.integers(1, 5),
    st.lists(st.sampled_from(sorted(BY_NAME)), unique=True, min_size=1),
)


def planned(arguments: tuple[int, float, int, list[str]]) -> list[Planned]:
    seed, duration_s, replicas, names = arguments
    return plan([BY_NAME[name] for name in names], seed=seed, duration_s=duration_s, replicas=replicas)


def reach(one: Planned) -> tuple[float, float]:
    return one.at_s, one.at_s + away_s(BY_NAME[one.action])


@given(SCHEDULES)
@settings(deadline=None, max_examples=60)
def test_no_two_actions_take_the_same_at_the_same_time_and_one_replica_stays_whole(
    arguments: tuple[int, float, int, list[str]],
) -> None:
    replicas, schedule = arguments[2], planned(arguments)
    for first, second in combinations(schedule, 2):
        # A tenth of a second is lost where the plan is rounded.
        apart = reach(first)[1] <= second.at_s + 0.1
        mine, theirs = BY_NAME[first.action].takes, BY_NAME[second.action].takes
        if not apart:
            assert not (mine & BROAD and theirs - {Part.INPUT} - ASKED), (
                f"{first} reaches every replica beside {second}"
            )
            assert not (theirs & BROAD and mine - {Part.INPUT} - ASKED), (
                f"{second} reaches every replica beside {first}"
            )
            assert not (Part.INPUT in mine and Part.INPUT in theirs), f"{first} and {second} both change the input"
            assert not (mine & theirs & ASKED), f"{first} and {second} are two operations"
            assert not (mine & ASKED and theirs & WRITTEN), f"{first} cannot be asked for beside {second}"
            assert not (mine & WRITTEN and theirs & ASKED), f"{second} cannot be asked for beside {first}"
    for one in schedule:
        lost = [
            other
            for other in schedule
            if Part.REPLICA in BY_NAME[other.action].takes and reach(other)[0] <= one.at_s < reach(other)[1] - 0.1
        ]
        assert len(lost) < replicas or not lost, f"nobody is whole at {one.at_s}: {lost}"


@given(SCHEDULES)
@settings(deadline=None, max_examples=30)
def test_every_action_has_the_time_to_be_over_and_none_is_hopeless(
    arguments: tuple[int, float, int, list[str]],
) -> None:
    _, duration_s, replicas, _ = arguments
    schedule = planned(arguments)
    for one in schedule:
        assert hopeless(BY_NAME[one.action], replicas) is None
        assert reach(one)[1] <= duration_s + 0.1
    assert [one.number for one in schedule] == list(range(1, len(schedule) + 1))
    assert sorted(one.at_s for one in schedule) == [one.at_s for one in schedule]


def test_a_seed_fixes_the_schedule_and_another_seed_gives_another() -> None:
    def of(seed: int) -> list[Planned]:
        return plan(list(BY_NAME.values()), seed=seed, duration_s=600, replicas=3)

    assert of(7) == of(7)
    assert of(7) != of(8)


def test_ten_minutes_reach_most_of_the_vocabulary() -> None:
    possible = [action for action in BY_NAME.values() if action.impossible() is None]
    schedule = plan(possible, seed=1, duration_s=600, replicas=3)
    assert len({one.action for one in schedule}) >= min(len(possible), 15)


class Everything(Action):
    name = "everything"
    title = "take the whole job"
    takes = frozenset({Part.JOB})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        raise AssertionError("only planned, never begun")


class OneReplica(Everything):
    name = "one-replica"
    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})


def test_the_same_rule_says_what_may_begin_when_the_job_runs() -> None:
    replica, job = frozenset({Part.REPLICA}), frozenset({Part.JOB})
    assert may_begin(OneReplica(), [], replicas=2) is None
    assert may_begin(OneReplica(), [replica], replicas=2) == "no other replica would be whole"
    assert may_begin(OneReplica(), [replica], replicas=3) is None
    assert may_begin(OneReplica(), [job], replicas=3) == "the whole job is taken"
    assert may_begin(Everything(), [replica], replicas=3) == "one replica is taken"
    assert may_begin(Everything(), [frozenset({Part.INPUT})], replicas=1) is None


def test_a_job_with_one_replica_is_never_left_without() -> None:
    assert plan([OneReplica()], seed=1, duration_s=600, replicas=1) == []
    assert plan([Everything()], seed=1, duration_s=600, replicas=1)


def test_actions_keep_their_distance() -> None:
    schedule = plan(list(BY_NAME.values()), seed=3, duration_s=600, replicas=3)
    for before, after in pairwise(schedule):
        assert after.at_s - before.at_s >= PAUSE_S[0] - 0.1
