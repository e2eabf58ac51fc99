"""The thread that seals: when its replica is ready for an epoch nobody has sealed, it proposes one.

No leader is elected for this, so none can be lost: whoever is ready first proposes, the ledger keeps the first
proposal, and if this process dies at any instruction the next replica seals.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.protocols import Advance, SourceSide
from lockstep.connect.sources.stage import StageSide
from lockstep.errors import LockstepError
from lockstep.runtime.marks import PAUSE_US, TimeStep, is_over, next_active, next_marks
from lockstep.runtime.pacing import View, Wait, decide
from lockstep.store.protocols import Entry, Holder, Store

_PAUSE_AFTER_ERROR_S = 1.0
_PAUSE_WHEN_OVER_S = 0.2


class Sealer(threading.Thread):
    """Seals on behalf of one replica."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        sources: Mapping[str, SourceSide],
        time_steps: tuple[TimeStep, ...],
        settings: RunSettings,
        on_failure: Callable[[LockstepError], None],
        clock: Clock = wall_us,
    ) -> None:
        super().__init__(name="sealer", daemon=True)
        self._store = store
        self._holder = holder
        self._sources = sources
        self._time_steps = time_steps
        self._settings = settings
        self._on_failure = on_failure
        self._clock = clock
        self._changed = threading.Condition()
        self._ready_for: int | None = None
        self._observed: Mapping[str, int | None] = {}
        self._limit = settings.records_per_epoch_start
        self._stopping = False
        self.crash: Exception | None = None

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """The replica has computed everything before ``epoch``; ``observed`` is what the last epoch saw."""
        with self._changed:
            self._ready_for, self._observed = epoch, observed
            self._limit = limit or self._limit
            self._changed.notify()

    def stop(self) -> None:
        """Seal nothing any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Wait until there is something to seal, seal it, again."""
        while not self._stopping:
            try:
                if (epoch := self._next()) is not None:
                    self._seal_when_due(epoch)
            except LockstepError as error:
                self._on_failure(error)
            except Exception as error:
                traceback.print_exc()
                self.crash = error
                return
            else:
                continue
            with self._changed:
                self._changed.wait(_PAUSE_AFTER_ERROR_S)

    def _next(self) -> int | None:
        with self._changed:
            while not self._stopping:
                if self._ready_for is not None and self._store.entry(self._ready_for) is None:
                    return self._ready_for
                self._changed.wait(1.0)
            return None

    def _seal_when_due(self, epoch: int) -> None:
        previous = self._store.entry(epoch - 1) if epoch > 0 else None
        last_us = previous.epoch_time_us if previous else None
        advances: dict[str, Advance] = {}
        ending = 0
        while not self._stopping and not self._is_over(previous):
            now = self._clock()
            view = View(epoch, now, last_us, has_data=True, progress=self._store.progress())
            waiting = decide(view, self._settings)
            if not isinstance(waiting, Wait):
                # Due if there is data: only now is it worth asking the sources.
                advances = self._advances(previous, now)
                has_data = any(self._moved(previous, name, advance) for name, advance in advances.items())
                ending = self._ending(previous, advances, has_data=has_data)
                due = has_data or ending > 0
                waiting = decide(View(epoch, now, last_us, has_data=due, progress=view.progress), self._settings)
            if not isinstance(waiting, Wait):
                break
            if self._store.wait(epoch, max(0.001, waiting.seconds)) is not None:
                return
        else:
            return
        self._seal(epoch, previous, advances, ending)

    def _ending(self, previous: Entry | None, advances: Mapping[str, Advance], *, has_data: bool) -> int:
        """How many epochs in a row had no records after the end of the input, the next one included."""
        if not self._settings.until_done:
            return 0
        begun = previous.ending if previous is not None else 0
        if has_data:
            # What is still on its way inside the job: the input itself stands still once its end was seen.
            return 1 if begun else 0
        return begun + 1 if begun or all(advance.finished for advance in advances.values()) else 0

    def _is_over(self, previous: Entry | None) -> bool:
        """Whether a run until done has done everything: then nothing is sealed any more."""
        if not self._settings.until_done or not is_over(previous, self._time_steps):
            return False
        with self._changed:
            self._changed.wait(_PAUSE_WHEN_OVER_S)
        return True

    def _moved(self, previous: Entry | None, source: str, advance: Advance) -> bool:
        """Positions count, not only records: a file that cannot be read moves the position and has none."""
        before = previous.cut.get(source) if previous else None
        return advance.records > 0 or (before is not None and dict(before) != dict(advance.positions))

    def _advances(self, previous: Entry | None, now_us: int) -> dict[str, Advance]:
        share = max(1, self._limit // max(1, len(self._sources)))
        advances = {}
        for name, side in self._sources.items():
            since = previous.cut.get(name) if previous else None
            if previous is not None and previous.ending and since is not None and not isinstance(side, StageSide):
                # Its end was seen: what comes after it belongs to another run.
                advances[name] = Advance(since, 0, finished=True)
                continue
            advances[name] = side.advance(since if since is not None else side.start(), share, now_us)
        return advances

    def _seal(self, epoch: int, previous: Entry | None, advances: Mapping[str, Advance], ending: int = 0) -> None:
        # Epoch time never goes back, even if the clock does.
        epoch_time_us = max(self._clock(), previous.epoch_time_us + 1 if previous else 0)
        oldest = [one.ingested_oldest_us for one in advances.values() if one.ingested_oldest_us is not None]
        newest = [one.ingested_newest_us for one in advances.values() if one.ingested_newest_us is not None]
        moved = {name: advance.records > 0 for name, advance in advances.items()}
        pause_us = max(PAUSE_US, round(10 * self._settings.heartbeat_interval_s * US_PER_S))
        proposal = Entry(
            epoch=epoch,
            epoch_time_us=epoch_time_us,
            cut={name: dict(advance.positions) for name, advance in advances.items()},
            marks=next_marks(self._time_steps, previous, self._observed, epoch_time_us, moved, pause_us, ending=ending),
            records=sum(advance.records for advance in advances.values()),
            ingested_oldest_us=min(oldest, default=None),
            ingested_newest_us=max(newest, default=None),
            active_us=next_active(previous, moved, epoch_time_us, pause_us),
            sealed_by=str(self._holder),
            ending=ending,
        )
        items = [item for advance in advances.values() for item in advance.items]
        self._store.seal(proposal, self._holder, items)
