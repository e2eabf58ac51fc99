"""Checkpoints as a model: what Spark would keep on disk for a stage of a replica, and what a crash may leave of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import Found, Plan, Standing
from lockstep.sim.pipeline import VERSION, State

if TYPE_CHECKING:
    from lockstep.sim.replica import SimReplica

NOTHING = State()
"""The state before the first epoch."""
PLAN: Plan = {"sources": [], "output_mode": "append", "stateful": []}
"""What the state is of never changes here."""


@dataclass(frozen=True)
class Checkpoint:
    """What Spark keeps on disk for a stage of a replica."""

    epoch: int = -1
    begun_epoch: int = -1
    state: State = NOTHING
    before: State = NOTHING
    """The state before ``epoch``: Spark keeps some, so that a batch can be computed again."""
    sound: bool = True
    version: str = VERSION
    """Of the code that wrote it."""

    def taken_back(self) -> Checkpoint:
        """Without the commit of its newest epoch."""
        return replace(self, epoch=self.epoch - 1, state=self.before)


class SimCheckpoints:
    """The checkpoints of one replica, as :class:`lockstep.runtime.state.recovery.Recovery` asks for them."""

    def __init__(self, replica: SimReplica) -> None:
        self._replica = replica
        self._world = replica.world
        self.copied: dict[int, Checkpoint] = {}
        """What it has copied, or made anew, to start from, of each stage, until it is in place."""

    def own(self, stage: int) -> Checkpoint | None:
        """What is in place."""
        return self._replica.host.disk.get((self._replica.name, stage))

    def find(self, stage: int) -> Found | None:
        """What production finds out by reading the files."""
        own = self.own(stage)
        if own is None:
            return None
        at = Standing(own.epoch, own.epoch, own.begun_epoch)
        return Found(at, PLAN, own.version, "" if self.is_sound(own) else "simulated")

    def is_sound(self, checkpoint: Checkpoint) -> bool:
        """Whether the files are whole."""
        return checkpoint.sound

    def take_back(self, stage: int, batch: int) -> None:  # noqa: ARG002
        """Undo the commit of the newest epoch."""
        self._replica.tell("computes an epoch again")
        own = self.own(stage)
        if own is not None:
            self.write(stage, own.taken_back())

    def keep(self, stage: int) -> None:
        """Use what is there."""
        self._replica.tell("starts from own")
        if (own := self.own(stage)) is None:
            # A zombie's successor is in the midst of its own start.
            raise RunError("LS0604", f"the checkpoint of stage {stage} is gone")
        self.write(stage, replace(own, version=self._replica.spec.code_hash))

    def make(self, stage: int) -> None:
        """Put an empty one beside it."""
        self._world.refuse_write("checkpoint")
        self._replica.tell("starts from scratch")
        self.copied[stage] = Checkpoint(version=self._replica.spec.code_hash)

    def copy(self, stage: int, peer: str) -> int:
        """Put a copy of a peer's beside it, up to its newest commit."""
        self._world.refuse_write("checkpoint")
        self._replica.tell("starts from a peer")
        theirs = self._world.disk_of_peer(self._replica, peer).get((peer, stage))
        if theirs is None or theirs.epoch < 0 or not self.is_sound(theirs):
            raise RunError("LS0606", f"no snapshot could be taken of {peer}")
        self._replica.note(f"copies epoch {theirs.epoch} of {peer}")
        self.copied[stage] = replace(theirs, begun_epoch=theirs.epoch, version=self._replica.spec.code_hash)
        if self._has_disk:
            self._replica.host.copies[self._replica.name, stage] = self.copied[stage]
        return theirs.epoch

    def swap(self, stage: int, taken: int, *, keep_old: bool) -> None:  # noqa: ARG002
        """Put what is beside it in its place."""
        self.write(stage, self.copied.pop(stage))
        if self._has_disk:
            self._replica.host.copies.pop((self._replica.name, stage), None)

    def write(self, stage: int, checkpoint: Checkpoint) -> None:
        """Replace what is in place."""
        if self._has_disk:
            self._replica.host.disk[self._replica.name, stage] = checkpoint

    @property
    def _has_disk(self) -> bool:
        """Whether what it writes can be found: where hosts are not simulated, a zombie is on another one."""
        return self._world.scenario.hosts > 0 or not self._replica.zombie

    def lose(self) -> None:
        """A crash in the midst of a swap: the old one is gone, the new one not in its place."""
        stage = min(self.copied)
        if self._has_disk and self._world.may_be_damaged(self._replica.name):
            self._replica.host.disk.pop((self._replica.name, stage), None)

    def tear(self, stage: int) -> None:
        """A crash in the midst of writing to a checkpoint: it is found damaged, or as it was."""
        own = self.own(stage)
        if own is not None and self._world.faults.damages() and self._world.may_be_damaged(self._replica.name):
            self._replica.note("leaves a damaged checkpoint")
            self.write(stage, replace(own, sound=False, state=own.state.damaged()))
