"""Partitions follow the load: in one step, up soon, down late, and not again what did not help."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest

from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.decisions import Advise, Decision, Rescale
from lockstep.control.policy.observations import Observation
from lockstep.control.policy.policy import Policy

US = 1_000_000
AUTO = PolicySettings(scaling="auto", tolerance="off")
CAPACITY = 0.9 / 0.001 / 1.3
"""Of one partition: epochs of a second, 0.1 of it fixed, one every 1.3 seconds."""


@dataclass
class Job:
    """A job whose records cost a millisecond, divided by what more partitions really give."""

    policy: Policy
    partitions: int = 1
    cores: int = 16
    exponent: float = 1.0
    now_s: float = 0.0
    backlog: int = 0
    made: list[Decision] = field(default_factory=list)
    draw: Random = field(default_factory=lambda: Random(3))

    def minutes(self, count: int, rate_per_s: float, backlog: int = 0) -> list[Decision]:
        """So many windows at this load; what was decided is done at once."""
        before = len(self.made)
        for _ in range(count):
            self.now_s += 60
            per_s = 0.001 / min(self.partitions, self.cores) ** self.exponent
            sizes = [self.draw.uniform(50, 600) for _ in range(16)]
            epochs = [(size, 0.1 + per_s * size + self.draw.gauss(0, 0.005)) for size in sizes]
            records = round(rate_per_s * 60) - (backlog - self.backlog)
            self.backlog = backlog
            seen = Observation(
                round(self.now_s * US), 60.0, records, backlog, epochs, self.partitions, self.cores, replicas=1
            )
            self.policy.observe(seen)
            for decision in self.policy.decide(seen.at_us):
                self.made.append(decision)
                if isinstance(decision.operation, Rescale):
                    self.partitions = decision.operation.partitions or self.partitions
        return self.made[before:]


def job(settings: PolicySettings = AUTO, **given: float) -> Job:
    return Job(Policy(settings, RunSettings()), **given)  # type: ignore[arg-type]


def test_a_load_of_four_partitions_is_answered_in_one_step_after_two_windows() -> None:
    one = job()
    assert one.minutes(5, 0.6 * CAPACITY) == []
    assert one.minutes(1, 2.5 * CAPACITY) == []
    (decision,) = one.minutes(1, 2.5 * CAPACITY)
    # 2.5 / 0.65 = 3.8
    assert decision.operation == Rescale(partitions=4)
    assert decision.inputs["partitions"] == 1 and decision.inputs["rate_per_s"] == pytest.approx(
        2.5 * CAPACITY, rel=0.01
    )
    assert one.minutes(30, 2.5 * CAPACITY) == []
    assert one.policy.decisions[-1].outcome.startswith("capacity is 3.")


def test_one_window_of_need_is_none() -> None:
    one = job()
    one.minutes(5, 0.5 * CAPACITY)
    for _ in range(20):
        assert one.minutes(1, 3 * CAPACITY) == [] and one.minutes(1, 0.5 * CAPACITY) == []


def test_a_job_is_made_smaller_after_an_hour_and_by_the_hours_maximum() -> None:
    one = job(partitions=8)
    assert one.minutes(30, 1.9 * CAPACITY) == []
    assert one.minutes(29, 0.4 * CAPACITY) == []
    (decision,) = one.minutes(3, 0.4 * CAPACITY)
    # 1.9 / 0.65 = 2.9: what came half an hour ago counts.
    assert decision.operation == Rescale(partitions=3)
    later = one.minutes(61, 0.4 * CAPACITY)
    assert [each.operation for each in later] == [Rescale(partitions=1)]


def test_nothing_is_taken_away_while_records_wait() -> None:
    one = job(partitions=8)
    assert one.minutes(180, 0.4 * CAPACITY, backlog=1_000_000) == []
    assert one.minutes(59, 0.4 * CAPACITY) == []
    assert one.minutes(3, 0.4 * CAPACITY) != []


def test_what_waits_is_part_of_the_need() -> None:
    one = job(partitions=2)
    one.minutes(5, CAPACITY)
    one.minutes(1, 1.7 * CAPACITY, backlog=100_000)
    (decision,) = one.minutes(1, 1.7 * CAPACITY, backlog=600_000)
    # 600,000 records in ten minutes are 1,000 a second more: (1.7 x 692 + 1000) / 0.65 / 692 = 4.8
    assert decision.operation == Rescale(partitions=5)


def test_partitions_that_gave_nothing_are_not_asked_for_again_within_a_day() -> None:
    one = job(exponent=0.0)
    one.minutes(5, 0.6 * CAPACITY)
    assert [each.operation for each in one.minutes(10, 2 * CAPACITY)] == [Rescale(partitions=4)]
    assert "did not help" in one.policy.decisions[-1].outcome
    assert not [each for each in one.minutes(23 * 60, 2 * CAPACITY) if not each.is_advice]


def test_what_partitions_really_give_is_learned() -> None:
    one = job(exponent=0.5)
    one.minutes(5, 0.6 * CAPACITY)
    one.minutes(2, 1.2 * CAPACITY)
    assert one.partitions == 2
    one.minutes(400, 0.9 * CAPACITY)
    assert one.policy.scaler.exponent == pytest.approx(0.5, abs=0.15)
    one.partitions, one.made = 2, []
    one.minutes(7 * 60, 0.9 * CAPACITY)
    one.minutes(2, 1.3 * CAPACITY)
    # (1.3 / 0.65) squared is 4, where a job that scales in proportion would get along with 2.
    assert one.partitions >= 4


def test_the_second_day_of_a_rhythm_takes_few_changes() -> None:
    import math

    one = job(settings=AUTO.model_copy(update={"partitions_max": 16}))
    for minute in range(3 * 24 * 60):
        one.minutes(1, CAPACITY * (4.2 - 3.8 * math.cos(2 * math.pi * minute / 1440)))
    days = [int(each.at_us // (86_400 * US)) for each in one.made if not each.is_advice]
    assert days.count(0) <= 8
    assert 1 <= days.count(1) <= 5 and 1 <= days.count(2) <= 5


def test_limits_hold_and_are_said() -> None:
    one = job(settings=AUTO.model_copy(update={"budget_cores": 3}))
    one.minutes(5, 0.6 * CAPACITY)
    (decision,) = one.minutes(2, 3.5 * CAPACITY)
    assert decision.operation == Rescale(partitions=3)
    assert "6 would be right, but cores, budget_cores or partitions_max allow no more" in decision.why


def test_advice_changes_nothing_and_is_given_once_a_day() -> None:
    one = job(settings=PolicySettings(tolerance="off"))
    one.minutes(5, 0.6 * CAPACITY)
    made = [each for each in one.minutes(600, 2 * CAPACITY) if each.kind == "scale-up"]
    assert [each.operation for each in made] == [Advise("4 partitions instead of 1")]
    assert one.partitions == 1


def test_off_decides_nothing() -> None:
    one = job(settings=PolicySettings(scaling="off", tolerance="off"))
    assert one.minutes(60, 5 * CAPACITY) == []


def test_an_operation_that_is_never_done_is_not_asked_for_again() -> None:
    policy = Policy(AUTO, RunSettings())
    stuck = job()
    stuck.policy = policy
    made: list[Decision] = []
    for _ in range(6 * 60):
        made += stuck.minutes(1, 2 * CAPACITY)
        stuck.partitions = 1
    assert len([each for each in made if not each.is_advice]) == 1
    assert "not done after 30 minutes" in policy.decisions[0].outcome
