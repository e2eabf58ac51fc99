"""A symptom that stays is traced to what is behind it; what did not help is not tried again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.decisions import Advise, Decision, Replace
from lockstep.control.policy.observations import Failure, Observation
from lockstep.control.policy.policy import Policy
from lockstep.keyed.loads import HotKey, StepLoad

US = 1_000_000
AUTO = PolicySettings(scaling="auto", tolerance="auto")
EVEN = {"r0": 0.5, "r1": 0.5}
SLOW = {"r0": 1.6, "r1": 0.5}


def play(policy: Policy, first: int, count: int, **seen: Any) -> list[Decision]:
    """So many windows of a minute, from the minute ``first`` on."""
    made: list[Decision] = []
    for minute in range(first, first + count):
        given = {"records": 60_000, "backlog": 0, "epochs": [], "hosts": ("h1", "h2", "h3"), **seen}
        if callable(given["backlog"]):
            given["backlog"] = given["backlog"](minute)
        observation = Observation(minute * 60 * US, 60.0, partitions=2, cores=8, replicas=2, **given)
        policy.observe(observation)
        made += policy.decide(observation.at_us)
    return made


def test_a_slow_replica_is_moved_away_once_it_has_been_slow_for_three_windows() -> None:
    policy = Policy(AUTO, RunSettings())
    assert play(policy, 1, 10, epoch_s=EVEN) == []
    assert play(policy, 11, 2, epoch_s=SLOW, host_of={"r0": "h1"}) == []
    (decision,) = play(policy, 13, 1, epoch_s=SLOW, host_of={"r0": "h1"})
    assert decision.operation == Replace("r0", avoid_host="h1")
    assert "1.60 s" in decision.why and "0.50 s" in decision.why


def test_a_replica_that_is_slow_wherever_it_lives_is_moved_once_a_day() -> None:
    policy = Policy(AUTO, RunSettings())
    made = play(policy, 1, 3 * 24 * 60, epoch_s=SLOW, host_of={"r0": "h2"}, replicas_by_host={"h2": 1})
    times_us = [one.at_us for one in made if isinstance(one.operation, Replace)]
    assert 2 <= len(times_us) <= 3
    assert all(b - a >= 24 * 3600 * US for a, b in pairwise(times_us))


def test_a_replica_alone_is_slow_compared_to_nobody() -> None:
    assert play(Policy(AUTO, RunSettings()), 1, 60, epoch_s={"r0": 9.0}) == []


def test_a_hot_key_is_named_and_more_partitions_are_not_asked_for() -> None:
    policy = Policy(AUTO, RunSettings())
    epochs = [(900.0, 0.95), (500.0, 0.55)] * 8
    load = StepLoad("totals", {17: 700, 3: 150, 4: 150}, (HotKey("acme", 17, 0.6), HotKey("b", 3, 0.1)))
    made = play(policy, 1, 30, epochs=epochs, step_loads=[load], backlog=lambda minute: minute * 90_000)
    assert [one.kind for one in made if one.kind in ("hot-key", "scale-up", "skew")] == ["hot-key"]
    assert "'acme' of step \"totals\" has 60 % of its records (bucket 17)" in made[0].why
    assert isinstance(made[0].operation, Advise)


def test_a_bucket_beyond_an_even_share_is_named_with_its_step_and_its_heaviest_key() -> None:
    keys = (HotKey("acme", 17, 0.2), HotKey("b", 17, 0.2))
    load = StepLoad("totals", {17: 600, **dict.fromkeys(range(10), 40)}, keys)
    (decision,) = play(Policy(AUTO, RunSettings()), 1, 20, step_loads=[load])
    assert decision.kind == "skew" and decision.inputs["bucket"] == 17
    assert decision.why == (
        'bucket 17 of step "totals" had 60 % of its records, 15.0 times the median of all buckets; '
        "its heaviest key 'acme' has 20 %"
    )


def test_few_keys_few_records_and_buckets_that_no_task_waits_for_are_no_symptom() -> None:
    even = StepLoad("totals", dict.fromkeys(range(8), 100), (HotKey("a", 0, 0.125),))
    twice = StepLoad("totals", {**dict.fromkeys(range(8), 100), 9: 300}, (HotKey("a", 9, 0.2),))
    small = StepLoad("totals", {1: 90, 2: 2, 3: 2}, (HotKey("a", 1, 0.9),))
    for load in (even, twice, small):
        assert play(Policy(AUTO, RunSettings()), 1, 20, step_loads=[load]) == []


def test_a_skewed_partition_is_named() -> None:
    loads = {"logins/0": 50_000, "logins/1": 5_000, "logins/2": 5_000}
    (decision,) = play(Policy(AUTO, RunSettings()), 1, 20, loads=loads)
    assert decision.kind == "skew" and "logins/0 had 50,000 records, the median is 5,000" in decision.why


def test_back_pressure_without_any_other_reason_is_a_job_that_is_too_small() -> None:
    epochs = [(900.0, 1.9), (500.0, 1.1)] * 8
    made = play(Policy(AUTO, RunSettings()), 1, 10, epochs=epochs, backlog=lambda minute: minute * 90_000)
    assert {"back-pressure", "scale-up"} <= {one.kind for one in made}


def test_replicas_are_moved_away_from_a_host_that_fails_again_and_again() -> None:
    policy = Policy(AUTO, RunSettings())
    on = {"host_of": {"r0": "h1", "r1": "h2"}, "replicas_by_host": {"h1": 1, "h2": 1}}
    made: list[Decision] = []
    for hour in range(5):
        failure = Failure(hour * 3600 * US + 1, "r0", "h1", "process")
        made += play(policy, hour * 60 + 1, 1, failures=[failure], **on)
        made += play(policy, hour * 60 + 2, 59, **on)
    first = next(one for one in made if one.kind == "flapping-host")
    assert first.operation == Replace("r0", avoid_host="h1")
    assert sum(one.kind == "flapping-host" for one in made) == 1
