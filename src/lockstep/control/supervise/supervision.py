"""What to do about each replica: a pure function of what is seen and a passed-in time.

The shell around it (``supervisor.py``) starts and kills processes; nothing here does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.runtime.spec import EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_JOB_ERROR, Seed
from lockstep.store.protocols import BOOTING, COMPUTING, Progress

PATIENCE_FACTOR = 5
"""The replica that is furthest is given this many times the hang timeout: killing it is certain to stop the output. So
is one that another has passed if it uses the processor without a task coming to its end, and a start that does so."""
BEHIND_TIMEOUT_S = 60.0
"""A replica whose lag has not shrunk over this long while it is behind is replaced by a seeded one."""


@dataclass(frozen=True)
class Seen:
    """One replica as the supervisor sees it."""

    name: str
    alive: bool
    started_us: int
    progress: Progress | None
    """Its newest word, if it is of the incarnation that runs now."""
    exit_code: int | None = None
    """How it ended, while it waits to be started again; None if it never ran or runs."""
    ended_us: int = 0
    restarts_us: tuple[int, ...] = ()
    """When it was started again, the recent ones."""
    given_up: bool = False
    behind_since_us: int | None = None
    behind_then_epochs: int = 0
    busy_us: int = 0
    """When its processes were last seen using the processor; looked at only where nothing else seems to move."""
    failed_after: int | None = None
    """The newest epoch it had computed when it last met an error of the job itself; None if it never did."""
    leaves_since_us: int | None = None
    """Since when it has been asked to end, to be started on another host."""
    kind: str = ""
    """What its process was started with: replicas of another kind may not have its errors."""


@dataclass(frozen=True)
class Start:
    """Start a process for this replica."""

    replica: str
    seed: Seed


@dataclass(frozen=True)
class Kill:
    """End this replica's process group; it is started again afterwards."""

    replica: str
    reason: str


@dataclass(frozen=True)
class GiveUp:
    """Do not start this replica again."""

    replica: str
    reason: str


@dataclass(frozen=True)
class StopJob:
    """Nothing sensible is left to do: stop, and show why."""

    replica: str
    reason: str


@dataclass(frozen=True)
class Move:
    """Ask this replica to end after its epoch; it is started again where it is alone."""

    replica: str
    reason: str


Action = Start | Kill | GiveUp | StopJob | Move


@dataclass(frozen=True)
class Held:
    """The store's write lock as it is seen from outside: a process of this replica has held it since then."""

    replica: str
    since_us: int
    stopped: bool
    """Whether that process is stopped (SIGSTOP): then it will not give the lock back by itself."""


def held_now(
    before: Held | None, replica: str | None, now_us: int, *, stopped: bool, waits_since_us: int | None = None
) -> Held | None:
    """What is held now, given what was at the look before; None if nobody of ours holds it.

    >>> first = held_now(None, "r0", 5, stopped=True)
    >>> held_now(first, "r0", 9, stopped=True), held_now(first, "r1", 9, stopped=False)
    (Held(replica='r0', since_us=5, stopped=True), Held(replica='r1', since_us=9, stopped=False))

    Whoever looks may have waited for the lock itself, in vain, and could not look meanwhile. A stopped process has it
    all that time, as far as anybody can tell; to begin to count only now would let everybody wait twice as long.

    >>> held_now(None, "r0", 9, stopped=True, waits_since_us=5)
    Held(replica='r0', since_us=5, stopped=True)
    """
    if replica is None:
        return None
    if before is not None and before.replica == replica:
        return Held(replica, before.since_us, stopped)
    return Held(replica, waits_since_us if stopped and waits_since_us is not None else now_us, stopped)


def pass_by(held: Held, now_us: int, settings: RunSettings) -> Kill | None:
    """Whether to end whoever holds the lock that everybody waits for; the store itself is not asked.

    A transaction takes milliseconds. A stopped process has its until somebody lets it go on, and the others leave the
    set after ``lag_timeout_s``. One that is not stopped may be waiting for a slow disk.
    """
    held_s = (now_us - held.since_us) / US_PER_S
    if held.stopped and held_s >= settings.lag_timeout_s:
        return Kill(held.replica, f"it is stopped and has held the store's write lock for {held_s:.0f} s")
    if held_s >= settings.hang_timeout_s:
        return Kill(held.replica, f"it has held the store's write lock for {held_s:.0f} s")
    return None


def decide(replicas: Sequence[Seen], head: int, now_us: int, settings: RunSettings) -> list[Action]:
    """What to do now, in order."""
    actions: list[Action] = []
    for one in replicas:
        others = [other for other in replicas if other.name != one.name and is_healthy(other, head, settings)]
        action = _for_running(one, others, head, now_us, settings) if one.alive else None
        if not one.alive and not one.given_up:
            action = _for_ended(one, others, replicas, now_us, settings)
        if isinstance(action, Start) and _must_wait(replicas, actions, head, settings):
            continue
        if action is not None:
            actions.append(action)
    return actions


def spread(
    crowded: str | None, for_s: float, replicas: Sequence[Seen], head: int, now_us: int, settings: RunSettings
) -> Move | None:
    """Whether a replica leaves the host that it shares; ``for_s`` is how long another host has been free.

    It may go again at once, hence the wait. And only while all are well, and this one has been for a while: until it
    has booted there, the others alone have the output going.
    """
    one = next((one for one in replicas if one.name == crowded), None)
    if one is None or for_s < settings.spread_after_s or restarts_within(one.restarts_us, now_us, settings):
        return None
    if not all(is_healthy(each, head, settings) for each in replicas if not each.given_up):
        return None
    return Move(one.name, "it shares its host, which would end both, and another host has none")


def may_leave(one: Seen, others: Sequence[Seen], needed: int, head: int, settings: RunSettings) -> bool:
    """Whether a replica may make room for what a change wants: so many ``others`` compute, or all that still may.

    One that does not compute takes nothing away. Those that were given up are not waited for: no change would end.
    """
    computing = sum(is_healthy(other, head, settings) for other in others)
    hoped_for = sum(not other.given_up for other in others)
    return not is_healthy(one, head, settings) or computing >= min(needed, hoped_for)


def _must_wait(replicas: Sequence[Seen], actions: Sequence[Action], head: int, settings: RunSettings) -> bool:
    """Whether another boot comes first: beside those who publish one is enough. If nobody does, all boot at once."""
    publishing = any(is_healthy(one, head, settings) for one in replicas)
    return publishing and (
        any(one.alive and is_booting(one.progress) for one in replicas)
        or any(isinstance(one, Start) for one in actions)
    )


def is_booting(said: Progress | None) -> bool:
    """Whether a replica that lives has no epoch under way yet, as its newest word tells.

    One that is in its first has booted: should it hang there, it must not keep others from booting.
    """
    return said is None or (said.state in BOOTING and said.working_on < 0)


def is_healthy(one: Seen, head: int, settings: RunSettings) -> bool:
    """Whether a replica computes, within the lead."""
    return (
        one.alive
        and one.progress is not None
        and one.progress.state in COMPUTING
        and head - one.progress.epoch <= settings.lead_epochs_max
    )


def _for_running(one: Seen, others: list[Seen], head: int, now_us: int, settings: RunSettings) -> Action | None:
    said = one.progress
    if one.leaves_since_us is not None:
        late = (now_us - one.leaves_since_us) / US_PER_S > settings.stop_timeout_s
        return Kill(one.name, f"it did not end within {settings.stop_timeout_s:.0f} s") if late else None
    if said is None or (said.state not in (*COMPUTING, "diverged") and said.working_on < 0):
        return _for_starting(one, now_us, settings)
    if said.state == "diverged" or said.epoch >= head:
        return None
    # Only if someone else got past the epoch is it proven that it can be done in time.
    ahead = any(other.progress is not None and other.progress.epoch > said.epoch for other in others)
    still_s = (now_us - _last_sign_us(one, said, is_processor_time_enough=not ahead)) / US_PER_S
    lone = not ahead or _is_busy(one, now_us, settings)
    if still_s > settings.hang_timeout_s * (PATIENCE_FACTOR if lone else 1):
        return Kill(one.name, f"nothing has moved in epoch {said.epoch + 1} for {still_s:.0f} s")
    if others and one.behind_since_us is not None:
        behind_s = (now_us - one.behind_since_us) / US_PER_S
        if behind_s > BEHIND_TIMEOUT_S and head - said.epoch >= one.behind_then_epochs:
            return Kill(one.name, f"{head - said.epoch} epochs behind and not gaining")
    return None


def _for_starting(one: Seen, now_us: int, settings: RunSettings) -> Action | None:
    """Before its first epoch is under way. A start that uses the processor is slow rather than stuck."""
    patience_s = settings.start_timeout_s * (PATIENCE_FACTOR if _is_busy(one, now_us, settings) else 1)
    late = (now_us - one.started_us) / US_PER_S > patience_s
    return Kill(one.name, f"it did not reach its first epoch within {patience_s:.0f} s") if late else None


def _last_sign_us(one: Seen, said: Progress, *, is_processor_time_enough: bool) -> int:
    """When something last moved: an epoch, a task, a row. An epoch that is too large for this machine takes its time.

    One long task moves no counter for minutes (a join of few keys): processor time is a sign too. But a replica that
    turns in circles uses it as well, so it is not enough where another has shown that the epoch can be done.
    """
    seen_us = one.busy_us if is_processor_time_enough else 0
    return max(said.moved_us, said.active_us, one.started_us, seen_us)


def _is_busy(one: Seen, now_us: int, settings: RunSettings) -> bool:
    return now_us - one.busy_us <= settings.hang_timeout_s * US_PER_S


def _for_ended(
    one: Seen, others: list[Seen], replicas: Sequence[Seen], now_us: int, settings: RunSettings
) -> Action | None:
    if one.exit_code is None:
        return Start(one.name, "auto")
    if one.exit_code == EXIT_JOB_ERROR and not _may_pass_elsewhere(one, replicas):
        return StopJob(one.name, "the job itself fails, so starting it again would fail again")
    recent = restarts_within(one.restarts_us, now_us, settings)
    if len(recent) >= settings.restarts_max:
        reason = f"{len(recent)} restarts within {settings.restart_window_s:.0f} s"
        hope = any(other.alive or not other.given_up for other in replicas if other.name != one.name)
        return GiveUp(one.name, reason) if hope else StopJob(one.name, f"{reason} and none held")
    if now_us - one.ended_us < backoff_s(len(recent), settings) * US_PER_S:
        return None
    if one.exit_code == EXIT_DIVERGED and not others and any(other.alive for other in replicas):
        # Its own checkpoint is what it was outvoted about: wait for someone to be seeded from.
        return None
    # A checkpoint that failed once is not tried again while a peer has a good one.
    unsound = one.exit_code in (EXIT_CHECKPOINT, EXIT_DIVERGED, EXIT_JOB_ERROR) or len(recent) >= 2
    return Start(one.name, "peer" if unsound and others else "auto")


def _may_pass_elsewhere(one: Seen, replicas: Sequence[Seen]) -> bool:
    """Whether another replica may get past the error: one that lives and has not met it at the same epoch itself."""
    others = [other for other in replicas if other.name != one.name]
    if any(other.alive and other.kind != one.kind for other in others):
        return True
    alike = [other for other in others if other.kind == one.kind]
    return any(other.alive for other in alike) and all(other.failed_after != one.failed_after for other in alike)


def restarts_within(restarts_us: Sequence[int], now_us: int, settings: RunSettings) -> list[int]:
    """The restarts that still count against the limit."""
    return [at for at in restarts_us if now_us - at < settings.restart_window_s * US_PER_S]


def backoff_s(restarts: int, settings: RunSettings) -> float:
    """How long to wait before the next start: none for the first failure, then doubling.

    >>> [backoff_s(n, RunSettings(restart_backoff_s=0.5)) for n in range(5)]
    [0.0, 0.5, 1.0, 2.0, 4.0]
    """
    if restarts == 0:
        return 0.0
    return float(min(settings.restart_backoff_s * 2 ** (restarts - 1), settings.restart_backoff_max_s))
