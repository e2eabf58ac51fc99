"""The thread that keeps telling the store how a replica is, also while an epoch takes long or none is due."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.errors import LockstepError
from lockstep.runtime.epoch.stage_progress import Standpoint
from lockstep.runtime.spark.activity import Activity
from lockstep.store.protocols import NO_EXECUTORS, Holder, Progress, Store

INTERVAL_S = 0.5
BOOT_INTERVAL_S = 2.0
"""Until the first epoch is computed. Each report takes the store's write lock, and a process that boots in idle time
may lose the processor while it has it: then every seal waits."""
LOOK_INSIDE_AFTER_S = 2.0
"""An epoch that has been under way for longer is looked into. Small ones are over before, and pay nothing."""


class Reporter(threading.Thread):
    """Reports progress after every epoch and in between; notices when its incarnation is retired."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        on_retired: Callable[[], None],
        lead_epochs: int,
        clock: Clock = wall_us,
        pid: int | None = None,
        *,
        host: str = "",
        process: str = "",
        generation: int = 1,
        results_of: int = 1,
    ) -> None:
        super().__init__(name="reporter", daemon=True)
        self._clock = clock
        self._pid = os.getpid() if pid is None else pid
        self._host = host
        self._process = process
        self._generation, self._results_of = generation, results_of
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
        self.activity: Callable[[], Activity] = Activity
        self.executors: Callable[[], tuple[int, int]] = lambda: (NO_EXECUTORS, 0)
        """How many are there, and how many were lost since the start."""
        self.note = ""
        self._inside = Activity()
        self._active_us = 0

    def run(self) -> None:
        """Report until stopped."""
        interval_s = INTERVAL_S
        while not self._ended.wait(interval_s):
            interval_s = self.interval_s
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

    @property
    def interval_s(self) -> float:
        """How long it is from one report to the next now."""
        return INTERVAL_S if self.standpoint().done_us else BOOT_INTERVAL_S

    def report(self) -> None:
        """Report now."""
        with self._lock:
            at = self.standpoint()
            self._look_inside(at)
            executors, lost = self.executors()
            self._store.report(
                Progress(
                    replica=self._holder.replica,
                    incarnation=self._holder.incarnation,
                    pid=self._pid,
                    state=self._state(at),
                    epoch=at.epoch,
                    epoch_s=at.epoch_s,
                    working_on=at.working_on,
                    begun_us=at.begun_us,
                    tasks=self._inside.tasks,
                    tasks_done=self._inside.tasks_done,
                    active_us=self._active_us,
                    records=at.records,
                    updated_us=self._clock(),
                    moved_us=at.moved_us,
                    host=self._host,
                    process=self._process,
                    note=self.note,
                    executors=executors,
                    executors_lost=lost,
                    generation=self._generation,
                    results_of=self._results_of,
                )
            )

    def _look_inside(self, at: Standpoint) -> None:
        """Note when something moved in an epoch that takes long: a replica that computes is not one that hangs."""
        now_us = self._clock()
        if at.working_on < 0 or now_us - at.begun_us < LOOK_INSIDE_AFTER_S * US_PER_S:
            self._inside, self._active_us = Activity(), at.begun_us
            return
        inside = self.activity()
        if inside != self._inside:
            self._inside, self._active_us = inside, now_us

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
