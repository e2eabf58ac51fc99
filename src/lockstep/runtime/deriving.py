"""What a replica has that derives its epochs: its own ledger with the store behind it, and the order of the job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from lockstep.clock import Clock, wall_us
from lockstep.config import RunSettings
from lockstep.connect.kafka.order import TopicOrder
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.errors import LockstepError
from lockstep.plan.graph import Graph
from lockstep.runtime.decide.deriving import DerivedOrder
from lockstep.runtime.decide.marks import time_steps
from lockstep.runtime.epoch.deriving import DerivingSealer
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.derived import LEDGER_FILE, ORDER, ORDER_START, DerivedStore, open_ledger
from lockstep.store.protocols import Holder, Store

GRACE_S = 0.02
"""How long after a bound a partition that has not reached it gets a heartbeat; at most a fifth of the interval."""


@dataclass(frozen=True)
class Deriving:
    """The parts that are other than those of a replica that agrees."""

    derived: DerivedStore
    holder: Holder
    clock: Clock = wall_us

    @property
    def store(self) -> Store:
        """As everybody else uses it."""
        return cast("Store", self.derived)

    def newest_due(self) -> int:
        """The newest epoch that anybody can have derived, clocks a second apart; -1 if none has begun."""
        order = order_of(self.store)
        return -1 if order is None else order.newest_due(self.clock() // 1000 + 1000)

    def sealer(
        self, graph: Graph, epoch: int, settings: RunSettings, on_failure: Callable[[LockstepError], None]
    ) -> DerivingSealer:
        """The thread that derives, for a replica whose checkpoint stands at ``epoch``."""
        self.derived.adopt(epoch, [step.id for step in graph.event_times], settings.lag_timeout_s)
        order = self._begun()
        grace_s = min(GRACE_S, order.interval_ms / 5000)
        topics = {
            step.id: TopicOrder(step.spec, order.topics[step.id], grace_s)
            for step in graph.sources
            if isinstance(step.spec, KafkaSource)
        }
        return DerivingSealer(self.store, self.holder, order, topics, time_steps(graph), settings, on_failure)

    def _begun(self) -> DerivedOrder:
        """The order with its start, which is now if this is the first replica that is ready.

        Sooner, and as many epochs would be due as the first boot took.
        """
        self.store.put_fact_if_absent(ORDER_START, str(self.clock() // 1000))
        order = order_of(self.store)
        assert order is not None, "both facts are there"
        return order


def order_of(store: Store) -> DerivedOrder | None:
    """How the epochs of a job are derived; None if they are not, or if no replica was ready yet."""
    text, start = store.fact(ORDER), store.fact(ORDER_START)
    return None if text is None or start is None else replace(DerivedOrder.from_text(text), start_ms=int(start))


def deriving(spec: ReplicaSpec, shared: Store, holder: Holder, flags: Path) -> Deriving | None:
    """What a replica needs whose job derives its epochs; None for one that agrees on them.

    ``flags`` is where Spark's planners look for the ledger: a spare's folder, if this process was one. From there a
    link leads to the ledger, which stays in the replica's own folder.
    """
    text = shared.fact(ORDER)
    if text is None:
        return None
    if flags != spec.folder:
        (flags / LEDGER_FILE).unlink(missing_ok=True)
        (flags / LEDGER_FILE).symlink_to(spec.folder / LEDGER_FILE)
    ledger = open_ledger(spec.folder / LEDGER_FILE)
    ledger.belong_to(text)
    store = DerivedStore(shared, ledger, holder)
    store.start()
    return Deriving(store, holder)
