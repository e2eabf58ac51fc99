"""What a seed draws for a policy: load, cost, failures of every kind, and what the users of the job ask for."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from lockstep.config import PolicySettings

HOUR_S, DAY_S = 3600.0, 86_400.0
WINDOW_S = 900.0
"""Coarser than production's minute: days of minutes would take a second to simulate."""
SLOTS = 3
"""Places for replicas: no mode has more."""
CRASH, HOST_LOSS = "crash", "host"


class Strike(NamedTuple):
    """Something fails: a replica's process, or a host with all that is on it."""

    at_s: float
    kind: str
    subject: int
    """The replica's or the host's number."""
    cold_s: float
    """How long it takes to be back from nothing, and by a spare."""
    warm_s: float
    away_s: float = 0.0
    """How long a host is away."""


@dataclass(frozen=True)
class Scenario:
    """Everything that happens to a job in some days, but for what the policy decides."""

    settings: PolicySettings
    days: float = 4.0
    hosts: int = 3
    cores: int = 8
    partitions: int = 2
    """At the start."""
    rate_per_s: float = 1000.0
    swing: float = 0.5
    """By how much the load goes up and down with the day: 0.5 is from a half to one and a half."""
    phase: float = 0.0
    noise: float = 0.05
    bursts_h: tuple[tuple[float, float, float], ...] = ()
    """(begin, length, how many times the load)."""
    fixed_s: float = 0.1
    per_record_s: float = 0.0005
    exponent: float = 1.0
    """How capacity really grows with partitions; 0: not at all."""
    crashes_per_day: float = 0.03
    """Of one replica."""
    storms_h: tuple[tuple[float, float, float], ...] = ()
    """(begin, length, crashes an hour of one replica): failures in bursts."""
    host_losses_per_day: float = 0.01
    together_h: tuple[float, ...] = ()
    """When two hosts are lost at once."""
    flapping_h: tuple[float, float] | None = None
    """(begin, length): the first host is lost every half hour."""
    poison_h: tuple[float, float] | None = None
    """(begin, length): the job crashes by its own fault, until somebody mends it."""
    slow_h: tuple[float, float] | None = None
    """(begin, length): replicas on the first host are three times slower."""
    slow_follows: bool = False
    """Whether that is the first replica's and moves with it, so that moving it does not help."""
    cold_s: float = 40.0
    warm_s: float = 4.0

    @property
    def allowed_gaps(self) -> int:
        """How many pauses are accepted in these days."""
        return math.ceil(self.settings.gaps_per_month * self.days / 30)


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed.

    >>> random_scenario(7) == random_scenario(7), random_scenario(7) == random_scenario(8)
    (True, False)
    """
    draw = Random(f"policy {seed}")  # noqa: S311 (a simulation)
    replicas_min = draw.choice((1, 1, 1, 2))
    budget = draw.choice((0, 0, 12, 24))
    settings = PolicySettings(
        scaling="auto",
        tolerance="auto",
        window_s=WINDOW_S,
        max_gap_s=draw.choice((0.0, 1.0, 10.0, 10.0, 10.0, 20.0)),
        gaps_per_month=draw.choice((1.0, 1.0, 5.0, 30.0)),
        replicas_min=replicas_min,
        replicas_max=draw.choice((2, 3, 3)),
        budget_cores=budget,
        partitions_max=draw.choice((8, 16)),
    )
    hours = 24 * 4.0
    kind = draw.choice(("calm", "calm", "poisson", "poisson", "bursty", "bursty", "hosts", "flapping", "own-fault"))
    failing = kind in ("poisson", "bursty")
    return Scenario(
        settings=settings,
        hosts=draw.choice((1, 2, 3, 4)) if kind not in ("hosts", "flapping") else draw.choice((3, 4)),
        cores=draw.choice((4, 8, 16)),
        partitions=draw.choice((1, 2, 4)),
        rate_per_s=draw.uniform(100, 3000),
        swing=draw.choice((0.0, 0.3, 0.6, 0.9)),
        phase=draw.random(),
        noise=draw.uniform(0.01, 0.1),
        bursts_h=tuple(
            (draw.uniform(0, hours), draw.uniform(0.2, 3), draw.uniform(1.5, 4))
            for _ in range(draw.choice((0, 0, 1, 3)))
        ),
        fixed_s=draw.uniform(0.02, 0.3),
        per_record_s=draw.uniform(0.0001, 0.001),
        exponent=draw.choice((1.0, 0.9, 0.7, 0.5, 0.0)),
        crashes_per_day=draw.uniform(0.2, 2.0) if failing else draw.uniform(0.0, 0.05),
        storms_h=tuple(
            (draw.uniform(0, hours), draw.uniform(1, 6), draw.uniform(1, 6)) for _ in range(draw.choice((1, 2)))
        )
        if kind == "bursty"
        else (),
        host_losses_per_day=draw.uniform(0.1, 0.5) if kind == "hosts" else 0.005,
        together_h=tuple(draw.uniform(0, hours) for _ in range(draw.choice((0, 1, 2)))) if kind == "hosts" else (),
        flapping_h=(draw.uniform(0, hours), draw.uniform(2, 24)) if kind == "flapping" else None,
        poison_h=(draw.uniform(0, hours), draw.uniform(0.5, 12)) if kind == "own-fault" else None,
        slow_h=(draw.uniform(0, hours), draw.uniform(6, 48)) if draw.random() < 0.2 else None,
        slow_follows=draw.random() < 0.5,
        cold_s=draw.uniform(15, 60),
        warm_s=draw.uniform(2, 6),
    )


def strikes(scenario: Scenario, seed: int) -> list[Strike]:
    """Everything that fails, in order: the same for every policy."""
    draw = Random(f"strikes {seed}")  # noqa: S311
    end_s = scenario.days * DAY_S
    found: list[Strike] = []

    def strike(at_s: float, kind: str, subject: int, away_s: float = 0.0) -> None:
        cold_s, warm_s = (usual * draw.lognormvariate(0, 0.2) for usual in (scenario.cold_s, scenario.warm_s))
        found.append(Strike(at_s, kind, subject, cold_s, warm_s, away_s))

    for slot in range(SLOTS):
        for at_s in _times(draw, 0.0, end_s, scenario.crashes_per_day / DAY_S):
            strike(at_s, CRASH, slot)
        for begin_h, length_h, per_h in scenario.storms_h:
            begin_s = begin_h * HOUR_S
            for at_s in _times(draw, begin_s, min(end_s, begin_s + length_h * HOUR_S), per_h / HOUR_S):
                strike(at_s, CRASH, slot)
    for host in range(scenario.hosts):
        for at_s in _times(draw, 0.0, end_s, scenario.host_losses_per_day / DAY_S):
            strike(at_s, HOST_LOSS, host, draw.uniform(120, 3600))
    for at_h in scenario.together_h:
        for host in draw.sample(range(scenario.hosts), min(2, scenario.hosts)):
            strike(at_h * HOUR_S + draw.uniform(0, 20), HOST_LOSS, host, draw.uniform(300, 3600))
    if scenario.flapping_h is not None:
        begin_s, length_s = (one * HOUR_S for one in scenario.flapping_h)
        for at_s in _times(draw, begin_s, min(end_s, begin_s + length_s), 2 / HOUR_S):
            strike(at_s, HOST_LOSS, 0, draw.uniform(60, 600))
    return sorted(found)


def _times(draw: Random, begin_s: float, end_s: float, per_s: float) -> list[float]:
    """When it happens, by chance."""
    times: list[float] = []
    at_s = begin_s
    while per_s > 0 and (at_s := at_s + draw.expovariate(per_s)) < end_s:
        times.append(at_s)
    return times
