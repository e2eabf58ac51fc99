"""When to seal the next epoch and how much to put into it: pure functions of what is known and a passed-in time.

If whoever is fastest sealed as fast as it could, a replica that is behind would stay behind for ever, and losing the
leader would cost its whole lag. So the interval follows the slowest live replica, and epochs grow instead: most of an
epoch's cost is fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.store.protocols import COMPUTING, Progress, Published

SLACK = 1.3
"""The interval is at least this much longer than the slowest replica's epoch, or it could never gain on the head."""
SLACK_CATCHING_UP = 3.0
"""Beside one that is far behind: it computes epochs back to back, so it moves three times as fast as the head."""
SLACK_JOINING = 1.7
"""Of the epochs of those who publish, beside one that is a few epochs behind and computes them in idle time. Beside a
full set it is 1.3: a third longer is less than an epoch's time varies by anyway. Twice as long was felt (measured)."""
JOINING_EPOCHS = 10
TELLING_SHARE = 0.1
"""An epoch that held less of the record limit than this was not slow because of its records."""
GROWTH = 4
"""The record limit grows by this much from one epoch to the next at most; by half of it if only the line through what
was seen speaks for more, since the line may lie and an epoch that is far too long throws replicas out of the set."""
COLD_EPOCHS = 5
"""The first epochs of a process also compile and load: they may raise the record limit, and do not lower it."""
ABOUT_AS_LONG = 1.5
"""An epoch that took at most this much longer than the one before, with as many records or more, took about as long."""
LIMIT_LEARNED_EPOCHS = 50
"""So many of the newest epochs of the run before tell how large a first epoch may be."""
RECENT_EPOCHS = 7
"""An epoch's typical time is that of the middle one of so many."""
FRESH_S = 5.0
"""A replica that said nothing for this long is not counted; it reports once a second even when idle."""


@dataclass(frozen=True)
class View:
    """What the replica that is ready for ``epoch`` knows when it decides."""

    epoch: int
    now_us: int
    last_sealed_us: int | None
    """Epoch time of the newest entry, None before the first."""
    has_data: bool
    progress: Sequence[Progress]
    """Everyone's newest word, the deciding replica's own included."""
    waited_s: float = 0.0
    """How long the deciding replica has been ready, by a clock that nobody sets."""


@dataclass(frozen=True)
class Seal:
    """Seal now."""


@dataclass(frozen=True)
class Wait:
    """Look again after this long."""

    seconds: float
    reason: str


def decide(view: View, settings: RunSettings) -> Seal | Wait:
    """Whether to seal ``view.epoch`` now.

    >>> decide(View(0, 0, None, has_data=True, progress=()), RunSettings())
    Seal()
    >>> decide(View(7, 1_000_000, 950_000, has_data=True, progress=()), RunSettings(epoch_interval_s=0.2))
    Wait(seconds=0.15, reason='interval')
    """
    lead = view.epoch - slowest_in_set(view, settings)
    if lead > settings.lead_epochs_max:
        return Wait(0.02, "lead")
    if view.last_sealed_us is None:
        return Seal()
    since_s = (view.now_us - view.last_sealed_us) / US_PER_S
    if since_s < 0:
        # The clock was set back: epoch time moves on one microsecond at a time until the clock has caught up. Interval
        # and heartbeat hold all the same, counted from when this replica was ready.
        since_s = view.waited_s
    interval_s = seal_interval_s(view, settings)
    if since_s < interval_s:
        return Wait(round(interval_s - since_s, 6), "interval")
    if view.has_data or since_s >= settings.heartbeat_interval_s:
        return Seal()
    return Wait(min(settings.heartbeat_interval_s - since_s, 0.01), "data")


def seal_interval_s(view: View, settings: RunSettings) -> float:
    """The shortest time between two seals, given how long the live replicas take for an epoch."""
    fresh = [one for one in view.progress if is_fresh(one, view.now_us)]
    joining = [one for one in fresh if is_joining(one)]
    publishing = [one for one in fresh if one.state == "running"]
    if len(publishing) + len(joining) < 2:
        return settings.epoch_interval_s
    # Until its first epoch is computed nobody knows whether it works at all: it is not far behind yet.
    lag = max((view.epoch - 1 - one.epoch if one.state == "catching-up" else 1 for one in joining), default=0)
    wanted_s = _interval_s(_slowest_s(publishing), _slowest_s(joining), lag)
    # Whoever takes longer than the lag timeout leaves the set; one epoch with a long pause in it must not hold all.
    return max(settings.epoch_interval_s, min(wanted_s, settings.lag_timeout_s))


def _interval_s(publishing_s: float, joining_s: float, lag_epochs: int) -> float:
    """From seal to seal, where those who publish and those who are behind take so long for an epoch.

    >>> _interval_s(0.2, 0.0, 0), round(_interval_s(0.2, 0.3, 3), 2), round(_interval_s(0.2, 0.3, 40), 2)
    (0.26, 0.39, 0.9)
    """
    slowest_s = max(publishing_s, joining_s)
    if lag_epochs > JOINING_EPOCHS:
        return slowest_s * SLACK_CATCHING_UP
    return max(slowest_s * SLACK, publishing_s * SLACK_JOINING if lag_epochs > 0 else 0.0)


def _slowest_s(replicas: Sequence[Progress]) -> float:
    return max((one.epoch_s for one in replicas), default=0.0)


def is_joining(one: Progress) -> bool:
    """Whether a replica has its seed and is on its way to the head."""
    return one.state == "catching-up" or (one.state == "starting" and one.epoch >= 0)


def slowest_in_set(view: View, settings: RunSettings) -> int:
    """The newest epoch that every replica in the set has computed (the deciding replica itself has ``epoch - 1``)."""
    members = [one.epoch for one in view.progress if in_set(one, view, settings)]
    return min([*members, view.epoch - 1])


def in_set(one: Progress, view: View, settings: RunSettings) -> bool:
    """Whether the others wait for this replica: it runs, and it has moved lately or has nothing to do."""
    if one.state != "running" or not is_live(one, view.now_us):
        return False
    moved_s = (view.now_us - one.moved_us) / US_PER_S
    return moved_s < settings.lag_timeout_s or one.epoch >= view.epoch - 1


def is_live(one: Progress, now_us: int) -> bool:
    """Whether this replica computes epochs now, as far as its newest word tells."""
    return one.state in COMPUTING and is_fresh(one, now_us)


def is_fresh(one: Progress, now_us: int) -> bool:
    """Whether what a replica last said still holds."""
    return (now_us - one.updated_us) / US_PER_S < FRESH_S


@dataclass(frozen=True)
class EpochCost:
    """What epochs cost here, of late: so much each, and so much a record; a line through what was seen.

    Without it a slow machine would be taken for slow records: the limit would shrink, which saves next to nothing of an
    epoch's time, so it would shrink again, down to a crawl (measured).

    >>> cost = EpochCost()
    >>> for records, took_s in [(1000, 1.5), (500, 1.3), (2000, 1.9)]:
    ...     cost = cost.after(records, took_s)
    >>> round(cost.fixed_s, 1)
    1.1
    """

    weight: float = 0.0
    records: float = 0.0
    took_s: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def after(self, records: int, took_s: float) -> EpochCost:
        """With one more epoch; what was seen twenty epochs ago counts for a third."""
        kept = 0.95
        return EpochCost(
            self.weight * kept + 1,
            self.records * kept + records,
            self.took_s * kept + took_s,
            self.squares * kept + records * records,
            self.products * kept + records * took_s,
        )

    @property
    def fixed_s(self) -> float:
        """What an epoch without records would take; 0 while all epochs were about the same size, so nobody knows."""
        if not self.weight:
            return 0.0
        mean, took_s = self.records / self.weight, self.took_s / self.weight
        spread = self.squares / self.weight - mean * mean
        if spread <= (0.1 * mean) ** 2:
            return 0.0
        slope = max(0.0, (self.products / self.weight - mean * took_s) / spread)
        return max(0.0, took_s - slope * mean)


def first_record_limit(settings: RunSettings, before: Iterable[Published] = ()) -> int:
    """The record limit of a process that has measured nothing yet.

    Nobody knows what a record costs: in a join of few keys each one meets all others, and 20,000 of them can take
    minutes. 1,000 are 400 times fewer pairs. It is no loss for long: GROWTH raises the limit to 4,000, 16,000, 64,000,
    256,000 from one epoch to the next, so a backlog costs some four epochs more.

    >>> first_record_limit(RunSettings()), first_record_limit(RunSettings(records_per_epoch_max=500))
    (1000, 500)

    After a restart the epochs ``before`` tell what can be done in time; a process that is cold begins with a quarter.

    >>> first_record_limit(RunSettings(), [Published(7, "r1", 0, 80_000, None, None, epoch_s=1.6)])
    20000
    """
    slow_s = max(settings.epoch_target_s, settings.epoch_target_behind_s)
    in_time = max((one.records for one in before if one.epoch_s <= slow_s), default=0)
    return min(max(settings.records_per_epoch_start, in_time // GROWTH), settings.records_per_epoch_max)


def next_record_limit(
    limit: int,
    records: int,
    epoch_s: float,
    settings: RunSettings,
    fixed_s: float = 0.0,
    *,
    cold: bool = False,
    waited_s: float = 0.0,
    before_s: float = 0.0,
) -> int:
    """The record limit after an epoch of ``records`` took ``epoch_s``: aim at the target time, in steps of GROWTH.

    An epoch that was not full says nothing about what a full one would take, unless it was too slow already. Even then
    it says nothing if it was nearly empty: few records are not what takes a second on a busy machine, and a limit that
    follows them down would keep the job at a crawl long after.

    >>> next_record_limit(1000, 1000, 0.1, RunSettings(epoch_target_s=1.0))
    4000
    >>> next_record_limit(1000, 1000, 4.0, RunSettings(epoch_target_s=1.0))
    250
    >>> next_record_limit(1000, 10, 0.1, RunSettings(epoch_target_s=1.0))
    1000
    >>> next_record_limit(20_000, 200, 1.2, RunSettings(epoch_target_s=1.0))
    20000

    Where an epoch takes the target time and more whatever it holds, as on a machine that is overrun, its records may
    take as long again: many in few epochs is the only way to keep up.

    >>> next_record_limit(1000, 1000, 1.7, RunSettings(epoch_target_s=1.0), fixed_s=1.5)
    2000

    A process that is still cold is slow whatever the epoch holds:

    >>> next_record_limit(1000, 1000, 4.0, RunSettings(epoch_target_s=1.0), cold=True)
    1000

    If it took about as long as the one before it (``before_s``), twice as many are tried: where records are not what
    takes the time, a small first limit must not last.

    >>> next_record_limit(1000, 1000, 3.0, RunSettings(epoch_target_s=1.0), cold=True, before_s=3.5)
    2000

    An epoch that another replica sealed may be larger than the limit here; that it went well counts.

    >>> next_record_limit(1000, 50_000, 0.8, RunSettings(epoch_target_s=1.0))
    62500

    Records that had waited long before their epoch was sealed are a backlog: larger epochs end it sooner.

    >>> next_record_limit(1000, 1000, 1.0, RunSettings(epoch_target_s=1.0, epoch_target_behind_s=2.0), waited_s=30)
    2000
    """
    is_full = records >= limit * 0.8
    target_s = epoch_target_s(waited_s if is_full else 0.0, settings)
    if epoch_s <= 0 or (not is_full and epoch_s <= target_s) or records < limit * TELLING_SHARE:
        return limit
    allowed_s = max(target_s - fixed_s, fixed_s)
    wanted = int(max(records, 1) * allowed_s / max(epoch_s - fixed_s, 0.001))
    sure = int(max(records, 1) * target_s / epoch_s)
    base = max(limit, records)
    wanted = min(wanted, max(base * GROWTH // 2, min(base * GROWTH, sure)))
    if cold:
        is_steady = is_full and epoch_s <= min(ABOUT_AS_LONG * before_s, GROWTH * target_s)
        wanted = max(limit, wanted, base * GROWTH // 2 if is_steady else 0)
    return max(settings.records_per_epoch_min, min(wanted, settings.records_per_epoch_max))


def epoch_target_s(waited_s: float, settings: RunSettings) -> float:
    """How long an epoch should take whose oldest record had waited so long before it was sealed.

    >>> [epoch_target_s(waited_s, RunSettings()) for waited_s in (0.4, 30)]
    [1.0, 2.0]
    """
    behind_s = max(settings.epoch_target_s, settings.epoch_target_behind_s)
    return behind_s if waited_s > behind_s else settings.epoch_target_s


def typical_s(recent_s: Collection[float]) -> float:
    """What an epoch takes of late: the median of the newest few, so that one with a long pause in it slows nobody down.

    A pause of the garbage collector, or a look at the state beside it, is one epoch's; a machine that has become slow
    shows in four of them.

    >>> typical_s([0.2, 0.3, 1.8, 0.2, 0.2]), typical_s([])
    (0.2, 0.0)
    """
    return median(recent_s) if recent_s else 0.0
