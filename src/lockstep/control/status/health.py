"""What to say of a job's state: a pure function of what its replicas reported, of its events, and of the time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from lockstep.clock import US_PER_S
from lockstep.store.protocols import BOOTING, COMPUTING, NO_EXECUTORS, Progress

State = Literal["healthy", "starting", "degraded", "stalled", "stopping", "stopped", "not running"]
Event = tuple[int, int, str, str, str]
"""(id, at_us, kind, replica, text), as the store gives them."""

LONG_EPOCH_S = 2.0
"""Longer than an epoch should take: then people want to know what it is doing."""
_ENDED = frozenset({"stopped", "failed"})
_NOT_YET = Progress("", incarnation=0, pid=0, state="not started")


@dataclass(frozen=True)
class History:
    """What the events of one run tell of a replica."""

    starts: int = 0
    started_us: int = 0
    pid: int = 0
    """Of the newest start."""
    host: str = ""
    """Where that was, if the job lives on several hosts."""
    ended: bool = False
    given_up: bool = False


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
    restarts: int
    pid: int
    note: str
    host: str = ""
    starting_s: float | None = None
    """For how long it has been starting; None once it computes, or if nobody knows."""
    working_on: int = -1
    """The epoch under way, -1 if none is."""
    under_way_s: float = 0.0
    tasks: int = 0
    tasks_done: int = 0
    executors: int | None = None
    """How many executors it has; None where it needs none, since its master is local."""
    executors_lost: int = 0
    environment: str = ""
    """What it runs in, in words; empty if it has not said so yet."""

    @property
    def executors_text(self) -> str:
        """Its executors in words; empty where it has none of its own, or is not alive."""
        if not self.alive or self.executors is None:
            return ""
        lost = f", {self.executors_lost} lost since its start" if self.executors_lost else ""
        return f"{self.executors} executor{'s' if self.executors != 1 else ''}{lost}"

    @property
    def work(self) -> str:
        """What it is doing, if that takes long enough to be asked about."""
        if not self.alive or self.working_on < 0 or self.under_way_s < LONG_EPOCH_S:
            return ""
        tasks = f", {self.tasks_done} of {self.tasks} tasks done" if self.tasks else ""
        return f"epoch {self.working_on} under way for {self.under_way_s:.0f} s{tasks}"


@dataclass(frozen=True)
class Health:
    """The job's state, a sentence that says why, and its replicas."""

    state: State
    reason: str
    replicas: tuple[ReplicaHealth, ...]


@dataclass(frozen=True)
class Limits:
    """What counts as well. A replica lives if its process exists and it has reported within ``silence_max_s``."""

    wanted: int
    lead_epochs_max: int
    silence_max_s: float
    publication_max_s: float
    """Output that is older than this has stopped: three heartbeats."""


def histories(events: Iterable[Event], before: Mapping[str, History] | None = None) -> dict[str, History]:
    """Each replica's history after these events.

    >>> histories([(1, 5, "replica-started", "r0", "pid 7, start 1"), (2, 9, "replica-ended", "r0", "exit code -9")])
    {'r0': History(starts=1, started_us=5, pid=7, host='', ended=True, given_up=False)}
    """
    after = dict(before or {})
    for _, at_us, kind, replica, text in events:
        known = after.get(replica, History())
        if kind == "replica-started":
            pid = re.match(r"pid (\d+)(?: on ([^\s,]+))?", text)
            after[replica] = History(known.starts + 1, at_us, int(pid[1]) if pid else 0, (pid[2] or "") if pid else "")
        elif kind == "replica-ended":
            after[replica] = replace(known, ended=True)
        elif kind == "replica-given-up":
            after[replica] = replace(known, given_up=True)
    return after


def judge_health(
    progress: Sequence[Progress],
    history: Mapping[str, History],
    head_epoch: int,
    published_us: int,
    now_us: int,
    *,
    limits: Limits,
    pid_exists: Callable[[int], bool],
) -> Health:
    """The state of a job.

    Degraded while fewer than two replicas are within the lead: then losing one would be noticed. Of a job that wants
    one replica (plain mode), that one has to be. Stalled if nothing was published for longer than three heartbeats,
    whatever the replicas say of themselves; ``published_us`` is when something was, or the run began.
    """
    said = {one.replica: one for one in progress}
    names = sorted({*said, *history})

    replicas = []
    for name in names:
        word, past = said.get(name, replace(_NOT_YET, replica=name)), history.get(name, History())
        alive, state = _process(word, past, now_us, limits.silence_max_s, pid_exists)
        lag = max(0, head_epoch - word.epoch)
        # Without executors it computes nothing, though its process lives and has caught up with what is sealed.
        within = alive and state in COMPUTING and lag <= limits.lead_epochs_max and word.executors != 0
        replicas.append(_seen(word, past, now_us, alive=alive, state=state, lag_epochs=lag, within_lead=within))
    still_s = (now_us - published_us) / US_PER_S
    return Health(*_state(replicas, limits, still_s), tuple(replicas))


def _process(
    said: Progress, history: History, now_us: int, silence_max_s: float, pid_exists: Callable[[int], bool]
) -> tuple[bool, str]:
    """Whether the process lives, and its state."""
    if _about_to_speak(said, history):
        # In idle time a process may be long in coming to its first word; one that never does, its supervisor ends.
        alive = history.pid > 0 and (bool(history.host) or pid_exists(history.pid))
        return alive, "given up" if history.given_up else "starting"
    silent = now_us - said.updated_us > silence_max_s * US_PER_S
    alive = said.state not in _ENDED and not silent and (bool(said.host) or pid_exists(said.pid))
    return alive, "given up" if history.given_up else said.state


def _about_to_speak(said: Progress, history: History) -> bool:
    """Whether its newest word is of an earlier start: the process is there, and has said nothing yet."""
    return history.started_us > said.updated_us and not history.ended


def _seen(
    said: Progress, history: History, now_us: int, *, alive: bool, state: str, lag_epochs: int, within_lead: bool
) -> ReplicaHealth:
    booting = alive and state in BOOTING and history.started_us > 0
    return ReplicaHealth(
        replica=said.replica,
        state=state,
        alive=alive,
        epoch=said.epoch,
        lag_epochs=lag_epochs,
        within_lead=within_lead,
        epoch_s=said.epoch_s,
        restarts=max(0, history.starts - 1),
        pid=0 if _about_to_speak(said, history) else said.pid,
        note=said.note,
        host=said.host,
        starting_s=(now_us - history.started_us) / US_PER_S if booting else None,
        working_on=said.working_on,
        under_way_s=(now_us - said.begun_us) / US_PER_S if said.begun_us else 0.0,
        tasks=said.tasks,
        tasks_done=said.tasks_done,
        executors=said.executors if said.executors != NO_EXECUTORS else None,
        executors_lost=said.executors_lost,
    )


def _state(replicas: Sequence[ReplicaHealth], limits: Limits, still_s: float) -> tuple[State, str]:
    ready = [one for one in replicas if one.within_lead]
    others = "; ".join(_complaint(one) for one in replicas if not one.within_lead)
    alive = [one for one in replicas if one.alive]
    if not alive:
        stopped = bool(replicas) and all(one.state == "stopped" for one in replicas)
        return ("stopped", "the next run goes on from there") if stopped else ("not running", "no replica is alive")
    if any(one.state == "draining" for one in alive):
        return "stopping", "the epoch under way is finished first"
    few = len(ready) < min(2, limits.wanted)
    if few and others and all(one.within_lead or _starts_for_the_first_time(one) for one in replicas):
        return "starting", _with_work(others, replicas)
    if still_s > limits.publication_max_s:
        return "stalled", _with_work(f"nothing was published for {still_s:.0f} s", replicas, others)
    if few:
        return "degraded", others or f"{len(ready)} of {limits.wanted} replicas were started"
    some = f"{len(ready)} of {len(replicas)} replicas are within the lead: {others}"
    return "healthy", some if others else "every replica is within the lead"


def _with_work(fact: str, replicas: Sequence[ReplicaHealth], others: str = "") -> str:
    """A fact, and what each replica is doing meanwhile."""
    work = [f"{one.replica}: {one.work}" for one in replicas if one.work]
    return "; ".join([fact, *work, *([others] if others else [])])


def _starts_for_the_first_time(one: ReplicaHealth) -> bool:
    """Nothing is wrong with such a replica: the run has just begun."""
    return one.starting_s is not None and one.restarts == 0


def _complaint(replica: ReplicaHealth) -> str:
    if replica.state == "given up":
        return f"{replica.replica} was given up after {replica.restarts} restarts"
    if not replica.alive:
        return f"{replica.replica} is not alive (it last said: {replica.state})"
    if replica.state not in COMPUTING:
        return f"{replica.replica} is {replica.state}"
    if replica.executors == 0:
        return f"{replica.replica} has no executor ({replica.executors_lost} lost since its start)"
    return f"{replica.replica} is {replica.lag_epochs} epochs behind"
