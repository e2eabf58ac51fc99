"""How far a replica is: it has computed an epoch when each of its stages has."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.protocols import Publication
from lockstep.runtime.decide.fence import is_any_ours
from lockstep.runtime.decide.pacing import (
    COLD_EPOCHS,
    LIMIT_LEARNED_EPOCHS,
    RECENT_EPOCHS,
    EpochCost,
    first_record_limit,
    next_record_limit,
    typical_s,
)
from lockstep.store.protocols import Entry, Holder, Published, Store


@dataclass(frozen=True)
class Standpoint:
    """How far a replica is, for its progress reports."""

    epoch: int = -1
    working_on: int = -1
    begun_us: int = 0
    """When the epoch under way was begun, 0 if none is."""
    epoch_s: float = 0.0
    records: int = 0
    moved_us: int = 0
    done_us: int = 0


class Readiness(Protocol):
    """Whoever has to know for which epoch a replica is ready: its sealer."""

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """Everything before ``epoch`` is computed; ``observed`` is what the last epoch saw."""


class StageProgress:
    """Keeps the stages of a replica together: they run side by side, and a seal waits for all of them."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        stages: Mapping[int, int],
        settings: RunSettings,
        sealer: Readiness,
        on_done: Callable[[], None],
        clock: Clock = wall_us,
        elapsed_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._holder = holder
        self._epochs = dict(stages)
        self._settings = settings
        self._sealer = sealer
        self.on_done = on_done
        self._clock = clock
        self._elapsed_s = elapsed_s
        self._begun_s: dict[int, float] = {}
        self._recent_s: deque[float] = deque(maxlen=RECENT_EPOCHS)
        self._done_s = elapsed_s()
        self._lock = threading.Lock()
        self._limit = first_record_limit(settings)
        self._cost = EpochCost()
        self._before_s = 0.0
        """What the epoch before took."""
        self._publications: dict[int, list[Publication]] = {}
        self._unnoted: Published | None = None
        # Stillness counts from here: booting and seeding have a limit of their own.
        self.at = Standpoint(epoch=min(stages.values()), moved_us=clock())
        self._taken_up = self.at.epoch

    def take_up(self) -> None:
        """Go on where the checkpoints stand. Epochs that are sealed come by themselves."""
        head = self._store.head()
        newest = head.epoch if head is not None else -1
        before = self._store.published(max(0, newest - LIMIT_LEARNED_EPOCHS), newest)
        self._limit = first_record_limit(self._settings, before)
        self._sealer.ready(self.at.epoch + 1, self._store.observed(self.at.epoch), self._limit)

    def stage_epoch(self, stage: int) -> int:
        """The newest epoch that a stage has computed."""
        return self._epochs[stage]

    @property
    def newest_epoch(self) -> int:
        """The newest epoch that any stage has computed."""
        return max(self._epochs.values())

    def begun(self, epoch: int) -> None:
        """A stage computes ``epoch``."""
        with self._lock:
            self._begun_s.setdefault(epoch, self._elapsed_s())
            begun_us = self._clock() if self.at.working_on < 0 else self.at.begun_us
            self.at = replace(self.at, working_on=max(epoch, self.at.working_on), begun_us=begun_us)

    def done(self, stage: int, entry: Entry, publications: Sequence[Publication]) -> None:
        """A stage has computed an epoch and seen to it that it is published: these hold, one for each of its sinks."""
        with self._lock:
            self._publications.setdefault(entry.epoch, []).extend(publications)
            self._epochs[stage] = entry.epoch
            if not self._is_computed(entry.epoch):
                return
            self._finish(entry)
        self.on_done()
        self._sealer.ready(entry.epoch + 1, self._store.observed(entry.epoch), self._limit)

    def _is_computed(self, epoch: int) -> bool:
        """Whether each stage has computed it."""
        return min(self._epochs.values()) >= epoch

    def _finish(self, entry: Entry) -> None:
        now = self._clock()
        took_s = self._took_s(entry, now)
        self._note_published(entry, now, took_s)
        cold = entry.epoch - self._taken_up <= COLD_EPOCHS
        if self.at.done_us:
            # The first epoch of an incarnation compiles and loads everything: it says nothing about the next.
            self._recent_s.append(took_s)
            # Slow and small as they are, cold epochs would tell that records cost nothing.
            self._cost = self._cost if cold else self._cost.after(entry.records, took_s)
            self._limit = next_record_limit(
                self._limit,
                entry.records,
                took_s,
                self._settings,
                self._cost.fixed_s,
                cold=cold,
                waited_s=_waited_s(entry),
                before_s=self._before_s,
            )
        self._before_s = took_s
        self.at = Standpoint(
            epoch=entry.epoch,
            working_on=-1,
            # Nor do the next few: the others would wait for a replica that is about to be as fast as they are.
            epoch_s=0.0 if cold else typical_s(self._recent_s),
            records=self.at.records + entry.records,
            moved_us=now,
            done_us=now,
        )

    def _note_published(self, entry: Entry, now_us: int, took_s: float) -> None:
        """Whoever published an epoch notes it. If it died before it could, another does, an epoch later."""
        if self._unnoted is not None:
            # The first note wins: nothing is read here that an epoch would have to wait for.
            self._store.add_published(self._unnoted)
        self._unnoted = None
        held = self._publications.pop(entry.epoch, [])
        if not held:
            return
        here = is_any_ours(held, self._holder)
        published = Published(
            epoch=entry.epoch,
            replica=self._holder.replica if here else Holder.replica_of(held[0].by),
            published_us=now_us if here else max(one.published_us for one in held) or now_us,
            records=entry.records,
            ingested_oldest_us=entry.ingested_oldest_us,
            ingested_newest_us=entry.ingested_newest_us,
            epoch_s=took_s,
        )
        if here:
            self._store.add_published(published)
        else:
            self._unnoted = published

    def _took_s(self, entry: Entry, now_us: int) -> float:
        """From when the epoch could have begun: sealed, and the one before it done.

        Epoch time is another's clock, or this one before it was set. Whatever it says, the epoch took no less than
        since it was begun here, and no more than since the one before it was done.
        """
        elapsed_s = self._elapsed_s()
        since_begun_s = elapsed_s - self._begun_s.pop(entry.epoch, elapsed_s)
        since_done_s, self._done_s = elapsed_s - self._done_s, elapsed_s
        sealed_ago_s = (now_us - entry.epoch_time_us) / US_PER_S
        return max(0.001, since_begun_s, min(sealed_ago_s, since_done_s))


def _waited_s(entry: Entry) -> float:
    """How long the oldest record of an epoch had waited when the epoch was sealed."""
    oldest_us = entry.ingested_oldest_us
    return 0.0 if oldest_us is None else (entry.epoch_time_us - oldest_us) / US_PER_S
