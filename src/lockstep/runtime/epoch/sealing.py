"""The thread that seals: when its replica is ready for an epoch nobody has sealed, it proposes one.

No leader is elected for this, so none can be lost: whoever is ready first proposes, the ledger keeps the first
proposal, and if this process dies at any instruction the next replica seals.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping

from lockstep.clock import Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.protocols import SourceSide
from lockstep.errors import LockstepError
from lockstep.faults.windows import Window, reached
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.decide.proposing import Proposal, Proposer
from lockstep.store.patience import patience
from lockstep.store.protocols import Holder, Store

_PAUSE_AFTER_ERROR_S = 1.0
_PAUSE_WHEN_OVER_S = 0.2


class Sealer(threading.Thread, Proposer):
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
        threading.Thread.__init__(self, name="sealer", daemon=True)
        Proposer.__init__(self, store, holder, sources, time_steps, settings, clock)
        self._on_failure = on_failure
        self._changed = threading.Condition()
        self._stopping = False
        self.crash: Exception | None = None

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """The replica has computed everything before ``epoch``; ``observed`` is what the last epoch saw."""
        with self._changed:
            super().ready(epoch, observed, limit)
            self._changed.notify()

    def stop(self) -> None:
        """Seal nothing any more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def run(self) -> None:
        """Wait until there is something to seal, seal it, again."""
        # A process that is stopped may hold the store's lock: this thread fails, says so, and tries again.
        with patience(self._settings.lag_timeout_s):
            self._seal_all()

    def _seal_all(self) -> None:
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
        while not self._stopping:
            found = self.look(epoch)
            if found is None:
                with self._changed:
                    self._changed.wait(_PAUSE_WHEN_OVER_S)
                return
            if isinstance(found, Proposal):
                self._put(found)
                return
            if self._store.wait(epoch, max(0.001, found.seconds)) is not None:
                return

    def _put(self, proposal: Proposal) -> None:
        wanted = proposal.entry
        held = self._store.seal(wanted, self._holder, proposal.items)
        reached(
            Window.SEALED_NOT_RUN,
            self._holder.replica,
            wanted.epoch,
            leading=lambda: held.sealed_by == wanted.sealed_by,
        )
