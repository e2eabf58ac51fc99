"""One seed: a job's days on a virtual clock, decided about by production's policy, and checked after each decision."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lockstep.config import RunSettings
from lockstep.control.policy.cost import Cost
from lockstep.control.policy.decisions import Decision, Replace, Rescale
from lockstep.control.policy.observations import Observation
from lockstep.control.policy.policy import Policy
from lockstep.control.policy.tolerance import MODES, Mode, mode_of
from lockstep.runtime.decide.pacing import SLACK
from lockstep.sim.policy.fleet import US, Fleet, gaps_of
from lockstep.sim.policy.promises import Checks
from lockstep.sim.policy.scenario import DAY_S, HOUR_S, WINDOW_S, Scenario, Strike, strikes

RUN = RunSettings()
LOOK_S = 60.0
"""After a failure the policy looks again within a minute: production does so every minute anyway."""
BEHIND_S = 300.0
"""A job is behind if more waits than comes in this time."""


@dataclass(frozen=True)
class Result:
    """What came of a seed."""

    seed: int
    target: bool
    """Whether anything was asked for."""
    meetable: bool
    """Whether some fixed choice would have met it."""
    met: bool
    gaps: int
    replica_hours: float
    best_hours: float
    """Those of the cheapest fixed choice that meets the target."""
    behind_share: float
    """The share of time in which records waited although a larger job could have carried them."""
    partition_hours: float
    changes_a_day: tuple[int, int]
    """The most changes of partitions and of the mode within a day."""


@dataclass
class World:
    """A job under a policy."""

    seed: int
    scenario: Scenario
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        scenario = self.scenario
        self.policy = Policy(scenario.settings, RUN)
        self.allowed = [
            mode
            for mode in MODES
            if scenario.settings.replicas_min <= mode.replicas <= self._replicas_max(scenario.partitions)
        ]
        self.fleet = Fleet(scenario.hosts, self.allowed[0])
        self.partitions = scenario.partitions
        self.backlog = 0.0
        self.largest_backlog = 0.0
        """What would wait if the job had as many partitions as it may have, all the time."""
        self.draw = Random(f"load {self.seed}")  # noqa: S311
        self.checks = Checks(scenario)
        self.strikes: list[Strike] = strikes(scenario, self.seed)
        self.looked_s = 0.0
        self.replica_hours = self.partition_hours = 0.0
        self.windows = self.behind = 0
        self.gaps_told = 0
        self.epoch = 0
        self.poisoned_epoch = -1

    def _replicas_max(self, partitions: int) -> int:
        budget, most = self.scenario.settings.budget_cores, self.scenario.settings.replicas_max
        return max(self.scenario.settings.replicas_min, min(most, budget // partitions) if budget else most)

    def run(self) -> Result:
        """All days."""
        waiting = iter(self.strikes)
        coming = next(waiting, None)
        for window in range(1, round(self.scenario.days * DAY_S / WINDOW_S) + 1):
            end_s = window * WINDOW_S
            while coming is not None and coming.at_s < end_s:
                if self.fleet.strike(coming):
                    self.checks.note_strike(coming.at_s)
                    self.tell(coming.at_s, f"{coming.kind} {coming.subject}")
                look_s, coming = coming.at_s + LOOK_S, next(waiting, None)
                if look_s < end_s and (coming is None or coming.at_s > look_s):
                    self._look(look_s, records=0, epochs=())
            self._poison(end_s)
            self._whole_window(end_s)
        return self._result()

    def _poison(self, now_s: float) -> None:
        poison = self.scenario.poison_h
        if poison is None or not poison[0] * HOUR_S <= now_s < (poison[0] + poison[1]) * HOUR_S:
            self.poisoned_epoch = -1
            return
        if self.poisoned_epoch < 0:
            self.poisoned_epoch = self.epoch + 1
            self.tell(now_s, "the job crashes by its own fault")
        self.checks.note_own_fault(now_s)
        self.fleet.crash_by_itself(now_s, now_s + WINDOW_S, self.poisoned_epoch)

    def rate_per_s(self, now_s: float) -> float:
        """The load: with the day, with bursts, and by chance."""
        scenario, hours = self.scenario, now_s / HOUR_S
        rate = scenario.rate_per_s * (1 + scenario.swing * math.sin(2 * math.pi * (hours / 24 + scenario.phase)))
        for begin_h, length_h, times in scenario.bursts_h:
            if begin_h <= hours < begin_h + length_h:
                rate *= times
        return max(0.0, rate * self.draw.gauss(1.0, scenario.noise))

    def cost(self, partitions: int) -> Cost:
        """What an epoch really costs."""
        size: float = min(partitions, self.scenario.cores) ** self.scenario.exponent
        return Cost(self.scenario.fixed_s, self.scenario.per_record_s / size)

    def capacity_per_s(self, partitions: int) -> float:
        """What can really be carried."""
        return self.cost(partitions).capacity_per_s(RUN.epoch_target_s, RUN.epoch_interval_s)

    def _whole_window(self, now_s: float) -> None:
        rate, cost = self.rate_per_s(now_s), self.cost(self.partitions)
        carried = 0.0 if self.poisoned_epoch >= 0 else self.capacity_per_s(self.partitions) * WINDOW_S
        waiting = self.backlog + rate * WINDOW_S
        records = min(waiting, carried)
        self.backlog = waiting - records
        if self.poisoned_epoch < 0:
            most = self.capacity_per_s(self.checks.partitions_max(self.fleet.replicas)) * WINDOW_S
            self.largest_backlog = max(0.0, self.largest_backlog + rate * WINDOW_S - most)
            self.windows += 1
            self.behind += self.backlog > BEHIND_S * rate > self.largest_backlog
        else:
            self.largest_backlog = self.backlog
        self.checks.note_load(now_s, rate)
        # What comes while an epoch takes its time is the next one; they differ by chance.
        busy = min(0.9, SLACK * records / WINDOW_S * cost.per_record_s)
        usual = records / WINDOW_S * max(RUN.epoch_interval_s, SLACK * cost.fixed_s / (1 - busy))
        gauss = self.draw.gauss
        epochs = [
            (size, cost.epoch_s(size) * max(0.5, gauss(1.0, 0.05)))
            for size in (max(0.0, usual * gauss(1.0, 0.3)) for _ in range(6 if records else 0))
        ]
        self.epoch += len(epochs)
        self._look(now_s, records=round(records), epochs=epochs)

    def _look(self, now_s: float, *, records: int, epochs: Any) -> None:
        fleet, scenario = self.fleet, self.scenario
        hosts = [f"h{host}" for host in fleet.host_of]
        by_host = {host: hosts.count(host) for host in hosts}
        spare = [
            f"h{host}"
            for host in range(scenario.hosts)
            if f"h{host}" not in by_host and fleet.host_back_s[host] <= now_s
        ]
        failures, fleet.failures = fleet.failures, []
        back = [one for at_s, one in fleet.recovering if at_s <= now_s]
        fleet.recovering = [one for one in fleet.recovering if one[0] > now_s]
        ended = [end_s - begin_s for begin_s, end_s in fleet.gaps[self.gaps_told :] if end_s <= now_s]
        self.gaps_told += len(ended)
        seen = Observation(
            at_us=round(now_s * US),
            window_s=max(1.0, now_s - self.looked_s) if records or epochs or now_s % WINDOW_S == 0 else 1.0,
            records=records,
            backlog=round(self.backlog),
            epochs=epochs,
            partitions=self.partitions,
            cores=scenario.cores,
            replicas=fleet.replicas,
            spares=fleet.spares,
            hosts=[*by_host, *spare],
            replicas_by_host=by_host,
            host_of={f"r{slot}": host for slot, host in enumerate(hosts)},
            epoch_s=self._epoch_s(now_s) if scenario.slow_h is not None else {},
            failures=failures,
            recoveries=back,
            gaps_s=ended,
            published_epoch=self.epoch,
        )
        if seen.window_s > 1.0:
            self.looked_s = now_s
        self._charge(now_s)
        self.policy.observe(seen)
        for decision in self.policy.decide(seen.at_us):
            self._carry_out(decision, now_s)

    def _epoch_s(self, now_s: float) -> dict[str, float]:
        begin_h, length_h = self.scenario.slow_h or (0.0, 0.0)
        slow = begin_h <= now_s / HOUR_S < begin_h + length_h
        took: dict[str, float] = {}
        for slot, host in enumerate(self.fleet.host_of):
            struck = slow and (slot == 0 if self.scenario.slow_follows else host == 0)
            took[f"r{slot}"] = (1.5 if struck else 0.5) * self.draw.uniform(0.9, 1.1)
        return took

    def _charge(self, now_s: float) -> None:
        """What the job costs since it was last asked."""
        last_s = self.checks.charged_s
        hours, self.checks.charged_s = (now_s - last_s) / HOUR_S, now_s
        self.replica_hours += hours * Mode("", self.fleet.replicas, self.fleet.spares).cost
        self.partition_hours += hours * self.partitions

    def _carry_out(self, decision: Decision, now_s: float) -> None:
        self.tell(now_s, decision.sentence)
        wish, cold_s = decision.operation, self.scenario.cold_s
        if isinstance(wish, Rescale) and wish.partitions is not None:
            self.checks.partitions_change(self, wish.partitions, now_s)
            self.partitions = wish.partitions
        elif isinstance(wish, Rescale) and wish.replicas is not None:
            before = mode_of(self.fleet.replicas, self.fleet.spares)
            self.checks.mode_change(self, before, wish, now_s)
            self.fleet.resize(now_s, wish.replicas, wish.spares if wish.replicas == 1 else 0, cold_s)
        elif isinstance(wish, Replace):
            self.checks.replacement(self, wish, now_s)
            avoid = int(wish.avoid_host[1:]) if wish.avoid_host else None
            self.fleet.move(now_s, int(wish.replica[1:]), avoid, cold_s)
        self.checks.bounds(self, now_s)

    def tell(self, now_s: float, text: str) -> None:
        """One line of the story."""
        self.story.append(f"{now_s / HOUR_S:8.2f} h  {text}")

    def _result(self) -> Result:
        scenario, limit_s = self.scenario, self.scenario.settings.max_gap_s
        hours = scenario.days * 24
        gaps = sum(1 for begin_s, end_s in self.fleet.gaps if end_s - begin_s > limit_s)
        fixed = self.allowed[:1]
        if limit_s:
            fixed = [
                mode
                for mode in self.allowed
                if gaps_of(scenario.hosts, mode, self.strikes, limit_s) <= scenario.allowed_gaps
            ]
        best = min((mode.cost for mode in fixed), default=0.0) * hours
        met = not limit_s or gaps <= scenario.allowed_gaps
        return Result(
            self.seed,
            bool(limit_s),
            bool(fixed),
            met,
            gaps,
            self.replica_hours,
            best,
            self.behind / self.windows,
            self.partition_hours,
            self.checks.most_changes(),
        )
