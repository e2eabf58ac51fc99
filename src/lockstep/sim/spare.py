"""A spare as a process on the timeline: it boots, waits, and becomes whichever replica it is told to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lockstep.runtime.spec import EXIT_DRAINED, ReplicaSpec
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.sim.replica import SimReplica
from lockstep.sim.scenario import SPARE

if TYPE_CHECKING:
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.world import World

BOOT_SPARE, WAIT, BECOME = "boot-spare", "wait", "become"
_WAIT_S = 0.3
"""How often something may happen to one that waits."""


class SimSpare(SimReplica):
    """A process that acts for nobody until it is told for whom."""

    def __init__(self, world: World, spec: ReplicaSpec, shape: Mapping[str, Any], host: SimHost, *, pid: int) -> None:
        super().__init__(world, replace(spec, replica=SPARE), host, gently=True, pid=pid)
        self.shape = shape
        self.is_ready = False
        self.told: ReplicaSpec | None = None
        self.given_to: list[str] = []
        """Which replicas it was told to be, by a coordinator of several hosts."""

    @property
    def acts_for_nobody(self) -> bool:
        """Whether nobody would miss it."""
        return self.told is None

    @property
    def acts_for(self) -> str:
        """The replica that it is, or was told to be."""
        return self.told.replica if self.told is not None else ""

    def become(self, spec: ReplicaSpec) -> bool:
        """The supervisor's word, which is heard once; whether there was anybody to say it to."""
        if self.exit_code() is not None:
            return False
        if self.told is None:
            self.told = spec
            self.wake_all()
        return True

    def takes_s(self, step: str) -> float:
        """How long it takes from a step to the next."""
        return self.world.boot_s(SPARE) if step == BOOT_SPARE else super().takes_s(step)

    def _arrive(self) -> None:
        self._drive(self._wait())

    def _wait(self) -> Steps[None]:
        yield Step(BOOT_SPARE, lambda: None)
        self.is_ready = True
        while self.told is None:
            yield Step(WAIT, lambda: None)
            if self.told is None:
                yield Pause(_WAIT_S)
        self.tell("becomes a replica")
        self._be(self.told)
        yield Step(BECOME, lambda: None)
        self._begin()

    def _boot(self) -> Steps[None]:
        """It has booted before it knew for whom."""
        yield from ()

    def _drain(self) -> None:
        if self.told is None:
            # At once, also in the middle of booting: it has nothing that anyone would miss.
            self.exit(EXIT_DRAINED)
        else:
            super()._drain()
