"""Sealing without agreeing: each replica derives the same entries from the log, and the ledger is told later.

It is the sealing thread with another look at what comes next; steps, errors and crash windows are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lockstep.config import RunSettings
from lockstep.connect.kafka.order import TopicOrder
from lockstep.connect.protocols import Advance
from lockstep.errors import LockstepError
from lockstep.runtime.decide.deriving import DerivedOrder
from lockstep.runtime.decide.marks import TimeStep
from lockstep.runtime.decide.pacing import Wait
from lockstep.runtime.decide.proposing import Proposal
from lockstep.runtime.epoch.sealing import Sealer
from lockstep.runtime.steps import Pause
from lockstep.store.protocols import Holder, Store

POLL_S = 0.005
"""How often is asked whether all partitions have reached a bound that has passed."""
BEHIND_S = 10.0
"""Epochs that come so long after their bounds are told of: a pause, or an interval that is too short."""
LOOK_S = 1.0
"""At most, until a bound is looked at again: a clock may be set."""


class DerivingSealer(Sealer):
    """The thread that derives."""

    def __init__(
        self,
        store: Store,
        holder: Holder,
        order: DerivedOrder,
        topics: Mapping[str, TopicOrder],
        time_steps: tuple[TimeStep, ...],
        settings: RunSettings,
        on_failure: Callable[[LockstepError], None],
    ) -> None:
        super().__init__(store, holder, {}, time_steps, settings, on_failure)
        self._order = order
        self._topics = topics
        self._is_behind = False

    def look(self, epoch: int) -> Proposal | Wait | None:
        """The entry of ``epoch``, or when to look again: until all partitions have reached its bound."""
        if epoch == 0:
            first = {name: Advance(one.positions, 0) for name, one in self._order.topics.items()}
            return self._proposal(0, None, first, epoch_time_us=self._order.start_ms * 1000)
        previous = self._before(epoch)
        assert previous is not None, "whoever is ready for an epoch has the one before"
        bound_ms = self._order.bound_ms(epoch)
        early_s = max(topic.due_s(bound_ms) for topic in self._topics.values())
        if early_s > 0:
            return Wait(min(early_s, LOOK_S), "interval")
        self._tell_if_behind(epoch, -early_s)
        most = self._order.partition_records_max
        # All are asked before one is waited for: each may need heartbeats.
        asked = {name: topic.advance(previous.cut[name], bound_ms, most) for name, topic in self._topics.items()}
        found = {name: advance for name, advance in asked.items() if advance is not None}
        if len(found) < len(asked):
            return Wait(POLL_S, "heartbeat")
        return self._proposal(epoch, previous, found, epoch_time_us=bound_ms * 1000)

    def _tell_if_behind(self, epoch: int, late_s: float) -> None:
        """Once for each time that it falls behind."""
        if late_s > BEHIND_S and not self._is_behind:
            text = f"epoch {epoch} comes {late_s:.0f} s late; if it stays so, epochs take longer than epoch_interval_s"
            self._store.add_event("order-behind", text, self._holder.replica)
        self._is_behind = late_s > BEHIND_S or (self._is_behind and late_s > BEHIND_S / 2)

    def run(self) -> None:
        """Derive until stopped."""
        super().run()
        for topic in self._topics.values():
            topic.close()

    def _wait(self, pause: Pause) -> None:
        """Nobody else derives for this replica, so nothing can be there before it is due."""
        super()._wait(Pause(pause.seconds))
