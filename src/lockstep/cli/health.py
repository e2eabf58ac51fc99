"""What to say of a job's state: a pure function of what its replicas reported and of the time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from lockstep.clock import US_PER_S

if TYPE_CHECKING:
    from lockstep.store.protocols import Progress

State = Literal["healthy", "degraded", "not running"]
_ENDED = frozenset({"stopped", "failed"})


@dataclass(frozen=True)
class ReplicaHealth:
    """One replica: whether its process lives, how far behind the head it is, whether losing the others would show."""

    replica: str
    state: str
    alive: bool
    epoch: int
    lag_epochs: int
    within_lead: bool
    epoch_s: float
    incarnation: int
    pid: int
    note: str


@dataclass(frozen=True)
class Health:
    """The job's state, a sentence that says why, and its replicas."""

    state: State
    reason: str
    replicas: tuple[ReplicaHealth, ...]


def judge_health(
    progress: Sequence[Progress],
    head_epoch: int,
    now_us: int,
    *,
    lead_epochs_max: int,
    silence_max_s: float,
    pid_exists: Callable[[int], bool],
) -> Health:
    """Healthy while every replica of the set is within the lead; degraded while one is not; not running if none lives.

    A replica lives if its process exists and it has reported within ``silence_max_s``. One that was started alone
    (plain mode) is healthy alone.
    """

    def judge(one: Progress) -> ReplicaHealth:
        silent = now_us - one.updated_us > silence_max_s * US_PER_S
        alive = one.state not in _ENDED and not silent and pid_exists(one.pid)
        lag = max(0, head_epoch - one.epoch)
        within = alive and one.state == "running" and lag <= lead_epochs_max
        return ReplicaHealth(
            one.replica, one.state, alive, one.epoch, lag, within, one.epoch_s, one.incarnation, one.pid, one.note
        )

    replicas = tuple(judge(one) for one in progress)
    behind = [replica for replica in replicas if not replica.within_lead]
    if not any(replica.alive for replica in replicas):
        return Health("not running", "no replica is alive", replicas)
    if behind:
        return Health("degraded", "; ".join(_complaint(replica) for replica in behind), replicas)
    return Health("healthy", "every replica is within the lead", replicas)


def _complaint(replica: ReplicaHealth) -> str:
    if not replica.alive:
        return f"{replica.replica} is not alive (it last said: {replica.state})"
    if replica.state != "running":
        return f"{replica.replica} is {replica.state}"
    return f"{replica.replica} is {replica.lag_epochs} epochs behind"
