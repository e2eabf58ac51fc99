"""How many replicas a job needs so that its output pauses no more often than its users accept.

Failures are counted by cause and host, with a prior and a memory of a day; recovery takes as long as it was seen to.
From both follows how often each mode would pause for too long, and the smallest mode that is good enough is taken:
at once upwards, after a quiet hour downwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lockstep.clock import US_PER_S
from lockstep.config import PolicySettings
from lockstep.control.policy.observations import Failure, Observation

HOURS_PER_MONTH = 720.0
HOUR_H, DAY_H = 1.0, 24.0
SLOW_H = HOURS_PER_MONTH
"""Rates of all hosts together are remembered for a month: they are the prior of what a day tells of one host."""
KEYS_MAX = 64
"""Causes and hosts that are told apart; of more, those that were quiet for longest are forgotten."""
RECOVERIES_MAX = 32
SUSPECTS_MAX = 32
SPARE_COST = 0.2
"""What a spare costs of a replica: its memory, and next to none of the processor."""
EASILY = 0.5
"""A smaller mode is taken if it needs no more than so much of what is allowed."""
TOGETHER_S = 60.0
"""Hosts that are lost within this time are lost together."""
COLD, WARM = "cold", "warm"
USUAL_S = {COLD: 60.0, WARM: 5.0}
"""How long recoveries take before one was seen."""
PROCESS, HOST, TWO_HOSTS, THREE_HOSTS = "process", "host", "two hosts at once", "three hosts at once"
PRIORS = {PROCESS: (0.5, 720.0), HOST: (0.5, 1440.0), TWO_HOSTS: (0.5, 4380.0), THREE_HOSTS: (0.25, 8760.0)}
"""Failures and hours before anything was seen: a process dies every two months, a host every four, two at once in a
year, three in four years."""


class Mode(NamedTuple):
    """How a job tolerates faults."""

    name: str
    replicas: int
    spares: int

    @property
    def cost(self) -> float:
        """In replicas."""
        return self.replicas + SPARE_COST * self.spares


ONE, SPARED = Mode("one replica", 1, 0), Mode("one replica with a warm spare", 1, 1)
TWO, THREE = Mode("two replicas", 2, 0), Mode("three replicas", 3, 0)
MODES = (ONE, SPARED, TWO, THREE)


def mode_of(replicas: int, spares: int) -> Mode:
    """The mode that a job is in. With two replicas a spare shortens recovery, and is no mode of its own.

    >>> mode_of(1, 2).name, mode_of(5, 0).name
    ('one replica with a warm spare', 'three replicas')
    """
    if replicas == 1:
        return SPARED if spares else ONE
    return TWO if replicas == 2 else THREE


@dataclass
class Rate:
    """Failures and the hours in which they could have happened, both forgotten exponentially."""

    failures: float = 0.0
    hours: float = 0.0

    def forget(self, kept: float, exposed_hours: float) -> None:
        """Time went by, in which failures could have happened for so many hours; this share is still remembered."""
        self.failures *= kept
        self.hours = self.hours * kept + exposed_hours


@dataclass
class Rates:
    """Failure rates by cause and host.

    >>> rates = Rates()
    >>> round(rates.per_h("process", "h1") * 720, 2)
    0.5
    >>> rates.add("process", "h1"); rates.pass_time(1.0, {"h1": 1, "h2": 1})
    >>> rates.per_h("process", "h1") > rates.per_h("process", "h2") > 5 * rates.per_h("host", "h2")
    True
    """

    fast: dict[str, Rate] = field(default_factory=dict)
    """By "cause@host", over a day."""
    day: dict[str, Rate] = field(default_factory=dict)
    """By cause, over a day: a replica that fails may fail wherever it is started again."""
    slow: dict[str, Rate] = field(default_factory=dict)
    """By cause, over a month."""
    hour: dict[str, Rate] = field(default_factory=dict)
    """By cause, over an hour: failures come in storms, and in one a day's average says too little."""
    known: dict[tuple[str, str], float] = field(default_factory=dict, repr=False, compare=False)
    """What was computed since the last change: several modes ask for the same."""

    def add(self, cause: str, host: str) -> None:
        """A failure."""
        self.known.clear()
        self._fast(cause, host).failures += 1.0
        for rate in self._all_hosts(cause):
            rate.failures += 1.0

    def pass_time(self, hours: float, replicas: Mapping[str, int]) -> None:
        """Time went by with so many replicas on each host."""
        self.known.clear()
        kept = [math.exp(-hours / memory_h) for memory_h in (HOUR_H, DAY_H, SLOW_H)]
        for key, rate in self.fast.items():
            cause, _, host = key.partition("@")
            there = replicas.get(host, 0)
            rate.forget(kept[1], hours * (there if cause == PROCESS else min(1, there) if host else 1))
        for cause in PRIORS:
            exposed = sum(replicas.values()) if cause == PROCESS else len(replicas) if cause == HOST else 1
            for rate, share in zip(self._all_hosts(cause), kept, strict=True):
                rate.forget(share, hours * exposed)
        for host in replicas:
            self._fast(PROCESS, host)

    def per_h(self, cause: str, host: str) -> float:
        """Failures to be expected in an hour."""
        found = self.known.get((cause, host))
        if found is None:
            found = self.known[cause, host] = self._per_h(cause, host)
        return found

    def _per_h(self, cause: str, host: str) -> float:
        """A day of this host, with a day of all hosts as its prior, and that has the month before."""
        failures, hours = PRIORS[cause]
        slow = self.slow.get(cause)
        if slow is None:
            return failures / hours
        day, fast = self.day[cause], self.fast.get(f"{cause}@{host}")
        usual = (day.failures + DAY_H * (failures + slow.failures) / (hours + slow.hours)) / (day.hours + DAY_H)
        expected = (fast.failures + DAY_H * usual) / (fast.hours + DAY_H) if fast is not None else usual
        # One failure is no storm yet.
        return max(expected, (self.hour[cause].failures - 1.0) / (self.hour[cause].hours + 1.0))

    def _fast(self, cause: str, host: str) -> Rate:
        key = f"{cause}@{host}"
        if key not in self.fast:
            self.fast[key] = Rate()
            while len(self.fast) > KEYS_MAX:
                del self.fast[min(self.fast, key=lambda one: self.fast[one].failures)]
        return self.fast[key]

    def _all_hosts(self, cause: str) -> tuple[Rate, Rate, Rate]:
        if cause not in self.slow:
            self.hour[cause], self.day[cause], self.slow[cause] = Rate(), Rate(), Rate()
        return self.hour[cause], self.day[cause], self.slow[cause]

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            name: {key: [rate.failures, rate.hours] for key, rate in rates.items()}
            for name, rates in (("fast", self.fast), ("hour", self.hour), ("day", self.day), ("slow", self.slow))
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Rates:
        """As it was kept."""
        made = {
            name: {key: Rate(float(failures), float(hours)) for key, (failures, hours) in kept[name].items()}
            for name in ("fast", "hour", "day", "slow")
        }
        return Rates(made["fast"], made["day"], made["slow"], made["hour"])


@dataclass
class Recoveries:
    """How long it took until a replica computed again: the last of each kind.

    >>> recoveries = Recoveries({"cold": [20.0, 30.0]})
    >>> recoveries.mean_s("cold"), round(recoveries.longer_than(25.0, "cold"), 2), recoveries.longer_than(2.0, "warm")
    (36.666666666666664, 0.67, 1.0)
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    known: dict[tuple[float, str], float] = field(default_factory=dict, repr=False, compare=False)

    def add(self, kind: str, seconds: float) -> None:
        """One was seen."""
        self.known.clear()
        known = self.seconds.setdefault(kind, [])
        known.append(seconds)
        del known[:-RECOVERIES_MAX]

    def mean_s(self, kind: str) -> float:
        """How long one takes; what is usual counts as one."""
        known = self.seconds.get(kind, ())
        return (USUAL_S[kind] + sum(known)) / (1 + len(known))

    def longer_than(self, limit_s: float, kind: str) -> float:
        """The share of them that takes longer; what is usual counts as one."""
        share = self.known.get((limit_s, kind))
        if share is None:
            seen = self.seconds.get(kind, ())
            share = (int(USUAL_S[kind] > limit_s) + sum(1 for one in seen if one > limit_s)) / (1 + len(seen))
            self.known[limit_s, kind] = share
        return share


@dataclass(frozen=True)
class Choice:
    """What the tolerance wants."""

    mode: Mode
    gaps: Mapping[str, float]
    """Mode -> pauses to be expected in a month."""
    unmet: str = ""
    """What to tell people if no mode that is allowed is good enough."""


def gaps_per_month(mode: Mode, hosts: Sequence[str], rates: Rates, recoveries: Recoveries, max_gap_s: float) -> float:
    """How many pauses longer than ``max_gap_s`` a mode would have in a month; ``hosts`` are those that there are.

    >>> calm = Rates()
    >>> [round(gaps_per_month(mode, ["h1", "h2", "h3"], calm, Recoveries(), 10.0), 3) for mode in MODES]
    [0.75, 0.082, 0.082, 0.021]

    On one host, all of them are lost with it:

    >>> [round(gaps_per_month(mode, ["h1"], calm, Recoveries(), 10.0), 2) for mode in MODES]
    [0.75, 0.25, 0.25, 0.25]
    """
    used = list(hosts[: mode.replicas]) or [""]
    own = [rates.per_h(PROCESS, used[number % len(used)]) for number in range(mode.replicas)]
    lost = [rates.per_h(HOST, host) for host in used]
    cold, back_h = recoveries.longer_than(max_gap_s, COLD), recoveries.mean_s(COLD) / 3600
    if mode.replicas == 1:
        if not mode.spares:
            return (own[0] + lost[0]) * cold * HOURS_PER_MONTH
        warm = recoveries.longer_than(max_gap_s, WARM)
        # A spare that was just used is not there yet; one on the only host is lost with it, as with both hosts at once.
        unready = min(1.0, (own[0] + lost[0]) * back_h)
        with_spare = own[0] + (lost[0] if len(hosts) > 1 else 0.0)
        alone = lost[0] if len(hosts) <= 1 else rates.per_h(TWO_HOSTS, "")
        return (with_spare * (warm * (1 - unready) + cold * unready) + alone * cold) * HOURS_PER_MONTH
    each = [one + (lost[number % len(used)] if len(used) > 1 else 0.0) for number, one in enumerate(own)]
    # One after the other, each while those before are still away; in any order.
    overlapping = len(each) * math.prod(each) * back_h ** (len(each) - 1)
    all_hosts = {1: lost[0], 2: rates.per_h(TWO_HOSTS, ""), 3: rates.per_h(THREE_HOSTS, "")}[len(used)]
    return (overlapping + all_hosts) * cold * HOURS_PER_MONTH


class Gaps:
    """How many pauses each mode would have; each is computed when it is asked for, since mostly one is enough."""

    def __init__(self, hosts: Sequence[str], rates: Rates, recoveries: Recoveries, max_gap_s: float) -> None:
        self._given = (hosts, rates, recoveries, max_gap_s)
        self._known: dict[str, float] = {}

    def of(self, mode: Mode) -> float:
        """Those of a mode, in a month."""
        if mode.name not in self._known:
            self._known[mode.name] = gaps_per_month(mode, *self._given)
        return self._known[mode.name]

    def all(self) -> dict[str, float]:
        """Those of all modes."""
        return {mode.name: self.of(mode) for mode in MODES}


def affordable(left: float) -> float:
    """How many pauses may be expected so that no more than ``left`` come, in five of six months.

    They come by chance (Poisson): whoever expects as many as are allowed has more of them every second month.

    >>> [round(affordable(left), 2) for left in (1.0, 5.0, 30.0)]
    [0.38, 3.21, 25.0]
    """
    return left + 0.5 - math.sqrt(left + 0.25)


@dataclass
class Tolerance:
    """Watches failures; :meth:`observe` once a window, :meth:`choose` says which mode is needed."""

    settings: PolicySettings
    rates: Rates = field(default_factory=Rates)
    recoveries: Recoveries = field(default_factory=Recoveries)
    gaps: float = 0.0
    """Pauses that were too long, forgotten over a month."""
    suspects: list[Failure] = field(default_factory=list)
    """Errors of the job itself that may be its own fault: not counted until somebody has got past that epoch."""
    own_faults: dict[str, int] = field(default_factory=dict)
    """Errors that came again in the same epoch, and when last."""
    failed_us: int = 0
    """When something failed last, by no fault of the job's."""
    enough_since_us: int | None = None
    """Since when a smaller mode would have been enough."""
    most: int = 0
    """The largest mode that was needed in that time, as its place in :data:`MODES`."""
    lost_us: dict[str, int] = field(default_factory=dict)
    """When each host was last lost."""
    seen_us: int = 0

    def observe(self, seen: Observation) -> None:
        """Take one window into account."""
        hours = max(0, seen.at_us - self.seen_us) / US_PER_S / 3600 if self.seen_us else 0.0
        self.seen_us = seen.at_us
        self.rates.pass_time(hours, seen.replicas_by_host)
        self.gaps *= math.exp(-hours / SLOW_H)
        for failure in seen.failures:
            self._note(failure)
        for recovery in seen.recoveries:
            self.recoveries.add(COLD if not recovery.warm else WARM, recovery.seconds)
        for suspect in [one for one in self.suspects if one.epoch <= seen.published_epoch]:
            self.suspects.remove(suspect)
            self._count(suspect)
        if seen.failures:
            self._forget_faults(seen.at_us)
        limit_s = self.settings.max_gap_s
        if limit_s and seen.gaps_s and not self.suspects and not self.crashes_by_itself(seen.at_us):
            self.gaps += sum(1 for gap_s in seen.gaps_s if gap_s > limit_s)

    def _note(self, failure: Failure) -> None:
        """An error of the job's own waits: if the same comes again in that epoch, the job is at fault."""
        if not failure.error:
            self._count(failure)
            return
        fault = f"epoch {failure.epoch}: {failure.error}"
        again = [one for one in self.suspects if (one.epoch, one.error) == (failure.epoch, failure.error)]
        if again or fault in self.own_faults:
            self.own_faults[fault] = failure.at_us
            self.suspects = [one for one in self.suspects if one not in again]
        else:
            self.suspects.append(failure)
            del self.suspects[:-SUSPECTS_MAX]

    def _count(self, failure: Failure) -> None:
        self.failed_us = max(self.failed_us, failure.at_us)
        if failure.cause != HOST:
            self.rates.add(PROCESS, failure.host)
            return
        recent = {host for host, at_us in self.lost_us.items() if failure.at_us - at_us <= TOGETHER_S * US_PER_S}
        self.lost_us = {host: at_us for host, at_us in self.lost_us.items() if host in recent}
        if failure.host in recent:
            return  # the replicas of one host, one after the other
        self.lost_us[failure.host] = failure.at_us
        self.rates.add(HOST, failure.host)
        if len(recent) in (1, 2):
            self.rates.add(TWO_HOSTS if len(recent) == 1 else THREE_HOSTS, "")

    def _forget_faults(self, now_us: int) -> None:
        day_us = round(DAY_H * 3600) * US_PER_S
        self.own_faults = {fault: at_us for fault, at_us in self.own_faults.items() if now_us - at_us < day_us}
        self.suspects = [one for one in self.suspects if now_us - one.at_us < day_us]

    def crashes_by_itself(self, now_us: int) -> str:
        """The error by which the job crashes again and again, in the same epoch; empty if it does not."""
        hour_us = 3600 * US_PER_S
        return next((fault for fault, at_us in reversed(self.own_faults.items()) if now_us - at_us < hour_us), "")

    def choose(self, seen: Observation, replicas_max: int, now_us: int) -> Choice | None:
        """The mode to change to, or what cannot be met; None if all is well. ``replicas_max`` is what may be had."""
        if not self.settings.max_gap_s:
            return None
        current = mode_of(seen.replicas, seen.spares)
        gaps = Gaps(seen.hosts, self.rates, self.recoveries, self.settings.max_gap_s)
        allowed = self._allowed(replicas_max)
        needed = self._needed(allowed, gaps)
        unmet = self._unmet(gaps, needed, replicas_max)
        may_grow = not self.suspects and not self.crashes_by_itself(now_us)
        if _rank(needed) > _rank(current) and may_grow:
            self.enough_since_us = None
            return Choice(needed, gaps.all(), unmet)
        if _rank(current) > _rank(allowed[-1]):
            return Choice(needed, gaps.all(), unmet)  # the limits were lowered
        lower = self._lower(current, self._smaller(allowed, gaps, current), now_us)
        if lower is not None:
            return Choice(lower, gaps.all(), unmet)
        return Choice(current, gaps.all(), unmet) if unmet else None

    def _allowed(self, replicas_max: int) -> list[Mode]:
        low, high = self.settings.replicas_min, min(self.settings.replicas_max, replicas_max)
        return [mode for mode in MODES if low <= mode.replicas <= max(low, high)] or [THREE]

    @property
    def left(self) -> float:
        """How many pauses are left of what is allowed in a month."""
        return max(self.settings.gaps_per_month - self.gaps, 0.1 * self.settings.gaps_per_month)

    def _needed(self, allowed: Sequence[Mode], gaps: Gaps) -> Mode:
        limit = affordable(self.left)
        enough = next((mode for mode in allowed if gaps.of(mode) <= limit), None)
        if enough is not None:
            return enough
        # None is good enough: the smallest of those that are about as good as can be had.
        best = min(gaps.of(mode) for mode in allowed)
        return next(mode for mode in allowed if gaps.of(mode) <= 1.25 * best)

    def _smaller(self, allowed: Sequence[Mode], gaps: Gaps, current: Mode) -> Mode:
        """A smaller mode that is easily good enough, or no worse: at the edge it would be taken back."""
        limit = EASILY * affordable(self.left)
        smaller = (mode for mode in allowed if _rank(mode) < _rank(current))
        return next((mode for mode in smaller if gaps.of(mode) <= limit or gaps.of(mode) <= gaps.of(current)), current)

    def _lower(self, current: Mode, needed: Mode, now_us: int) -> Mode | None:
        if _rank(needed) >= _rank(current):
            self.enough_since_us = None
            return None
        if self.enough_since_us is None:
            self.enough_since_us, self.most = now_us, 0
        self.most = max(self.most, _rank(needed))
        quiet_us = round(self.settings.quiet_s * US_PER_S)
        if now_us - self.enough_since_us < quiet_us or now_us - self.failed_us < quiet_us:
            return None
        self.enough_since_us = None
        return MODES[self.most]

    def _unmet(self, gaps: Gaps, needed: Mode, replicas_max: int) -> str:
        expected, wanted = gaps.of(needed), self.settings.gaps_per_month
        if expected <= wanted:
            return ""
        text = (
            f"{needed.name} would pause for more than {self.settings.max_gap_s:g} s about {expected:.1f} times a "
            f"month; {wanted:g} are accepted"
        )
        larger = next((mode for mode in MODES if gaps.of(mode) <= wanted and mode.replicas > needed.replicas), None)
        if larger is None:
            return f"{text}. No mode would meet that: look at what fails"
        limit = "budget_cores" if replicas_max < self.settings.replicas_max else "replicas_max"
        return f"{text}. With {larger.name} it would be {gaps.of(larger):.1f}, but {limit} does not allow them"

    @property
    def between_failures_s(self) -> float:
        """The time between failures of one replica that is to be expected, over all hosts."""
        slow = self.rates.slow.get(PROCESS) or Rate()
        failures, hours = PRIORS[PROCESS]
        return (hours + slow.hours) / (failures + slow.failures) * 3600

    def to_json(self) -> dict[str, Any]:
        """What was learned, as plain data."""
        return {
            "rates": self.rates.to_json(),
            "recoveries": self.recoveries.seconds,
            "gaps": self.gaps,
            "suspects": [list(one) for one in self.suspects],
            "own_faults": self.own_faults,
            "failed_us": self.failed_us,
            "enough_since_us": self.enough_since_us,
            "most": self.most,
            "lost_us": self.lost_us,
            "seen_us": self.seen_us,
        }

    @staticmethod
    def from_json(kept: Mapping[str, Any], settings: PolicySettings) -> Tolerance:
        """As it was kept."""
        rest = {
            name: kept[name] for name in ("own_faults", "failed_us", "enough_since_us", "most", "lost_us", "seen_us")
        }
        return Tolerance(
            settings,
            Rates.from_json(kept["rates"]),
            Recoveries({kind: list(map(float, seconds)) for kind, seconds in kept["recoveries"].items()}),
            float(kept["gaps"]),
            [Failure(*one) for one in kept["suspects"]],
            **rest,
        )


def _rank(mode: Mode) -> int:
    return MODES.index(mode)
