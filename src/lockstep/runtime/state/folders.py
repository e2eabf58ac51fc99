"""The checkpoints of one replica on its disk, one folder for each stage: what recovery looks at, copies and swaps."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import RunError
from lockstep.faults.windows import Window, reached
from lockstep.plan.fingerprints import differences
from lockstep.runtime.state import checkpoint as checkpoints
from lockstep.runtime.state.checkpoint import Found, Plan, Standing, partitions_of
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.state.state_metadata import relocate
from lockstep.store.protocols import Holder, Store

CHECKPOINT = "checkpoint"


def checkpoint_folders(folder: Path, stages: int) -> tuple[Path, ...]:
    """Where the stages of a replica keep their checkpoints.

    >>> [path.name for path in checkpoint_folders(Path("r0"), 3)]
    ['checkpoint', 'checkpoint-2', 'checkpoint-3']
    """
    return tuple(folder / (f"{CHECKPOINT}-{number}" if number > 1 else CHECKPOINT) for number in range(1, stages + 1))


def standings(job: Path, stages: int) -> dict[str, tuple[int, ...]]:
    """The newest epoch that each stage of each replica in a job's folder has computed: they need not be the same."""
    found = sorted((job / "replicas").glob("*"))
    return {replica.name: stage_epochs(checkpoint_folders(replica, stages)) for replica in found}


def stage_epochs(folders: Sequence[AnyPath]) -> tuple[int, ...]:
    """The newest epoch in the checkpoint of each stage of a replica."""
    try:
        found = [checkpoints.standing(checkpoint) for checkpoint in folders]
    except RunError:
        return (-1,)  # damaged: the replica will find out, and be seeded
    return tuple(at.epoch if at is not None else -1 for at in found)


def found_in(folder: AnyPath) -> Found:
    """What a checkpoint's folder holds, and whether its files are whole."""
    try:
        plan, version = checkpoints.read_fingerprint(folder) or (None, "")
        at = checkpoints.standing(folder)
        if at is not None and at.batch >= 0:
            checkpoints.check_state(folder, at.batch)
    except (RunError, OSError, ValueError) as error:
        return Found(None, damage=str(error))
    return Found(at, plan, version)


class Snapshots(Protocol):
    """Where the snapshot of a peer comes from: this host, or another one."""

    def copy(self, peer: str, stage: int, target: Path) -> Standing:
        """Put a copy of the peer's checkpoint of a stage at ``target``, whole or not at all; where it stands.

        The stages of a peer are asked for in their order, from the first on.
        """


class SnapshotsHere:
    """The peers of this host: their folders are copied while they go on."""

    def __init__(self, folder_of: Callable[[str], Path], stages: int) -> None:
        self._folder_of = folder_of
        self._stages = stages

    def copy(self, peer: str, stage: int, target: Path) -> Standing:
        """Copy the peer's own folder."""
        return copy_checkpoint(checkpoint_folders(self._folder_of(peer), self._stages)[stage], target)


def _refuse(checkpoint: Path, partitions: int) -> None:
    raise AssertionError(f"{checkpoint} is not to be brought to {partitions} partitions")


@dataclass(frozen=True)
class Shape:
    """In how many partitions a replica keeps the state of each stage, and how a checkpoint is brought to that."""

    partitions: Mapping[int, int] = field(default_factory=dict)
    """By stage; those that are not there keep what they have."""
    reshape: Callable[[Path, int], object] = _refuse


KEPT_SHAPE = Shape()


def _old(folder: Path) -> Path:
    """Where a checkpoint is for the moment in which another one takes its place."""
    return folder.with_name(f"{folder.name}.old")


def _put_in_place(folder: Path, fresh: Path) -> None:
    """One of the two is there at every moment: nobody else may have this state."""
    old = _old(folder)
    shutil.rmtree(old, ignore_errors=True)
    folder.rename(old)
    fresh.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


class CheckpointFolders:
    """A replica's checkpoints, as :class:`~lockstep.runtime.state.recovery.Recovery` asks for them."""

    def __init__(
        self,
        folder: Path,
        stages: int,
        snapshots: Snapshots,
        store: Store,
        holder: Holder,
        plan: Plan,
        version: str,
        shape: Shape = KEPT_SHAPE,
    ) -> None:
        self._partitions, self._reshape = shape.partitions, shape.reshape
        self.folders = checkpoint_folders(folder, stages)
        self._snapshots = snapshots
        self._store = store
        self._holder = holder
        self._plan = plan
        self._version = version

    def find(self, stage: int) -> Found | None:
        """Read what is there, and whether its files are whole."""
        folder = self.folders[stage]
        if not folder.exists() and _old(folder).exists():
            # Whoever laid it out anew was killed between two renames.
            _old(folder).rename(folder)
        return found_in(folder) if folder.exists() else None

    def take_back(self, stage: int, batch: int) -> None:
        """Let the newest batch be computed again."""
        checkpoints.take_back(self.folders[stage], batch)

    def keep(self, stage: int) -> None:
        """Use the checkpoint that is there; from now on this version of the code writes it."""
        folder, fresh = self.folders[stage], self._fresh(stage)
        if self._has_another_shape(stage, folder):
            # In a copy: whoever dies meanwhile finds what there was.
            shutil.rmtree(fresh, ignore_errors=True)
            copy_checkpoint(folder, fresh)
            self._into_shape(stage, fresh)
            _put_in_place(folder, fresh)
        relocate(folder)
        checkpoints.write_fingerprint(folder, self._plan, self._version, self._holder.incarnation)

    def make(self, stage: int) -> None:
        """Put an empty checkpoint beside the one that is there."""
        fresh = self._fresh(stage)
        shutil.rmtree(fresh, ignore_errors=True)
        checkpoints.write_fingerprint(fresh, self._plan, self._version, self._holder.incarnation)

    def copy(self, stage: int, peer: str) -> int:
        """Put a copy of a peer's checkpoint beside the one that is there; the epoch it stands at."""
        fresh = self._fresh(stage)
        shutil.rmtree(fresh, ignore_errors=True)
        epoch = self._snapshots.copy(peer, stage, fresh).epoch
        check_peers_plan(fresh, self._plan, peer)
        self._into_shape(stage, fresh)
        checkpoints.write_fingerprint(fresh, self._plan, self._version, self._holder.incarnation)
        return epoch

    def swap(self, stage: int, taken: int, *, keep_old: bool) -> None:
        """Replace the checkpoint by what was put beside it, which has all epochs up to ``taken``."""
        folder = self.folders[stage]
        if folder.exists() and keep_old:
            aside = checkpoints.set_aside(folder, self._holder.incarnation)
            self._store.add_event("checkpoint-set-aside", f"kept as {aside.name}", self._holder.replica)
        elif folder.exists():
            shutil.rmtree(folder)
        reached(Window.SEEDING_HALF_DONE, self._holder.replica, taken)
        self._fresh(stage).rename(folder)
        relocate(folder)

    def _has_another_shape(self, stage: int, folder: Path) -> bool:
        wanted = self._partitions.get(stage)
        held = partitions_of(folder) if wanted is not None else None
        return held is not None and held != wanted

    def _into_shape(self, stage: int, fresh: Path) -> None:
        if self._has_another_shape(stage, fresh):
            told = f"stage {stage + 1}: state in {partitions_of(fresh)} partitions brought to {self._partitions[stage]}"
            begun_s = time.monotonic()
            self._reshape(fresh, self._partitions[stage])
            took_s = time.monotonic() - begun_s
            self._store.add_event("repartitioned", f"{told} in {took_s:.1f} s", self._holder.replica)

    def _fresh(self, stage: int) -> Path:
        return self.folders[stage].with_name(f"{self.folders[stage].name}.new")


def check_peers_plan(copied: AnyPath, plan: Plan, peer: str) -> None:
    """A peer that was started before Lockstep was changed on the disk may keep its state in another order."""
    noted = checkpoints.read_fingerprint(copied)
    changed = differences(noted[0], plan) if noted is not None else ["it does not say which plan wrote it"]
    if changed:
        raise RunError(
            "LS0609",
            f"the state of {peer} cannot be taken over",
            why="; ".join(changed) + ".",
            hint="stop the job and start it again, so that all replicas run the same code.",
        )


def put_checkpoints(came: Path, replica: Path) -> None:
    """Put checkpoints that came from elsewhere, a folder for each stage, in the place of a replica's."""
    replica.mkdir(parents=True, exist_ok=True)
    for stage in sorted(came.iterdir()):
        if not stage.name.startswith(CHECKPOINT):
            raise ValueError(f"{stage.name} is no checkpoint of a stage")
        shutil.rmtree(replica / stage.name, ignore_errors=True)
        stage.rename(replica / stage.name)
    came.rmdir()
