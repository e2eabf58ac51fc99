"""Bugs to be planted into a policy, each with the promise that it breaks."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.config import PolicySettings
from lockstep.control.policy import scaling
from lockstep.control.policy.attempts import Attempts
from lockstep.control.policy.observations import Failure as Fault
from lockstep.control.policy.policy import Policy
from lockstep.control.policy.scaling import Scaler
from lockstep.control.policy.tolerance import MODES, Mode, Rates, Tolerance
from lockstep.sim.planting import Plant, swapped
from lockstep.sim.policy.scenario import WINDOW_S, Scenario

AUTO = PolicySettings(scaling="auto", tolerance="auto", window_s=WINDOW_S, max_gap_s=10.0)
TIGHT = AUTO.model_copy(update={"budget_cores": 4, "gaps_per_month": 0.05})
LONG_BURST = Scenario(AUTO, partitions=1, swing=0.0, bursts_h=((10.0, 6.0, 4.0),))
STORMS = Scenario(
    AUTO.model_copy(update={"gaps_per_month": 30.0}),
    crashes_per_day=0.0,
    storms_h=((10.0, 6.0, 3.0), (40.0, 6.0, 3.0), (70.0, 6.0, 3.0)),
    warm_s=20.0,
)
OWN_FAULT = Scenario(
    AUTO.model_copy(update={"gaps_per_month": 5.0}),
    crashes_per_day=0.0,
    host_losses_per_day=0.0,
    poison_h=(20.0, 6.0),
)
SLOW_FOR_GOOD = Scenario(
    AUTO.model_copy(update={"replicas_min": 2}),
    crashes_per_day=0.0,
    host_losses_per_day=0.0,
    slow_h=(10.0, 60.0),
    slow_follows=True,
)
LONG_BACKLOG = Scenario(
    AUTO,
    cores=4,
    partitions=4,
    rate_per_s=1500.0,
    swing=0.0,
    bursts_h=((17.0, 4.0, 2.2),),
    crashes_per_day=0.0,
    poison_h=(20.0, 3.0),
)
WIDE_SWING = Scenario(AUTO, cores=16, partitions=1, rate_per_s=8000.0, swing=0.95, phase=0.75)
NEEDS_MORE = Scenario(TIGHT, partitions=2, cores=2, crashes_per_day=4.0, storms_h=((5.0, 4.0, 6.0),))


@dataclass(frozen=True)
class Bug:
    """One broken rule."""

    name: str
    sentence: str
    promise: str
    """The promise that the simulator finds broken."""
    plant: Plant
    scenario: Scenario | None = None
    """Where it shows; None: in what the seeds draw."""


def _lower_at_once(tolerance: Tolerance, current: Mode, needed: Mode, now_us: int) -> Mode | None:
    del tolerance, now_us
    return needed if MODES.index(needed) < MODES.index(current) else None


def _count_at_once(tolerance: Tolerance, failure: Fault) -> None:
    tolerance._count(failure)


def _one_step(scaler: Scaler, partitions: int, cost: object) -> float:
    """As if the next size were always enough."""
    assert scaler.seen is not None and cost is not None
    return 1e12 if partitions > scaler.seen.partitions else 0.0


BUGS = (
    Bug(
        "no-quiet-hour",
        "Replicas are taken away as soon as fewer seem enough.",
        "quiet",
        swapped((Tolerance, "_lower", _lower_at_once)),
        STORMS,
    ),
    Bug(
        "last-window-counts",
        "A job is made smaller by what came in the last window, not by the most of the hour.",
        "hour",
        swapped(
            (Scaler, "most_of_the_hour", lambda scaler: scaler.rate_per_s),
            (Scaler, "_ahead_per_s", lambda scaler, now_us: 0.0),  # noqa: ARG005
        ),
        LONG_BURST,
    ),
    Bug(
        "backlog-unseen",
        "What waits is no reason not to make a job smaller.",
        "backlog",
        swapped((scaling, "has_backlog", lambda backlog, rate_per_s: False)),  # noqa: ARG005
        LONG_BACKLOG,
    ),
    Bug(
        "own-faults-count",
        "A job that crashes by its own fault, again and again in one epoch, gets more replicas for it.",
        "own fault",
        swapped((Tolerance, "_note", _count_at_once)),
        OWN_FAULT,
    ),
    Bug(
        "useless-again",
        "What did not help is tried again.",
        "repeated",
        swapped((Attempts, "is_useless", lambda attempts, action, now_us: False)),  # noqa: ARG005
        SLOW_FOR_GOOD,
    ),
    Bug(
        "one-at-a-time",
        "A job grows by one partition after the other.",
        "flapping",
        swapped(
            (Scaler, "capacity_with", _one_step),
            (Scaler, "judged", lambda scaler: setattr(scaler, "trial", None)),
        ),
        WIDE_SWING,
    ),
    Bug(
        "budget-unseen",
        "Replicas are added whatever they cost.",
        "budget",
        swapped((Policy, "_replicas_max", lambda policy, seen: 3)),  # noqa: ARG005
        NEEDS_MORE,
    ),
    Bug(
        "nothing-learned",
        "Failures are seen, and not remembered.",
        "targets",
        swapped((Rates, "add", lambda rates, cause, host: None)),  # noqa: ARG005
    ),
    Bug(
        "always-three",
        "Whatever is asked for, three replicas are taken if they may be.",
        "cost",
        swapped(
            (Tolerance, "_needed", lambda tolerance, allowed, gaps: allowed[-1]),  # noqa: ARG005
            (Tolerance, "_smaller", lambda tolerance, allowed, gaps, current: current),  # noqa: ARG005
        ),
    ),
)


def bug_named(name: str) -> Bug | None:
    """The bug of this name.

    >>> bug_named("own-faults-count").promise
    'own fault'
    """
    return next((bug for bug in BUGS if bug.name == name), None)
