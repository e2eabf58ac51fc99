"""What a replica would seal next, and when: the decision behind the sealing thread, without a thread.

It reads the ledger, everyone's progress and the sources; it writes nothing and never waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.protocols import Advance, SourceSide
from lockstep.connect.sources.stage import StageSide
from lockstep.runtime.decide.alignment import Ahead, held_back
from lockstep.runtime.decide.last_seen import LastSeen
from lockstep.runtime.decide.marks import (
    PAUSE_US,
    TimeStep,
    is_caught_up,
    is_over,
    next_active,
    next_marks,
    next_partitions,
)
from lockstep.runtime.decide.pacing import View, Wait, decide, first_record_limit
from lockstep.runtime.desired_run import RUN_BEGAN
from lockstep.runtime.steering import Steering, steering
from lockstep.store.protocols import Entry, Holder, Item, Store

STEERING_LOOK_S = 0.25
"""How often it is looked what those who seal are told: it changes when somebody asks for it, and costs a read."""
_PAUSE_S = 0.1


@dataclass(frozen=True)
class Proposal:
    """An entry to be put into the ledger, with the items of its sources."""

    entry: Entry
    items: tuple[Item, ...] = ()


class Proposer:
    """Decides for one replica."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        sources: Mapping[str, SourceSide],
        time_steps: tuple[TimeStep, ...],
        settings: RunSettings,
        clock: Clock = wall_us,
        elapsed_s: Callable[[], float] = time.monotonic,
        results_of: int = 1,
    ) -> None:
        self._results_of = results_of
        """The generation whose results this replica has."""
        self._steering = Steering(results_of)
        self._steering_until_s = float("-inf")
        self._store = store
        self._holder = holder
        self._sources = sources
        self._time_steps = time_steps
        self._settings = settings
        self._clock = clock
        self._elapsed_s = elapsed_s
        self._ready_for: int | None = None
        self._ready_s = 0.0
        self._previous: Entry | None = None
        self._observed: Mapping[str, int | None] = {}
        self._limit = first_record_limit(settings)
        self._held: Mapping[str, Ahead] = {}
        self._last_seen = LastSeen()
        self._run = ""
        """Of a run that takes what is there: when it began. Somebody may have begun another one since."""

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """The replica has computed everything before ``epoch``; ``observed`` is what the last epoch saw."""
        self._observed = observed
        self._ready_s = self._elapsed_s()
        self._limit = limit or self._limit
        # Last: whoever sees it, in another thread, sees the rest too.
        self._ready_for = epoch

    def look(self, epoch: int) -> Proposal | Wait | None:
        """What to do about ``epoch`` now: propose it, or look again later; None if nothing is left to be sealed."""
        previous = self._before(epoch)
        told = self._told_to_wait(previous)
        if self._is_over(previous):
            return None
        if told is not None:
            return told
        now = self._clock()
        last_us = previous.epoch_time_us if previous else None
        elapsed_s = self._elapsed_s()
        progress = self._last_seen.aged(self._store.progress(), now, elapsed_s)
        waited_s = elapsed_s - self._ready_s
        waiting = decide(View(epoch, now, last_us, True, progress, waited_s), self._settings)
        if isinstance(waiting, Wait):
            return waiting
        # Due if there is data: only now is it worth asking the sources.
        advances = self._advances(previous, now)
        has_data = any(self._moved(previous, name, advance) for name, advance in advances.items())
        quiet = self._quiet_epochs(previous, advances, has_data=has_data)
        if not has_data and quiet == 0:
            waiting = decide(View(epoch, now, last_us, False, progress, waited_s), self._settings)
        if isinstance(waiting, Wait):
            return waiting
        return self._proposal(epoch, previous, advances, quiet, epoch_time_us=self._epoch_time_us(previous))

    def _told_to_wait(self, previous: Entry | None) -> Wait | None:
        """Nobody seals for a job that is deactivated, nor for results that others publish."""
        if self._elapsed_s() >= self._steering_until_s:
            self._steering = steering(self._store)
            self._steering_until_s = self._elapsed_s() + STEERING_LOOK_S
            self._follow_run()
        if self._steering.paused:
            return Wait(_PAUSE_S, "deactivated")
        generation, _ = self._steering.for_entry(previous)
        return Wait(_PAUSE_S, "in the shadow") if generation != self._results_of else None

    def _follow_run(self) -> None:
        """In a run that takes what is there: see what that is, as soon as this run is known."""
        run = self._store.fact(RUN_BEGAN) if self._settings.available_now else None
        if run and run != self._run:
            for side in self._sources.values():
                side.stop_here(self._clock())
            self._run = run

    def _before(self, epoch: int) -> Entry | None:
        """The entry before ``epoch``; an entry never changes, so it is read once."""
        if epoch == 0:
            return None
        if self._previous is None or self._previous.epoch != epoch - 1:
            self._previous = self._store.entry(epoch - 1)
        return self._previous

    def _is_over(self, previous: Entry | None) -> bool:
        """Whether a run that ends by itself has done everything: then nothing is sealed any more."""
        if self._settings.available_now:
            return is_caught_up(previous, self._run, self._time_steps)
        return self._settings.until_done and is_over(previous, self._time_steps)

    def _quiet_before(self, previous: Entry | None) -> int:
        """How many epochs in a row had no records after the end of this run's input."""
        if previous is None:
            return 0
        return previous.caught_up.get(self._run, 0) if self._settings.available_now else previous.ending

    def _quiet_epochs(self, previous: Entry | None, advances: Mapping[str, Advance], *, has_data: bool) -> int:
        """How many epochs in a row had no records after the end of the input, the next one included."""
        if not self._settings.ends_by_itself:
            return 0
        begun = self._quiet_before(previous)
        if has_data:
            # What is still on its way inside the job: the input itself stands still once its end was seen.
            return 1 if begun else 0
        return begun + 1 if begun or all(advance.finished for advance in advances.values()) else 0

    def _is_held(self, source: str, advance: Advance) -> bool:
        """Whether it has more than it is asked for: it is not idle, and its event time must not go on without it.

        That of a run which takes what is there may get more meanwhile, which is for the next run.
        """
        return source in self._held or (self._settings.available_now and advance.finished)

    def _moved(self, previous: Entry | None, source: str, advance: Advance) -> bool:
        """Positions count, not only records: a file that cannot be read moves the position and has none."""
        before = previous.cut.get(source) if previous else None
        return advance.records > 0 or (before is not None and dict(before) != dict(advance.positions))

    def _advances(self, previous: Entry | None, now_us: int) -> dict[str, Advance]:
        """How far each source goes: to an equal share of the record limit; what some leave, the others may have."""
        share = max(1, self._limit // max(1, len(self._sources)))
        advances = self._advances_to(share, self._sources, previous, now_us)
        self._held = self._held_back(advances, previous, now_us)
        if previous is not None:
            advances |= {name: Advance(previous.cut[name], 0) for name in self._held}
        eager = [name for name, one in advances.items() if one.records >= share / 2]
        left = self._limit - sum(one.records for one in advances.values())
        if 0 < len(eager) < len(advances) and left > share / 2:
            sides = {name: self._sources[name] for name in eager}
            advances |= self._advances_to(share + left // len(eager), sides, previous, now_us)
        return advances

    def _held_back(self, advances: Mapping[str, Advance], previous: Entry | None, now_us: int) -> dict[str, Ahead]:
        moving = {name for name, advance in advances.items() if self._moved(previous, name, advance)}
        max_ahead_us = round(self._settings.max_ahead_s * US_PER_S)
        return held_back(self._time_steps, previous, self._observed, moving, now_us, max_ahead_us)

    def _advances_to(
        self, share: int, sides: Mapping[str, SourceSide], previous: Entry | None, now_us: int
    ) -> dict[str, Advance]:
        advances = {}
        for name, side in sides.items():
            since = previous.cut.get(name) if previous else None
            if previous is not None and since is not None and isinstance(side, StageSide):
                advances[name] = side.advance_after(previous.epoch, since)
                continue
            if self._quiet_before(previous) and since is not None:
                # Its end was seen: what comes after it belongs to another run.
                advances[name] = Advance(since, 0, finished=True)
                continue
            advances[name] = side.advance(since if since is not None else side.start(), share, now_us)
        return advances

    def _epoch_time_us(self, previous: Entry | None) -> int:
        """Epoch time never goes back, even if the clock does."""
        return max(self._clock(), previous.epoch_time_us + 1 if previous else 0)

    def _proposal(
        self,
        epoch: int,
        previous: Entry | None,
        advances: Mapping[str, Advance],
        quiet: int = 0,
        *,
        epoch_time_us: int,
    ) -> Proposal:
        ending = quiet if self._settings.until_done else 0
        oldest = [one.ingested_oldest_us for one in advances.values() if one.ingested_oldest_us is not None]
        newest = [one.ingested_newest_us for one in advances.values() if one.ingested_newest_us is not None]
        moved = {name: advance.records > 0 or self._is_held(name, advance) for name, advance in advances.items()}
        pause_us = max(PAUSE_US, round(10 * self._settings.heartbeat_interval_s * US_PER_S))
        steps, seen = self._time_steps, self._observed
        marks = next_marks(steps, previous, seen, epoch_time_us, moved, pause_us, ending=ending)
        generation, turn = self._steering.for_entry(previous)
        entry = Entry(
            epoch=epoch,
            epoch_time_us=epoch_time_us,
            cut={name: dict(advance.positions) for name, advance in advances.items()},
            marks=marks,
            records=sum(advance.records for advance in advances.values()),
            ingested_oldest_us=min(oldest, default=None),
            ingested_newest_us=max(newest, default=None),
            active_us=next_active(previous, moved, epoch_time_us, pause_us),
            sealed_by=str(self._holder),
            ending=ending,
            caught_up={self._run: quiet} if quiet and not ending else {},
            held={name: {one.slowest: one.ahead_us} for name, one in self._held.items()},
            partitions=next_partitions(steps, previous, seen, epoch_time_us, marks, pause_us),
            generation=generation,
            turn=turn,
        )
        return Proposal(entry, tuple(item for advance in advances.values() for item in advance.items))
