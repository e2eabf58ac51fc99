"""What a seed decides: how many replicas, how slow, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from lockstep.config import RunSettings

SETTINGS = RunSettings(
    epoch_interval_s=0.3,
    heartbeat_interval_s=1.0,
    records_per_epoch_start=40,
    max_ahead_s=1.0,
    lead_epochs_max=6,
    lag_timeout_s=1.5,
    seed_beyond_epochs=4,
    hang_timeout_s=3.0,
    spread_after_s=3.0,
    start_timeout_s=15.0,
    restarts_max=100,
    restart_window_s=20.0,
    restart_backoff_s=0.2,
    restart_backoff_max_s=1.0,
    on_divergence="continue",
    retention_epochs_min=10,
)
"""Everything shorter than in production, in the same proportions: a minute of trouble fits into some seconds."""
EVERYONE = "all"
SPARE = "spare"

Span = tuple[float, float]


class Ask(NamedTuple):
    """What somebody asks of the job while it runs."""

    at_s: float
    what: Literal["partitions", "replicas", "restart", "same results", "other results", "deactivate", "move"]
    value: int = 0
    """How many partitions or replicas; which replica moves, and which host it moves to (ten times the one, plus the
    other); what changes in the results (0: nothing)."""
    timeout_s: float = 60.0
    at_deadline: Literal["rollback", "commit"] = "rollback"
    wish: Literal["", "commit", "rollback"] = ""
    """What a person says of it later."""
    later_s: float = 2.0
    """How much later; or how long the job is deactivated, or one replica with the old results is kept."""


@dataclass(frozen=True)
class Scenario:
    """One run. Chances are per durable step of a replica, of which there are about twenty a second."""

    replicas: int = 2
    stages: int = 1
    """In how many queries a replica computes the job: one, or two with a journal between them."""
    spares: int = 0
    """How many processes wait to become a replica."""
    odd_shapes: tuple[str, ...] = ()
    """The replicas that the spares of others do not fit."""
    faults_s: float = 15.0
    calm_s: float = 7.0
    crash_chance: float = 0.0
    hang_chance: float = 0.0
    """A process stops for seconds; if it is replaced meanwhile, it may come back as a zombie."""
    pause_chance: float = 0.0
    """A process stops for a moment."""
    slow_chance: float = 0.0
    """One write takes long; the rest of the process goes on."""
    hold_chance: float = 0.0
    """A process stops for seconds inside a transaction of the store: nobody else can write until it goes on or ends."""
    tear_chance: float = 0.0
    """That a crash strikes in the midst of a write: what it was writing is absent afterwards, or damaged."""
    zombie_chance: float = 0.0
    """That killing a replica that hangs does not reach it: it goes on later, replaced by then."""
    faulty: tuple[str, ...] = ("r0", "r1", "r2", SPARE)
    """Who is struck by these."""
    slowness: tuple[float, ...] = (1.0, 1.0, 1.0)
    boot_s: Span = (0.5, 2.0)
    late_s: dict[str, float] = field(default_factory=dict)
    """How much longer the first boot of a replica takes."""
    blackouts_s: tuple[float, ...] = ()
    """When everything dies at once, the supervisor included, and is started again."""
    power_loss: bool = False
    """Whether a blackout also loses what was written and not yet forced to disk."""
    stops_s: tuple[float, ...] = ()
    """When the job is stopped gracefully and started again."""
    supervisor_killed_s: tuple[float, ...] = ()
    """When the supervisor is killed, in the midst of what it does."""
    supervisor_hangs_s: tuple[Span, ...] = ()
    """(when, for how long) the supervisor hangs, in the midst of what it does."""
    supervisor_lock: bool = True
    """Whether a file lock keeps a second supervisor out for as long as the first one exists, as on one machine;
    otherwise the lease alone decides, and a second one comes when it has expired."""
    corrupted_s: tuple[float, ...] = ()
    """When one replica's state silently changes."""
    quiet_s: tuple[Span, ...] = ()
    """When the second source has no records."""
    silence_s: tuple[Span, ...] = ()
    """When no source has any."""
    disk_full_s: tuple[Span, ...] = ()
    """When nothing can be written."""
    disk_locked_s: tuple[Span, ...] = ()
    """When every fifth write to the store fails because somebody has it locked."""
    store_slow_s: tuple[Span, ...] = ()
    """When every call of the store takes long."""
    clock_jumps_s: tuple[tuple[float, str, float], ...] = ()
    """(when, whose, by how much) a wall clock is set; whose is a replica, "supervisor", a host or "all"."""
    lead_epochs_max: int = 6
    hosts: int = 0
    """On how many hosts it runs; 0: hosts are not simulated."""
    hosts_killed_s: tuple[tuple[float, str, float], ...] = ()
    """(when, which, for how long) a host is down: all its processes die at once, its disk stays."""
    cut_off_s: tuple[tuple[float, str, float], ...] = ()
    """(when, which, for how long) a host reaches neither the store nor other hosts; its processes go on."""
    sinks_beyond: bool = False
    """Whether a host that is cut off still reaches the sinks."""
    operations: tuple[Ask, ...] = ()
    """What is asked of the job while it runs."""
    strikes_max: int = 1_000_000
    """Only so many faults strike replicas: shrinking lowers it."""
    spared: tuple[int, ...] = ()
    """The numbers of strikes that do not happen: shrinking adds to it."""
    recovery_s_max: float = 60.0
    """After the last fault every replica is back within the lead by then. The longest way: a replica three times slower
    starts from scratch, 30 epochs behind, and gains one in about a second, as pacing leaves it half of the time."""
    settings: RunSettings = SETTINGS

    @property
    def total_s(self) -> float:
        """How long it runs at least; then until everyone is back."""
        return self.troubled_s + self.calm_s

    @property
    def troubled_s(self) -> float:
        """When all trouble is over."""
        ends_s = [end_s for _, end_s in (*self.disk_full_s, *self.disk_locked_s, *self.store_slow_s)]
        return max([self.faults_s, *ends_s, *(at_s + for_s for at_s, _, for_s in self.hosts_killed_s + self.cut_off_s)])

    @property
    def run_settings(self) -> RunSettings:
        """The settings of the job."""
        drawn = {"replicas": self.replicas, "spares": self.spares, "lead_epochs_max": self.lead_epochs_max}
        return self.settings.model_copy(update=drawn)


def random_scenario(seed: int, replicas: int | None = None) -> Scenario:
    """A run with some of everything; what it is follows from the seed alone.

    >>> random_scenario(4711) == random_scenario(4711)
    True
    >>> random_scenario(4711, replicas=3).replicas
    3
    """
    draw = random.Random(seed)  # noqa: S311 (a seed is the point)
    # Most runs are short: one minute is for thousands of them.
    faults_s = draw.choice((3.0, 3.0, 5.0, 8.0, 16.0))
    count = draw.choice((1, 2, 2, 2, 3, 3))
    return Scenario(
        replicas=replicas or count,
        faults_s=faults_s,
        calm_s=draw.choice((2.0, 4.0)),
        crash_chance=draw.choice((0.0, 0.01, 0.03)),
        hang_chance=draw.choice((0.0, 0.003, 0.01)),
        pause_chance=draw.choice((0.0, 0.02)),
        slow_chance=draw.choice((0.0, 0.02)),
        tear_chance=draw.choice((0.0, 0.5)),
        zombie_chance=0.5,
        slowness=tuple(draw.choice((1.0, 1.0, 1.5, 3.0)) for _ in range(3)),
        blackouts_s=_moments(draw, faults_s, 0.3),
        power_loss=draw.random() < 0.5,
        stops_s=_moments(draw, faults_s, 0.3),
        quiet_s=_spans(draw, faults_s, 0.8, 1.0, 6.0),
        silence_s=_spans(draw, faults_s, 0.2, 1.0, 5.0),
        disk_full_s=_spans(draw, faults_s, 0.15, 0.2, 3.0),
        disk_locked_s=_spans(draw, faults_s, 0.15, 0.5, 4.0),
        clock_jumps_s=_jumps(draw, faults_s),
        lead_epochs_max=draw.choice((2, 3, 6)),
        supervisor_killed_s=_moments(draw, faults_s, 0.25),
        supervisor_hangs_s=_supervisor_hangs(draw, faults_s),
        supervisor_lock=draw.random() < 0.5,
        hold_chance=draw.choice((0.0, 0.0, 0.005, 0.02)),
        store_slow_s=_spans(draw, faults_s, 0.15, 0.5, 4.0),
        stages=draw.choice((1, 1, 2)),
        spares=draw.choice((0, 1, 1, 2)),
        odd_shapes=draw.choice(((), (), ("r1",))),
    )


def random_hosts_scenario(seed: int, hosts: int, replicas: int | None = None) -> Scenario:
    """A run on several hosts: what :func:`random_scenario` draws, without the troubles of a store that is a file.

    >>> random_hosts_scenario(4711, 3).hosts
    3
    """
    draw = random.Random(f"hosts of {seed}")  # noqa: S311 (a seed is the point)
    drawn = random_scenario(seed, replicas)
    faults_s = max(drawn.faults_s, draw.choice((5.0, 8.0, 12.0, 16.0)))
    names = [f"h{number}" for number in range(1, hosts + 1)]
    return replace(
        drawn,
        hosts=hosts,
        faults_s=faults_s,
        hosts_killed_s=_struck(draw, names, faults_s, (0.0, 0.6, 0.3), (0.3, 6.0)),
        cut_off_s=_struck(draw, names, faults_s, (0.8, 0.4, 0.2), (0.3, 8.0)),
        sinks_beyond=draw.random() < 0.5,
        clock_jumps_s=_wrong_clocks(draw, names, faults_s),
        supervisor_killed_s=_moments(draw, faults_s, 0.4),
        supervisor_hangs_s=_hangs(draw, faults_s),
        supervisor_lock=False,
        # Whoever is out of reach is on a host that is cut off. What no store has that hosts share: a lock, one disk.
        zombie_chance=0.0,
        hold_chance=0.0,
        disk_full_s=(),
        disk_locked_s=(),
        power_loss=False,
    )


def with_operations(seed: int, drawn: Scenario) -> Scenario:
    """The same while somebody changes the job, again and again: there is less trouble, and more of it for whoever
    supervises, so that changes are struck and still come to their end.

    >>> scenario = with_operations(4711, random_scenario(4711))
    >>> scenario == with_operations(4711, random_scenario(4711)), len(scenario.operations) > 0
    (True, True)
    """
    draw = random.Random(f"operations of {seed}")  # noqa: S311 (a seed is the point)
    faults_s = draw.choice((8.0, 16.0, 24.0))
    kills = draw.choice((0, 1, 2, 10)) if drawn.supervisor_killed_s or draw.random() < 0.5 else 0
    return replace(
        drawn,
        faults_s=faults_s,
        operations=tuple(_ask(draw, drawn, faults_s) for _ in range(draw.choice((1, 1, 2, 3)))),
        crash_chance=draw.choice((0.0, 0.002, 0.01)),
        hang_chance=draw.choice((0.0, 0.001, 0.003)),
        hold_chance=0.0 if drawn.hosts else draw.choice((0.0, 0.0, 0.002)),
        slowness=tuple(draw.choice((1.0, 1.0, 1.5)) for _ in range(3)),
        faulty=(*(f"r{number}" for number in range(5)), SPARE),
        supervisor_killed_s=tuple(round(draw.uniform(1.0, faults_s), 3) for _ in range(kills)),
    )


def _ask(draw: random.Random, drawn: Scenario, until_s: float) -> Ask:
    kinds = ["partitions", "replicas", "restart", "same results", "deactivate"]
    # Other results are refused for a job of several stages.
    kinds += ["other results", "other results"] if drawn.stages == 1 else []
    kinds += ["move", "move"] if drawn.hosts else []
    what = draw.choice(kinds)
    value = {
        "partitions": draw.choice((2, 4, 8)),
        "replicas": draw.choice((1, 2, 3)),
        "other results": draw.choice((0, 0, 7, 9)),
        "move": 10 * draw.randrange(drawn.replicas) + draw.randint(1, max(1, drawn.hosts)),
    }.get(what, 0)
    return Ask(
        round(draw.uniform(0.5, until_s), 3),
        what,  # type: ignore[arg-type]
        value,
        timeout_s=draw.choice((4.0, 12.0, 60.0, 60.0)),
        at_deadline=draw.choice(("rollback", "rollback", "commit")),
        wish=draw.choice(("", "", "", "commit", "rollback")),
        later_s=round(draw.uniform(0.5, 8.0), 3),
    )


def _struck(
    draw: random.Random, hosts: list[str], until_s: float, chances: tuple[float, ...], span_s: Span
) -> tuple[tuple[float, str, float], ...]:
    """A host and when and for how long, for each chance that comes true."""
    return tuple(
        (round(draw.uniform(1.0, until_s), 3), draw.choice(hosts), round(draw.uniform(*span_s), 3))
        for chance in chances
        if draw.random() < chance
    )


def _wrong_clocks(draw: random.Random, hosts: list[str], until_s: float) -> tuple[tuple[float, str, float], ...]:
    """The clock of a host is minutes off from the beginning, or is set by minutes on the way."""
    at_s = draw.choice((0.0, round(draw.uniform(0.0, until_s), 3)))
    return ((at_s, draw.choice(hosts), round(draw.uniform(-300.0, 300.0), 3)),) if draw.random() < 0.5 else ()


def _supervisor_hangs(draw: random.Random, until_s: float) -> tuple[Span, ...]:
    """Longer than a lease lasts (10 s), and over before faults stop: only long runs have room for it."""
    if until_s < 15.0 or draw.random() >= 0.4:
        return ()
    return ((round(draw.uniform(1.0, 3.0), 3), round(draw.uniform(10.5, 12.5), 3)),)


def _hangs(draw: random.Random, until_s: float) -> tuple[Span, ...]:
    """For less than a session lasts, or for longer."""
    span_s = (round(draw.uniform(1.0, until_s), 3), round(draw.uniform(1.0, 5.0), 3))
    return (span_s,) if draw.random() < 0.3 else ()


def _moments(draw: random.Random, until_s: float, chance: float) -> tuple[float, ...]:
    return (round(draw.uniform(1.0, until_s), 3),) if draw.random() < chance else ()


def _spans(draw: random.Random, until_s: float, chance: float, shortest_s: float, longest_s: float) -> tuple[Span, ...]:
    if draw.random() >= chance:
        return ()
    start_s = round(draw.uniform(1.0, until_s * 0.8), 3)
    return ((start_s, round(start_s + draw.uniform(shortest_s, longest_s), 3)),)


def _jumps(draw: random.Random, until_s: float) -> tuple[tuple[float, str, float], ...]:
    """The machine's clock by up to a minute; one host's by up to two seconds: much for hosts that keep time."""
    found = []
    if draw.random() < 0.3:
        found.append((round(draw.uniform(0.0, until_s), 3), EVERYONE, round(draw.uniform(-60.0, 60.0), 3)))
    if draw.random() < 0.3:
        whose = draw.choice(("supervisor", "r0", "r1"))
        found.append((round(draw.uniform(0.0, until_s), 3), whose, round(draw.uniform(-2.0, 2.0), 3)))
    return tuple(found)
