"""The coordinator of a job on several hosts: on each host a candidate waits for the lease, then adopts what runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from lockstep.control.coordinator.taking_over import LEASE_S
from lockstep.errors import StoreError
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.sim.coordination import StoreFrom
from lockstep.sim.fleet import Fleet
from lockstep.sim.supervising import SimSupervisor
from lockstep.store.patience import patience_s
from lockstep.store.protocols import Store

if TYPE_CHECKING:
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.hosts_world import HostsWorld

CANDIDATE = "candidate"
_CANDIDATE_POLL_S = 0.2
_NETWORK_POLL_S = 0.05


class SimCoordinator(SimSupervisor):
    """One process of one host, from its start as a candidate to its end."""

    world: HostsWorld

    def __init__(self, world: HostsWorld, number: int, host: SimHost) -> None:
        self.host = host
        self.leads = False
        super().__init__(world, number)
        self.name = f"supervisor{number}@{host.name}"

    def _open_store(self) -> Store:
        store = StoreFrom(self.world.store, self.host, self._before_write, self._before, lambda: self.alive)

        def release(name: str, holder: str) -> None:
            self._before_write("release")
            shared = self.world.store
            (shared.give_back if holder == self.name else shared.release)(name, holder)

        def trim(floor: int) -> None:
            self._before_write("trim")
            if self.world.store.holder(LEASE) != self.name:
                self.tell("forgets late")
                self.world.history.forgot_late = True
            self.world.store.trim(floor)

        store.release, store.trim = release, trim  # type: ignore[attr-defined]
        return cast("Store", store)

    def _new_processes(self) -> Fleet:
        self._fleet = Fleet(self)
        return self._fleet

    def _life(self) -> Steps[None]:
        while not (yield Step(CANDIDATE, self._has_lease)):
            yield Pause(_CANDIDATE_POLL_S)
        self.leads = True
        self.tell("takes the lease")
        yield from super()._life()

    def _is_wanted(self) -> bool:
        return self.world.wanted

    def _has_lease(self) -> bool:
        if self.host.is_cut_off or not self._is_wanted():
            return False
        try:
            taken = self._store.acquire(LEASE, self.name, LEASE_S)
            if taken and not self._is_wanted():
                # It stood still before it took it, and the job was stopped meanwhile.
                self._store.release(LEASE, self.name)
            return taken and self._is_wanted()
        except StoreError:
            return False

    def die(self) -> None:
        """It is gone; the agent of its host gives its lease back."""
        super().die()
        self.world.lost(self)

    def _stand_still(self, seconds: float) -> None:
        self.world.store.sessions.fall_silent(self.name)
        super()._stand_still(seconds)
        if self.alive and not self.host.is_cut_off:
            self.world.store.sessions.hear(self.name)

    def _look(self) -> str:
        self.refuse_if_dead()
        return self._fleet.look()

    def _end_blocker(self) -> None:
        """A store that hosts share has no lock."""

    def _before(self) -> None:
        super()._before()
        if self.host.is_cut_off:
            self._wait_for_network(patience_s() if self.world.draw.random() < 0.5 else 0.0)

    def _wait_for_network(self, patience: float) -> None:
        """A call fails at once, or is answered if the network is back before patience is at its end."""
        deadline_s = self.world.timeline.elapsed_s + patience
        while self.host.is_cut_off:
            if self.world.timeline.elapsed_s >= deadline_s:
                raise self.world.no_answer("a call")
            self.world.timeline.pass_by(_NETWORK_POLL_S)
            self.refuse_if_dead()

    def _ended(self) -> None:
        self.world.lost(self)
        super()._ended()

    def _failed(self, error: Any) -> None:
        self.world.lost(self)
        super()._failed(error)
