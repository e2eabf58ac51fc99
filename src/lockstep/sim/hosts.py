"""A host as a model: its clock, its disk, its agent, and whether anybody beyond it can be reached."""

from __future__ import annotations

from collections.abc import Callable

from lockstep.sim.checkpoints import Checkpoint
from lockstep.sim.child_processes import SimAgent
from lockstep.sim.timeline import HostClock

Disk = dict[tuple[str, int], Checkpoint]
"""The checkpoint of each replica and stage."""


class SimHost:
    """One host. Without ``--hosts`` there is one, of which nothing is asked."""

    def __init__(self, name: str, clock: HostClock) -> None:
        self.name = name
        self.clock = clock
        self.disk: Disk = {}
        self.copies: Disk = {}
        """What replicas have copied from a peer and not yet put in place of their own checkpoint; a crash leaves it."""
        self.agent = SimAgent()
        """Who has its processes; another one after it was down."""
        self.boots = 1
        self.is_up = True
        self.is_cut_off = False
        self._waiting: list[Callable[[], None]] = []

    @property
    def instance(self) -> str:
        """Which start of its agent this is."""
        return str(self.boots)

    @property
    def is_reachable(self) -> bool:
        """Whether others reach it, and it reaches them."""
        return self.is_up and not self.is_cut_off

    def renew(self) -> None:
        """It was down and is up: its disk is as it was, its agent is another one."""
        self.is_up, self.agent, self.boots = True, SimAgent(), self.boots + 1

    def when_back(self, go_on: Callable[[], None]) -> None:
        """Call back when it is no longer cut off."""
        self._waiting.append(go_on)

    def come_back(self) -> None:
        """It is no longer cut off."""
        self.is_cut_off = False
        waiting, self._waiting = self._waiting, []
        for go_on in waiting:
            go_on()
