"""Sealing: when its replica is ready for an epoch nobody has sealed, it proposes one.

No leader is elected for this, so none can be lost: whoever is ready first proposes, the ledger keeps the first
proposal, and if this process dies at any instruction the next replica seals.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial

from lockstep.clock import Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.protocols import SourceSide
from lockstep.errors import LockstepError
from lockstep.faults.windows import Window, reached
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.decide.proposing import Proposal, Proposer
from lockstep.runtime.steps import Pause, Step, Steps, run
from lockstep.store.protocols import Entry, Holder, Store

SEAL, TELL = "seal", "tell"
_PAUSE_AFTER_ERROR_S = 1.0
_PAUSE_WHEN_OVER_S = 0.2
_PAUSE_UNTIL_READY_S = 1.0
"""At most: whoever becomes ready ends it."""


class SealingSteps(Proposer):
    """Seals on behalf of one replica, step by step."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        sources: Mapping[str, SourceSide],
        time_steps: tuple[TimeStep, ...],
        settings: RunSettings,
        on_failure: Callable[[LockstepError], None],
        clock: Clock = wall_us,
        elapsed_s: Callable[[], float] = time.monotonic,
        results_of: int = 1,
    ) -> None:
        super().__init__(store, holder, sources, time_steps, settings, clock, elapsed_s, results_of)
        self._on_failure = on_failure
        self.stopping = False

    def steps(self) -> Steps[None]:
        """Wait until there is something to seal, seal it, again. An error is told, and then it is tried again."""
        while not self.stopping:
            epoch = self._ready_for
            try:
                if epoch is None or self._store.entry(epoch) is not None:
                    yield Pause(_PAUSE_UNTIL_READY_S)
                else:
                    yield from self._seal_when_due(epoch)
            except LockstepError as error:
                yield Step(TELL, partial(self._on_failure, error), self._settings.lag_timeout_s)
                yield Pause(_PAUSE_AFTER_ERROR_S)

    def _seal_when_due(self, epoch: int) -> Steps[None]:
        sealed = None
        while not self.stopping and sealed is None:
            found = self.look(epoch)
            if isinstance(found, Proposal):
                # A stopped process may hold the store's lock: this one fails, says so, and tries again.
                yield Step(SEAL, partial(self.put, found), self._settings.lag_timeout_s)
                return
            if found is None:
                yield Pause(_PAUSE_WHEN_OVER_S)
                return
            sealed = yield Pause(found.seconds, epoch)

    def put(self, proposal: Proposal) -> Entry:
        """Put the entry into the ledger if its epoch has none; what holds now."""
        wanted = proposal.entry
        held = self._store.seal(wanted, self._holder, proposal.items)
        reached(
            Window.SEALED_NOT_RUN,
            self._holder.replica,
            wanted.epoch,
            leading=lambda: held.sealed_by == wanted.sealed_by,
        )
        return held


class Sealer(threading.Thread, SealingSteps):
    """The thread that seals."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        sources: Mapping[str, SourceSide],
        time_steps: tuple[TimeStep, ...],
        settings: RunSettings,
        on_failure: Callable[[LockstepError], None],
        clock: Clock = wall_us,
        results_of: int = 1,
    ) -> None:
        threading.Thread.__init__(self, name="sealer", daemon=True)
        SealingSteps.__init__(
            self, store, holder, sources, time_steps, settings, on_failure, clock, results_of=results_of
        )
        self._woken = threading.Event()
        self.crash: Exception | None = None

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """The replica has computed everything before ``epoch``; ``observed`` is what the last epoch saw."""
        super().ready(epoch, observed, limit)
        self._woken.set()

    def stop(self) -> None:
        """Seal nothing any more."""
        self.stopping = True
        self._woken.set()

    def run(self) -> None:
        """Seal until stopped."""
        try:
            run(self.steps(), self._wait)
        except Exception as error:
            traceback.print_exc()
            self.crash = error

    def _wait(self, pause: Pause) -> Entry | None:
        if pause.epoch is not None:
            return self._store.wait(pause.epoch, max(0.001, pause.seconds))
        self._woken.wait(pause.seconds)
        self._woken.clear()
        return None
