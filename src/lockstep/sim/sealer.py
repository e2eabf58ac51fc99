"""The sealing thread of a simulated replica: production's sealing, put on the timeline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, cast

from lockstep.connect.protocols import SourceSide
from lockstep.runtime.decide.proposing import Proposal
from lockstep.runtime.epoch.sealing import SealingSteps
from lockstep.sim.pipeline import TIME_STEPS
from lockstep.store.protocols import Entry, Store

if TYPE_CHECKING:
    from lockstep.sim.replica import SimReplica


class SimSealer(SealingSteps):
    """Seals on behalf of one simulated replica."""

    def __init__(self, replica: SimReplica, store: Store) -> None:
        world = replica.world
        super().__init__(
            store,
            replica.holder,
            cast("dict[str, SourceSide]", world.sources),
            TIME_STEPS,
            world.settings,
            replica.sealing_failed,
            replica.clock,
            lambda: world.timeline.elapsed_s,
            replica.spec.results_of,
        )
        self._replica = replica
        self.wake: Callable[[], None] = lambda: None
        """Ends the pause in which it waits until its replica is ready."""

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """As production's: from now on this epoch is looked after."""
        super().ready(epoch, observed, limit)
        self.wake()

    def put(self, proposal: Proposal) -> Entry:
        """As production's, and the world hears of it."""
        held = super().put(proposal)
        if held.sealed_by == str(self._holder):
            self._replica.world.sealed(held, self._replica)
        return held
