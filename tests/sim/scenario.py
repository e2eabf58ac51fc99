"""What a seed decides: how many replicas, how slow, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

from lockstep.config import RunSettings

Fault = Literal["crash", "hang", "pause"]

SETTINGS = RunSettings(
    epoch_interval_s=0.3,
    heartbeat_interval_s=1.0,
    records_per_epoch_start=40,
    lead_epochs_max=6,
    lag_timeout_s=1.5,
    seed_beyond_epochs=4,
    hang_timeout_s=3.0,
    start_timeout_s=15.0,
    restarts_max=100,
    restart_window_s=20.0,
    restart_backoff_s=0.2,
    restart_backoff_max_s=1.0,
    on_divergence="continue",
    retention_epochs_min=10,
)
"""Everything shorter than in production, in the same proportions: a minute of trouble fits into some seconds."""


@dataclass(frozen=True)
class Scenario:
    """One run. Chances are per durable step of a replica, of which there are about twenty a second."""

    replicas: int = 2
    faults_s: float = 15.0
    calm_s: float = 7.0
    crash_chance: float = 0.0
    hang_chance: float = 0.0
    pause_chance: float = 0.0
    damage_chance: float = 0.0
    """That a crash leaves the replica's checkpoint in a state that is found unsound."""
    faulty: tuple[str, ...] = ("r0", "r1", "r2")
    """Who is struck by crashes, hangs and pauses."""
    zombie_chance: float = 0.0
    """That killing a replica that hangs does not reach it: it goes on later, replaced by then."""
    slowness: tuple[float, ...] = (1.0, 1.0, 1.0)
    boot_s: tuple[float, float] = (0.5, 2.0)
    late_s: dict[str, float] = field(default_factory=dict)
    """How much longer the first boot of a replica takes."""
    blackouts_s: tuple[float, ...] = ()
    """When everything dies at once, the supervisor included, and is started again."""
    stops_s: tuple[float, ...] = ()
    """When the job is stopped gracefully and started again."""
    corrupted_s: tuple[float, ...] = ()
    """When one replica's state silently changes."""
    quiet_s: tuple[tuple[float, float], ...] = ()
    """When the second source has no records."""
    recovery_s_max: float = 60.0
    """After the last fault every replica is back within the lead by then. The longest way: a replica three times slower
    starts from scratch, 30 epochs behind, and gains one in about a second, as pacing leaves it half of the time."""
    settings: RunSettings = SETTINGS

    @property
    def total_s(self) -> float:
        """How long it runs at least; then until everyone is back."""
        return self.faults_s + self.calm_s


def random_scenario(seed: int) -> Scenario:
    """A run with some of everything; what it is follows from the seed alone."""
    draw = random.Random(seed)
    quiet_from_s = draw.uniform(2, 12)
    return Scenario(
        replicas=draw.choice((1, 2, 2, 2, 3, 3)),
        crash_chance=draw.choice((0.0, 0.01, 0.03)),
        hang_chance=draw.choice((0.0, 0.003, 0.01)),
        pause_chance=draw.choice((0.0, 0.02)),
        damage_chance=draw.choice((0.0, 0.2)),
        zombie_chance=0.5,
        slowness=tuple(draw.choice((1.0, 1.0, 1.5, 3.0)) for _ in range(3)),
        blackouts_s=tuple(draw.uniform(1, 14) for _ in range(draw.choice((0, 0, 1)))),
        stops_s=tuple(draw.uniform(1, 14) for _ in range(draw.choice((0, 0, 1)))),
        quiet_s=((quiet_from_s, quiet_from_s + draw.uniform(1, 6)),),
        settings=SETTINGS.model_copy(update={"lead_epochs_max": draw.choice((2, 3, 6))}),
    )


class Faults:
    """Draws what goes wrong, step by step, while faults are on."""

    def __init__(self, scenario: Scenario, draw: random.Random) -> None:
        self._scenario = scenario
        self._draw = draw
        self.active = True

    def at_step(self, replica: str) -> Fault | None:
        """What happens to a replica at a durable step."""
        lot = self._draw.random()
        if not self.active or replica not in self._scenario.faulty:
            return None
        chances: tuple[tuple[Fault, float], ...] = (
            ("crash", self._scenario.crash_chance),
            ("hang", self._scenario.hang_chance),
            ("pause", self._scenario.pause_chance),
        )
        for fault, chance in chances:
            if lot < chance:
                return fault
            lot -= chance
        return None

    def is_after(self) -> bool:
        """Whether it happens after the step rather than before it."""
        return self._draw.random() < 0.5

    def stillness_s(self, fault: Fault) -> float:
        """How long a hang or a pause lasts: a hang mostly beyond the hang timeout, a pause well within it."""
        return self._draw.uniform(1.0, 6.0) if fault == "hang" else self._draw.uniform(0.1, 0.8)

    def damages(self) -> bool:
        """Whether a crash leaves an unsound checkpoint."""
        return self.active and self._draw.random() < self._scenario.damage_chance

    def kill_misses(self) -> bool:
        """Whether a kill does not reach a replica that hangs."""
        return self.active and self._draw.random() < self._scenario.zombie_chance
