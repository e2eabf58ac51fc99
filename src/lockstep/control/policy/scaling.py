"""How many partitions a job needs: one step to the right size, up soon, down late.

The load and what an epoch costs say how many partitions carry it at the share of capacity that is aimed at (DS2: one
step, not six). How capacity grows with partitions is assumed at first, then learned from what rescaling really gave.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.clock import US_PER_S
from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.attempts import Attempts
from lockstep.control.policy.cost import Cost, CostFit
from lockstep.control.policy.observations import Observation

HOUR_US, DAY_US = 3600 * US_PER_S, 24 * 3600 * US_PER_S
FITS_MAX = 8
"""Numbers of partitions whose cost is remembered."""
DRAIN_S = 600.0
"""A job that is made larger should also get rid of what waits, within ten minutes."""
BACKLOG_S = 5.0
"""What arrives within this time is no backlog: it is the epoch under way and the next."""
AHEAD_HOURS = 6
"""The size has to do for so long, as far as the day before tells: so that a daily rhythm costs few changes."""
RISING = 1.5
"""A second step up within :data:`AHEAD_HOURS` says that the load is still rising: it is taken for so many times as
much, or a rising day would cost a step for every partition."""
SMALLER = 0.8
"""Taking away less than a fifth is not worth a change."""
HELPED = 1.1
"""More partitions have helped if the capacity grew by a tenth at least,"""
HELPED_SHARE = 0.3
"""and by this share of what was expected."""
SETTLE_WINDOWS = 3
"""Windows after a change until it is judged."""
JUDGE_WINDOWS_MAX = 40
"""If it is still not known by then what it gave, nothing is learned from it."""
EXACT = 0.05
"""A cost per record that is known to a twentieth is known well enough for anything."""
CLOSE_SHARE = 0.2
"""What a change gave is known if both costs together are known to this share of what was expected of it."""
INEXACT_WINDOWS_MAX = 6
"""For so many windows a job in need waits for that; a larger size is better than none."""
MORE_PARTITIONS = "more partitions"
"""The name under which it is remembered that more of them did not help."""


@dataclass(frozen=True)
class Size:
    """What the scaler wants: so many partitions, for this reason."""

    partitions: int
    why: str
    inputs: Mapping[str, Any]
    wanted: int | None = None
    """How many it would take if the limits were not there; None if no number is enough."""


@dataclass
class Trial:
    """A change whose gain is not known yet."""

    before: int
    after: int
    cost_before: Cost
    windows: int = 0


@dataclass
class Scaler:
    """Watches the load; :meth:`observe` once a window, :meth:`wanted` says what to do."""

    settings: PolicySettings
    run: RunSettings
    fits: dict[int, CostFit] = field(default_factory=dict)
    exponent: float = 1.0
    """Capacity grows with this power of min(partitions, cores): 1 at first, then as it was seen."""
    need_windows: int = 0
    need_per_s: float = 0.0
    """The most that was needed in those windows."""
    quiet_since_us: int = 0
    rates: deque[tuple[int, float]] = field(default_factory=deque)
    """(when, records a second) of the windows of the last hour."""
    day: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Hour of the day -> (which hour since 1970 it was, the most in it)."""
    ups_us: list[int] = field(default_factory=list)
    downs_us: list[int] = field(default_factory=list)
    left_us: dict[int, int] = field(default_factory=dict)
    """When the job last had so many partitions."""
    trial: Trial | None = None
    seen: Observation | None = None
    cost: Cost | None = None
    """With the partitions that there are; None while it is not known."""
    rate_per_s: float = 0.0
    backlog_before: int = 0

    def observe(self, seen: Observation) -> None:
        """Take one window into account."""
        if self.seen is not None and self.seen.partitions != seen.partitions:
            self._reshaped(self.seen, seen)
        elif self.seen is None:
            self.quiet_since_us = seen.at_us
        fit = self.fits.get(seen.partitions)
        if fit is None:
            fit = self._new_fit(seen.partitions)
        for records, seconds in seen.epochs:
            fit.add(records, seconds)
        grown = seen.backlog - self.backlog_before
        # What came, not what was done: a job that gets rid of a backlog does as much as it can.
        self.rate_per_s = max(0, seen.records + grown) / seen.window_s
        self.rates.append((seen.at_us, self.rate_per_s))
        while self.rates[0][0] <= seen.at_us - self.settings.quiet_s * US_PER_S:
            self.rates.popleft()
        self._note_day(seen.at_us)
        self.cost = fit.cost()
        self._note_need(seen, self.cost, grew=grown > 0)
        self.seen, self.backlog_before = seen, seen.backlog

    def _new_fit(self, partitions: int) -> CostFit:
        fit = self.fits[partitions] = CostFit()
        while len(self.fits) > FITS_MAX:
            self.left_us.pop(oldest := next(iter(self.fits)), None)
            del self.fits[oldest]
        return fit

    def _reshaped(self, before: Observation, now: Observation) -> None:
        """The job has another number of partitions than at the last look, whoever asked for it."""
        known = self.fits[before.partitions].cost()
        # What was known of this size is old: the job's data may have changed since.
        self.fits.pop(now.partitions, None)
        self.trial = Trial(before.partitions, now.partitions, known) if known is not None else None
        self.left_us[before.partitions] = now.at_us
        times = self.ups_us if now.partitions > before.partitions else self.downs_us
        times.append(now.at_us)
        del times[:-16]
        self.need_windows, self.quiet_since_us = 0, now.at_us

    def _note_day(self, at_us: int) -> None:
        hour = at_us // HOUR_US
        kept = self.day.get(hour % 24)
        if kept is None or kept[0] != hour or kept[1] < self.rate_per_s:
            self.day[hour % 24] = (hour, self.rate_per_s)

    def _note_need(self, seen: Observation, cost: Cost | None, *, grew: bool) -> None:
        waits = has_backlog(seen.backlog, self.rate_per_s)
        used = self._utilisation(cost)
        needs = (used is not None and used > self.settings.utilisation_max) or (waits and grew)
        if needs:
            self.need_per_s = max(self.rate_per_s, self.need_per_s if self.need_windows else 0.0)
            self.need_windows += 1
        else:
            self.need_windows = 0
        if needs or waits:
            self.quiet_since_us = seen.at_us

    def _utilisation(self, cost: Cost | None) -> float | None:
        if cost is None:
            return None
        return self.rate_per_s / max(1e-9, cost.capacity_per_s(self.run.epoch_target_s, self.run.epoch_interval_s))

    @property
    def utilisation(self) -> float | None:
        """The share of the capacity that is used; None while the cost is not known."""
        return self._utilisation(self.cost)

    def judged(self) -> tuple[Trial, float, bool] | None:
        """A change that has had its time, how many times the capacity before it gives, and whether that is enough.

        What was seen is learned.
        """
        trial, seen = self.trial, self.seen
        if trial is None or seen is None:
            return None
        trial.windows += 1
        grown = min(trial.after, seen.cores) / max(1, min(trial.before, seen.cores))
        expected = grown**self.exponent
        cost, before = self.cost, trial.cost_before
        error = math.hypot(cost.error, before.error) if cost is not None else math.inf
        close = error <= max(EXACT, CLOSE_SHARE * abs(expected - 1))
        if cost is None or trial.windows < SETTLE_WINDOWS or not close:
            self.trial = trial if trial.windows < JUDGE_WINDOWS_MAX else None
            return None
        self.trial = None
        if grown != 1.0 and error <= 2 * EXACT:
            gained = math.log(before.per_record_s / cost.per_record_s)
            self.exponent = min(1.0, max(0.0, gained / math.log(grown)))
        # People ask for capacity, not for the cost of a record. In doubt it did not help: half of the error is doubt.
        more = self._capacity_per_s(cost) / max(1e-9, self._capacity_per_s(before))
        return trial, more, more * (1 - error / 2) >= max(HELPED, 1 + HELPED_SHARE * (expected - 1))

    def _capacity_per_s(self, cost: Cost) -> float:
        return cost.capacity_per_s(self.run.epoch_target_s, self.run.epoch_interval_s)

    def capacity_with(self, partitions: int, cost: Cost) -> float:
        """The capacity with so many partitions, from the cost with those that there are."""
        assert self.seen is not None
        here, there = (max(1, min(one, self.seen.cores)) for one in (self.seen.partitions, partitions))
        gain: float = (there / here) ** self.exponent
        return self._capacity_per_s(Cost(cost.fixed_s, cost.per_record_s / gain))

    def wanted(self, partitions_max: int, attempts: Attempts, now_us: int) -> Size | None:
        """The size that the job should have, if it is another one; ``partitions_max`` is what may be had."""
        seen, cost = self.seen, self.cost
        if seen is None or cost is None:
            return None
        if self.need_windows >= self.settings.windows_up:
            return self._larger(seen, cost, partitions_max, attempts, now_us)
        quiet = now_us - self.quiet_since_us >= self.settings.quiet_s * US_PER_S
        if quiet and seen.partitions > self.settings.partitions_min:
            return self._smaller(seen, cost, now_us)
        return None

    @property
    def _is_growth_on_trial(self) -> bool:
        """Whether it is not known yet what more partitions gave. One that was made smaller may grow at any time."""
        return self.trial is not None and self.trial.after > self.trial.before

    def _larger(self, seen: Observation, cost: Cost, most: int, attempts: Attempts, now_us: int) -> Size | None:
        if self._is_growth_on_trial or attempts.is_useless(MORE_PARTITIONS, now_us):
            return None  # what the last step gave comes first
        if cost.error > 2 * EXACT and self.need_windows < self.settings.windows_up + INEXACT_WINDOWS_MAX:
            return None
        expected = max(self.need_per_s, min(self._ahead_per_s(now_us), 4 * self.need_per_s))
        if any(now_us - at_us < AHEAD_HOURS * HOUR_US for at_us in self.ups_us):
            expected = max(expected, RISING * self.need_per_s)
        load = expected + seen.backlog / DRAIN_S
        sizes = range(self.settings.partitions_min, self.settings.partitions_max + 1)
        aim = self.settings.utilisation
        wanted = next((size for size in sizes if load <= aim * self.capacity_with(size, cost)), None)
        size = min(wanted or most, most)
        enough = self.capacity_with(size, cost) > HELPED * self._capacity_per_s(cost)
        if size <= seen.partitions or not enough:
            return None
        used = self._utilisation(cost)
        why = (
            f"for {self.need_windows} windows the job has used {(used or 0.0) * 100:.0f} % of what "
            f"{_count(seen.partitions)} can do ({self.rate_per_s:,.0f} records/s came), and "
            f"{seen.backlog:,} records wait"
        )
        return Size(size, why, self._inputs(cost, load, now_us), wanted)

    def _smaller(self, seen: Observation, cost: Cost, now_us: int) -> Size | None:
        if self._is_growth_on_trial:
            return None  # what the last step gave comes first
        if sum(1 for at_us in self.downs_us if now_us - at_us < DAY_US) >= self.settings.scale_downs_per_day:
            return None
        most = self.most_of_the_hour()
        load = max(most, self._ahead_per_s(now_us))
        size, aim = int(SMALLER * seen.partitions) + 1, self.settings.utilisation
        while size > self.settings.partitions_min and load <= aim * self._certain_with(size - 1, cost, now_us):
            size -= 1
        if size > SMALLER * seen.partitions:
            return None
        why = (
            f"for {self.settings.quiet_s / 60:.0f} minutes nothing waited, and no more than {most:,.0f} records/s came "
            f"({load:,.0f} are expected in the next {AHEAD_HOURS} hours), for which {_count(size)} will do"
        )
        return Size(size, why, self._inputs(cost, load, now_us), size)

    def most_of_the_hour(self) -> float:
        """The most records a second that came in a window of the quiet time."""
        return max(rate for _, rate in self.rates)

    def _ahead_per_s(self, now_us: int) -> float:
        """The most that the next hours had a day ago; 0 if that is not known."""
        hour = now_us // HOUR_US
        found = (self.day.get((hour + later) % 24, (0, 0.0)) for later in range(1, AHEAD_HOURS + 1))
        return max((rate for of_hour, rate in found if hour - of_hour < 24), default=0.0)

    def _certain_with(self, partitions: int, cost: Cost, now_us: int) -> float:
        """The capacity that fewer partitions have in any case: as it was measured within a day, or else in proportion.

        Not by what was learned from one change: a job that is too small has a backlog, one that is too large has none.
        """
        assert self.seen is not None
        known = self.fits[partitions].cost() if partitions in self.fits else None
        if known is not None and now_us - self.left_us.get(partitions, 0) < DAY_US:
            return self._capacity_per_s(known.at_worst)
        share = min(partitions, self.seen.cores) / max(1, min(self.seen.partitions, self.seen.cores))
        worst = cost.at_worst
        return self._capacity_per_s(Cost(worst.fixed_s, worst.per_record_s / share))

    def _inputs(self, cost: Cost, load_per_s: float, now_us: int) -> dict[str, Any]:
        assert self.seen is not None
        return {
            "rate_per_s": self.rate_per_s,
            "hour_max_per_s": self.most_of_the_hour(),
            "load_per_s": load_per_s,
            "backlog": self.seen.backlog,
            "fixed_s": cost.fixed_s,
            "per_record_s": cost.per_record_s,
            "capacity_per_s": self._capacity_per_s(cost),
            "growth_exponent": self.exponent,
            "partitions": self.seen.partitions,
            "cores": self.seen.cores,
            "quiet_s": (now_us - self.quiet_since_us) / US_PER_S,
        }

    def to_json(self) -> dict[str, Any]:
        """What was learned, as plain data."""
        return {
            "fits": {str(partitions): fit.to_json() for partitions, fit in self.fits.items()},
            "exponent": self.exponent,
            "quiet_since_us": self.quiet_since_us,
            "rates": [list(one) for one in self.rates],
            "day": {str(hour): list(one) for hour, one in self.day.items()},
            "left_us": {str(partitions): at_us for partitions, at_us in self.left_us.items()},
            "ups_us": self.ups_us,
            "downs_us": self.downs_us,
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any], settings: PolicySettings, run: RunSettings) -> Scaler:
        """As it was kept; the windows of need are counted anew."""
        scaler = Scaler(settings, run)
        scaler.fits = {int(partitions): CostFit.from_json(fit) for partitions, fit in kept["fits"].items()}
        scaler.exponent = float(kept["exponent"])
        scaler.quiet_since_us = int(kept["quiet_since_us"])
        scaler.rates = deque((int(at_us), float(rate)) for at_us, rate in kept["rates"])
        scaler.day = {int(hour): (int(of), float(rate)) for hour, (of, rate) in kept["day"].items()}
        scaler.left_us = {int(partitions): int(at_us) for partitions, at_us in kept["left_us"].items()}
        scaler.ups_us, scaler.downs_us = list(kept["ups_us"]), list(kept["downs_us"])
        return scaler


def has_backlog(backlog: int, rate_per_s: float) -> bool:
    """Whether more waits than what has just come.

    >>> has_backlog(4_000, 1_000.0), has_backlog(6_000, 1_000.0), has_backlog(50, 0.0)
    (False, True, False)
    """
    return backlog > max(100.0, BACKLOG_S * rate_per_s)


def _count(partitions: int) -> str:
    return f"{partitions} partition{'s' if partitions != 1 else ''}"
