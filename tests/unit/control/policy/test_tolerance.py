"""Replicas follow failures: as many as it takes, at once upwards, late downwards, and never for the job's own fault."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from random import Random

import pytest

from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.decisions import Advise, Decision, Rescale
from lockstep.control.policy.observations import Failure, Observation, Recovery
from lockstep.control.policy.policy import Policy
from lockstep.control.policy.tolerance import (
    MODES,
    ONE,
    PROCESS,
    SPARED,
    THREE,
    TWO,
    Rate,
    Rates,
    Recoveries,
    affordable,
    gaps_per_month,
)

US = 1_000_000
HOSTS = ("h1", "h2", "h3")
AUTO = PolicySettings(scaling="off", tolerance="auto", max_gap_s=10.0, gaps_per_month=5.0)


@dataclass
class Job:
    """A job on three hosts, whose shape is what the policy last asked for."""

    policy: Policy
    replicas: int = 1
    spares: int = 0
    partitions: int = 1
    now_s: float = 0.0
    epoch: int = 0
    made: list[Decision] = field(default_factory=list)

    def minutes(
        self, count: int, *failures: Failure, gaps_s: tuple[float, ...] = (), moves: bool = True
    ) -> list[Decision]:
        """So many windows; the failures and pauses are in the first."""
        before = len(self.made)
        for number in range(count):
            self.now_s += 60
            self.epoch += 100 if moves else 0
            used = HOSTS[: self.replicas]
            first = number == 0
            seen = Observation(
                round(self.now_s * US),
                60.0,
                1000,
                0,
                [],
                self.partitions,
                cores=8,
                replicas=self.replicas,
                spares=self.spares,
                hosts=HOSTS,
                replicas_by_host=dict.fromkeys(used, 1),
                host_of={f"r{slot}": host for slot, host in enumerate(used)},
                failures=[one._replace(at_us=round(self.now_s * US)) for one in failures] if first else (),
                recoveries=[Recovery(one.replica, 40.0, warm=False) for one in failures] if first else (),
                gaps_s=gaps_s if first else (),
                published_epoch=self.epoch,
            )
            self.policy.observe(seen)
            for decision in self.policy.decide(seen.at_us):
                self.made.append(decision)
                if isinstance(decision.operation, Rescale):
                    self.replicas = decision.operation.replicas or self.replicas
                    self.spares = self.spares if decision.operation.spares is None else decision.operation.spares
        return self.made[before:]


def job(settings: PolicySettings = AUTO, **given: int) -> Job:
    return Job(Policy(settings, RunSettings()), **given)  # type: ignore[arg-type]


CRASH = Failure(0, "r0", "h1", "process")
LOST = Failure(0, "r0", "h1", "host")
FAULT = Failure(0, "r0", "h1", "process", epoch=10_000_000, error="LS0301 step raises ValueError")


def test_a_quiet_job_stays_as_it_is() -> None:
    assert job().minutes(24 * 60) == []


def test_a_failure_gets_a_spare_at_once_and_a_quiet_time_takes_it_away_again() -> None:
    one = job()
    one.minutes(60)
    (decision,) = one.minutes(1, CRASH, gaps_s=(40.0,))
    assert decision.operation == Rescale(replicas=1, spares=1)
    assert one.minutes(59) == []
    later = one.minutes(10 * 24 * 60)
    assert [each.operation for each in later] == [Rescale(replicas=1, spares=0)]
    assert later[0].at_us - decision.at_us > 3600 * US


def test_where_a_spare_is_too_slow_there_are_two_replicas() -> None:
    one = job(AUTO.model_copy(update={"max_gap_s": 1.0}))
    (decision,) = one.minutes(1, CRASH, gaps_s=(40.0,))
    assert decision.operation == Rescale(replicas=2)


def test_a_storm_of_failures_takes_three_and_each_lull_in_it_takes_none_away() -> None:
    one = job(AUTO.model_copy(update={"max_gap_s": 1.0}), replicas=2)
    for _ in range(6):
        one.minutes(9, CRASH, CRASH._replace(replica="r1", host="h2"))
    assert one.replicas == 3
    before = len(one.made)
    for _ in range(6):
        one.minutes(50)
        one.minutes(5, CRASH)
    assert not [each for each in one.made[before:] if each.kind == "fewer-replicas"]


def test_hosts_that_are_lost_together_make_two_replicas_too_few() -> None:
    rates, recoveries = Rates(), Recoveries({"cold": [40.0] * 8})
    rates.pass_time(24.0, dict.fromkeys(HOSTS, 1))
    before = gaps_per_month(TWO, HOSTS, rates, recoveries, 10.0)
    one = job(AUTO.model_copy(update={"gaps_per_month": 1.0, "replicas_min": 2}), replicas=2)
    one.minutes(1, LOST, LOST._replace(replica="r1", host="h2"), gaps_s=(40.0,))
    assert one.replicas == 3
    assert gaps_per_month(TWO, HOSTS, one.policy.tolerance.rates, recoveries, 10.0) > 10 * before
    assert gaps_per_month(THREE, HOSTS, one.policy.tolerance.rates, recoveries, 10.0) < 1


def test_the_replicas_of_one_lost_host_are_one_loss() -> None:
    one = job(replicas=2)
    one.minutes(1, LOST, LOST._replace(replica="r1"))
    assert one.policy.tolerance.rates.slow["host"].failures == pytest.approx(1, rel=0.01)
    assert one.policy.tolerance.rates.slow["two hosts at once"].failures == 0


def test_a_job_that_crashes_by_its_own_fault_gets_no_more_replicas_and_is_told_so() -> None:
    one = job(AUTO.model_copy(update={"gaps_per_month": 0.1, "replicas_min": 2}), replicas=2)
    made: list[Decision] = []
    for _ in range(100):
        made += one.minutes(1, FAULT, FAULT._replace(replica="r1", host="h2"), gaps_s=(50.0,), moves=False)
    assert one.replicas == 2 and one.spares == 0
    assert [each.kind for each in made] == ["own-fault"]
    assert isinstance(made[0].operation, Advise) and "LS0301" in made[0].why


def test_an_error_that_somebody_else_got_past_is_a_failure_like_any_other() -> None:
    one = job()
    early = FAULT._replace(epoch=150)
    assert one.minutes(1, early) == []
    (decision,) = one.minutes(1)
    assert decision.operation == Rescale(replicas=1, spares=1)


@pytest.mark.parametrize(
    ("limit", "says"),
    [({"replicas_max": 2}, "replicas_max does not allow"), ({"budget_cores": 4}, "budget_cores does not allow")],
)
def test_what_cannot_be_met_is_said_once(limit: dict[str, int], says: str) -> None:
    one = job(AUTO.model_copy(update={"max_gap_s": 1.0, "gaps_per_month": 0.05, **limit}), replicas=2, partitions=2)
    made = one.minutes(1, CRASH) + one.minutes(60)
    unmet = [each for each in made if each.kind == "unmet"]
    assert len(unmet) == 1 and says in unmet[0].why
    assert one.replicas == 2


def test_nothing_is_decided_if_nothing_is_asked() -> None:
    one = job(PolicySettings(tolerance="auto", scaling="off"), replicas=1)
    assert one.minutes(60, CRASH, CRASH, gaps_s=(100.0,)) == []


def test_what_was_learned_survives_the_coordinator() -> None:
    one = job(AUTO.model_copy(update={"max_gap_s": 1.0}))
    one.minutes(1, CRASH, FAULT, gaps_s=(40.0,))
    kept = json.loads(json.dumps(one.policy.to_json()))
    again = Policy.from_json(kept, AUTO, RunSettings())
    assert again.to_json() == one.policy.to_json()
    assert again.tolerance.suspects == one.policy.tolerance.suspects
    assert again.tolerance.rates.per_h(PROCESS, "h1") == one.policy.tolerance.rates.per_h(PROCESS, "h1")


@pytest.mark.parametrize(("mode", "per_h"), [(ONE, 0.02), (TWO, 0.2), (THREE, 1.0)])
def test_the_gaps_of_a_mode_are_those_that_chance_makes(mode: tuple[str, int, int], per_h: float) -> None:
    rates = Rates()
    for host in HOSTS:
        rates.fast[f"process@{host}"] = Rate(per_h * 1e9, 1e9)
    for cause in ("host", "two hosts at once", "three hosts at once"):
        rates.hour[cause], rates.day[cause], rates.slow[cause] = Rate(), Rate(0, 1e12), Rate(0, 1e12)
    rates._all_hosts(PROCESS)
    expected = gaps_per_month(MODES[MODES.index(mode)], HOSTS, rates, Recoveries({"cold": [60.0]}), 10.0)
    hours = 400_000.0
    seen = chance_gaps(mode[1], per_h, 60 / 3600, hours, Random(1)) / hours * 720
    assert expected == pytest.approx(seen, rel=0.15)


def chance_gaps(replicas: int, per_h: float, back_h: float, hours: float, draw: Random) -> int:
    """How often all are away at once, by throwing dice."""
    back = [0.0] * replicas
    now, gaps, dark_until = 0.0, 0, 0.0
    while now < hours:
        now += draw.expovariate(per_h * replicas)
        slot = draw.randrange(replicas)
        if back[slot] > now:
            continue
        back[slot] = now + back_h
        if min(back) > now:
            gaps += now >= dark_until
            dark_until = max(dark_until, min(back))
    return gaps


def test_a_spare_helps_where_its_start_is_quick_enough() -> None:
    rates, recoveries = Rates(), Recoveries({"cold": [40.0] * 8, "warm": [4.0] * 8})
    quick, slow = (gaps_per_month(SPARED, HOSTS, rates, recoveries, limit_s) for limit_s in (10.0, 1.0))
    assert quick < 0.2 * gaps_per_month(ONE, HOSTS, rates, recoveries, 10.0) < slow


def test_what_is_affordable_is_kept_in_most_months() -> None:
    for left in (1, 5, 30):
        mean = affordable(left)
        within = sum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(left + 1))
        assert 0.8 < within < 0.97
