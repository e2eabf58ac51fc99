"""The sealing thread of a simulated replica: production's proposer, with the waits put on the timeline."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from lockstep.connect.protocols import SourceSide
from lockstep.errors import StoreError
from lockstep.runtime.decide.pacing import Wait
from lockstep.runtime.decide.proposing import Proposal, Proposer
from lockstep.runtime.spec import EXIT_RETIRED
from lockstep.sim.pipeline import TIME_STEPS
from lockstep.store.protocols import Entry, Store

if TYPE_CHECKING:
    from lockstep.sim.replica import SimReplica

_RETRY_S = 1.0
"""As production's sealer waits after an error."""
_POLL_S_MIN = 0.025
"""Production looks every 10 ms for data: here that would be most of the work, and a bit later is a legal time too."""


class SimSealer(Proposer):
    """Seals on behalf of one simulated replica."""

    def __init__(self, replica: SimReplica, store: Store) -> None:
        world = replica.world
        super().__init__(
            store,
            replica.holder,
            cast("dict[str, SourceSide]", world.sources),
            TIME_STEPS,
            world.settings,
            world.clock(replica.name),
            lambda: world.timeline.elapsed_s,
        )
        self._replica = replica
        self.stopped = False

    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None:
        """As production's: from now on this epoch is looked after."""
        super().ready(epoch, observed, limit)
        self._replica.after(0, lambda: self._look_after(epoch))

    def _look_after(self, epoch: int) -> None:
        if self.stopped or epoch != self._ready_for or self._store.entry(epoch) is not None:
            return
        found = self.look(epoch)
        if isinstance(found, Wait):
            self._replica.after(max(_POLL_S_MIN, found.seconds), lambda: self._look_after(epoch))
        elif found is not None:
            proposal = found
            # The put takes a moment, in which others act.
            self._replica.after(
                self._replica.world.draw.uniform(0.001, 0.02),
                lambda: self._replica.guarded("seal", lambda: self._put(proposal), lambda: None),
            )

    def _put(self, proposal: Proposal) -> None:
        try:
            held = self.seal(proposal.entry)
        except StoreError as error:
            self._refused(proposal.entry, error)
            return
        if held.sealed_by == str(self._holder):
            self._replica.world.sealed(held, self._replica)

    def seal(self, entry: Entry) -> Entry:
        """Put the entry if its epoch has none; what holds now."""
        return self._store.seal(entry, self._holder)

    def _refused(self, entry: Entry, error: StoreError) -> None:
        self._replica.tell(f"may not seal: {error.code}")
        if error.code == "LS0405":
            self._replica.after(0.05, lambda: self._replica.exit(EXIT_RETIRED))
        else:
            self._replica.after(_RETRY_S, lambda: self._look_after(entry.epoch))
