"""The thread that keeps telling the store how a replica is, also while an epoch takes long or none is due."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from lockstep.clock import Clock, wall_us
from lockstep.errors import LockstepError
from lockstep.runtime.epoch.stage_progress import Standpoint
from lockstep.store.protocols import Holder, Progress, Store

INTERVAL_S = 0.5


class Reporter(threading.Thread):
    """Reports progress after every epoch and at least every half second; notices when its incarnation is retired."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        on_retired: Callable[[], None],
        lead_epochs: int,
        clock: Clock = wall_us,
        pid: int | None = None,
    ) -> None:
        super().__init__(name="reporter", daemon=True)
        self._clock = clock
        self._pid = os.getpid() if pid is None else pid
        self._store = store
        self._holder = holder
        self._on_retired = on_retired
        self._lead_epochs = lead_epochs
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._caught_up = False
        self.state = "starting"
        self.standpoint: Callable[[], Standpoint] = Standpoint
        self.diverged: Callable[[], bool] = lambda: False

    def run(self) -> None:
        """Report until stopped."""
        while not self._ended.wait(INTERVAL_S):
            try:
                if not self._store.is_live(self._holder):
                    self._on_retired()
                    return
                self.report()
            except LockstepError as error:
                # The next report may succeed; a store that stays broken shows as silence, and the supervisor acts.
                # Nor must a log on a full disk end this thread: the replica would seem to hang for good.
                with contextlib.suppress(OSError):
                    print(f"progress not reported: {error}", file=sys.stderr, flush=True)

    def report(self) -> None:
        """Report now."""
        with self._lock:
            at = self.standpoint()
            self._store.report(
                Progress(
                    replica=self._holder.replica,
                    incarnation=self._holder.incarnation,
                    pid=self._pid,
                    state=self._state(at),
                    epoch=at.epoch,
                    epoch_s=at.epoch_s,
                    working_on=at.working_on,
                    records=at.records,
                    updated_us=self._clock(),
                    moved_us=at.moved_us,
                )
            )

    def stop(self, state: str) -> None:
        """Say a last word."""
        self._ended.set()
        self.state = state
        self.report()

    def _state(self, at: Standpoint) -> str:
        if self.state != "running":
            return self.state
        if self.diverged():
            return "diverged"
        if not at.done_us:
            # A seed is not an epoch computed: until then nobody knows whether this replica works at all.
            return "starting"
        head = self._store.head()
        lag = head.epoch - at.epoch if head else 0
        if self._caught_up:
            # Behind again only beyond the lead: no flapping in between.
            self._caught_up = lag <= self._lead_epochs
        else:
            self._caught_up = lag <= 1
        return "running" if self._caught_up else "catching-up"
