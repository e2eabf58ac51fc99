"""Symptom, diagnosis, resolution (as in Dhalion): what is wrong with a job, why, and what would help.

More partitions are not the answer to everything: a key that has half of the records, a partition that gets more than
the others or a replica on a bad host stay as they are. They are looked for first, and only then is a job too small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

from lockstep.clock import US_PER_S
from lockstep.control.policy.attempts import Attempts
from lockstep.control.policy.decisions import Advise, Operation, Replace
from lockstep.control.policy.observations import Observation
from lockstep.control.policy.scaling import has_backlog
from lockstep.control.policy.tolerance import HOST, PROCESS, Rates
from lockstep.keyed.loads import HotKey, StepLoad

Symptom = Literal["back-pressure", "skew", "slow-replica", "hot-key", "flapping-host"]
WINDOWS = 3
"""A symptom counts after so many windows in a row: one slow window happens to everybody."""
SKEWED = 2.0
"""A partition with more than so many times the median."""
SLOW = 2.0
"""A replica whose epochs take more than so many times those of the others."""
HOT_SHARE = 0.3
"""A key with such a share of all records keeps one task busy while the others wait."""
RECORDS_MIN = 1_000
"""Of a window: with fewer nothing is skewed, it is chance."""
COUNTED_MIN = 200
"""Records of a keyed step that were counted: a third of them is known to a few hundredths."""
FLAPPING = 3.0
"""Failures of a host within a day, as far as they are remembered, after which replicas are moved away from it."""
FLAPPING_FACTOR = 4.0
"""And so many times those of the others."""
JUDGED_AFTER_US = 1800 * US_PER_S
"""A replica that was replaced is judged half an hour later: it has to boot, and to catch up."""


@dataclass(frozen=True)
class Diagnosis:
    """One finding: the symptom, what is behind it, and what would help."""

    symptom: Symptom
    subject: str
    """Which replica, partition, key or host; empty if it is the job as a whole."""
    why: str
    resolution: Operation | None
    """None: the job is too small, and the scaler says what size it needs."""
    inputs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def action(self) -> str:
        """The name under which is remembered that it did not help."""
        return f"replace {self.subject}" if isinstance(self.resolution, Replace) else f"{self.symptom} {self.subject}"


@dataclass
class Diagnoser:
    """Counts for how many windows each symptom has been there; :meth:`findings` says what those are that stay."""

    windows: dict[str, int] = field(default_factory=dict)
    """By "symptom subject"."""
    found: list[Diagnosis] = field(default_factory=list)
    tried: dict[str, tuple[str, int]] = field(default_factory=dict)
    """What is still to be judged: action -> (symptom and subject, when)."""
    backlog_before: int = 0

    def observe(self, seen: Observation, rate_per_s: float, target_s: float, rates: Rates) -> None:
        """Take one window into account."""
        pressed = has_backlog(seen.backlog, rate_per_s) and seen.backlog > self.backlog_before
        self.backlog_before = seen.backlog
        found = [
            *_slow_replica(seen),
            *_flapping_host(seen, rates),
            *_hot_key(seen),
            *_skew(seen),
            *_bucket_skew(seen),
            *_back_pressure(seen, target_s, pressed=pressed),
        ]
        before = self.windows
        self.windows = {_name(one): before.get(_name(one), 0) + 1 for one in found} if found else {}
        self.found = [one for one in found if self.windows[_name(one)] >= WINDOWS]

    def findings(self, attempts: Attempts, now_us: int) -> list[Diagnosis]:
        """What is wrong for a while now, without what was tried within a day and did not help."""
        self._judge(attempts, now_us)
        pending = self.tried
        return [one for one in self.found if one.action not in pending and not attempts.is_useless(one.action, now_us)]

    def trying(self, symptom: str, resolution: Replace, now_us: int) -> None:
        """A resolution is carried out: look later whether the symptom has gone."""
        self.tried[f"replace {resolution.replica}"] = (f"{symptom} {resolution.replica}", now_us)

    def _judge(self, attempts: Attempts, now_us: int) -> None:
        for action, (name, at_us) in list(self.tried.items()):
            if now_us - at_us < JUDGED_AFTER_US:
                continue
            del self.tried[action]
            if self.windows.get(name, 0) >= WINDOWS:
                attempts.did_not_help(action, now_us)

    def explains_pressure(self, attempts: Attempts, now_us: int) -> bool:
        """Whether something that more partitions do not help against may be behind a backlog.

        From its first window on: the job would be larger before it is sure. A slow replica that nothing helped is
        something to live with.
        """
        symptoms = [name.partition(" ") for name in self.windows]
        return any(
            symptom == "hot-key"
            or (symptom == "slow-replica" and not attempts.is_useless(f"replace {subject}", now_us))
            for symptom, _, subject in symptoms
        )

    def to_json(self) -> dict[str, Any]:
        """What is still to be judged, as plain data."""
        return {action: list(one) for action, one in self.tried.items()}

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Diagnoser:
        """As it was kept; windows are counted anew."""
        return Diagnoser(tried={action: (str(name), int(at_us)) for action, (name, at_us) in kept.items()})


def _name(one: Diagnosis) -> str:
    return f"{one.symptom} {one.subject}"


def _slow_replica(seen: Observation) -> list[Diagnosis]:
    if len(seen.epoch_s) < 2:
        return []
    name = max(seen.epoch_s, key=lambda one: seen.epoch_s[one])
    others = median(took for one, took in seen.epoch_s.items() if one != name)
    if seen.epoch_s[name] <= SLOW * max(others, 0.01):
        return []
    host = seen.host_of.get(name, "")
    why = f"its epochs take {seen.epoch_s[name]:.2f} s, those of the others {others:.2f} s"
    resolution = Replace(name, host if len(seen.hosts) > 1 else "")
    return [Diagnosis("slow-replica", name, why, resolution, {"epoch_s": dict(seen.epoch_s), "host": host})]


def _flapping_host(seen: Observation, rates: Rates) -> list[Diagnosis]:
    if len(seen.hosts) < 2 or not rates.fast:
        return []
    failed = dict.fromkeys(seen.hosts, 0.0)
    for key, rate in rates.fast.items():
        cause, _, host = key.partition("@")
        if host in failed and cause in (PROCESS, HOST):
            failed[host] += rate.failures
    worst = max(failed, key=lambda host: failed[host])
    others = [count for host, count in failed.items() if host != worst]
    if failed[worst] < FLAPPING or failed[worst] < FLAPPING_FACTOR * max(1.0, *others):
        return []
    there = sorted(replica for replica, host in seen.host_of.items() if host == worst)
    free = any(host not in seen.replicas_by_host for host in seen.hosts)
    if not there or not free:
        return []
    why = f"replicas on {worst} failed about {failed[worst]:.0f} times within a day, elsewhere {max(others):.0f} times"
    return [Diagnosis("flapping-host", there[0], why, Replace(there[0], worst), {"failures": failed})]


def _hot_key(seen: Observation) -> list[Diagnosis]:
    return [_about_key(load, load.keys[0]) for load in _counted(seen) if load.keys and is_hot(load.keys[0])]


def is_hot(one: HotKey) -> bool:
    """Whether it keeps one task busy while the others wait."""
    return one.share >= HOT_SHARE


def _counted(seen: Observation) -> list[StepLoad]:
    """Of keyed steps with enough records to say something."""
    return [one for one in seen.step_loads if one.records >= COUNTED_MIN] if seen.records >= RECORDS_MIN else []


def _about_key(load: StepLoad, hot: HotKey) -> Diagnosis:
    name = f'{hot.key!r} of step "{load.step}"'
    why = f"key {name} has {hot.share * 100:.0f} % of its records (bucket {hot.bucket}): one task computes a key"
    text = f"more partitions do not help: split key {name} (a second column in key_by, joined again later)"
    inputs = {"step": load.step, "key": hot.key, "bucket": hot.bucket, "share": hot.share, "counted": load.records}
    return Diagnosis("hot-key", name, why, Advise(text), inputs)


def _bucket_skew(seen: Observation) -> list[Diagnosis]:
    """A bucket with more than twice the median, and more than a partition's even share: others wait for its task."""
    found = []
    for load in _counted(seen):
        share = load.buckets[load.largest] / load.records
        # Where a key is hot, that is what is behind it.
        by_key = bool(load.keys) and is_hot(load.keys[0])
        if load.skew > SKEWED and share > 1 / max(2, seen.partitions) and not by_key:
            found.append(_about_bucket(load, share))
    return found


def _about_bucket(load: StepLoad, share: float) -> Diagnosis:
    name = f'bucket {load.largest} of step "{load.step}"'
    heaviest = next((one for one in load.keys if one.bucket == load.largest), None)
    key = f"; its heaviest key {heaviest.key!r} has {heaviest.share * 100:.0f} %" if heaviest is not None else ""
    why = f"{name} had {share * 100:.0f} % of its records, {load.skew:.1f} times the median of all buckets{key}"
    text = f"divide the keys of {name} further: a second column in key_by, or [run] buckets in a new job"
    inputs = {"step": load.step, "bucket": load.largest, "records": load.buckets[load.largest], "median": load.usual}
    return Diagnosis("skew", name, why, Advise(text), inputs)


def _skew(seen: Observation) -> list[Diagnosis]:
    if len(seen.loads) < 2 or seen.records < RECORDS_MIN:
        return []
    usual = median(seen.loads.values())
    name = max(seen.loads, key=lambda one: seen.loads[one])
    if seen.loads[name] <= SKEWED * max(1, usual):
        return []
    why = f"{name} had {seen.loads[name]:,} records, the median is {usual:,.0f}"
    text = f"spread what is written to {name} over all partitions: whoever reads it does more than the others"
    return [Diagnosis("skew", name, why, Advise(text), {"records": seen.loads[name], "median": usual})]


def _back_pressure(seen: Observation, target_s: float, *, pressed: bool) -> list[Diagnosis]:
    longest = max((seconds for _, seconds in seen.epochs), default=0.0)
    if not pressed and not (longest > 2 * target_s and seen.backlog):
        return []
    why = f"{seen.backlog:,} records wait, and epochs take up to {longest:.1f} s"
    return [Diagnosis("back-pressure", "", why, None, {"backlog": seen.backlog, "epoch_s": longest})]
