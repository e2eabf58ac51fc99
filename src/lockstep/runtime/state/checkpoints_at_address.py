"""The checkpoints of a replica at an address: where executors of other machines write state, and all replicas read it.

    ADDRESS/r0/12-1/stage-1    what Spark writes: the first checkpoint that start 12 of r0 has had
    ADDRESS/r0/12-1/in-place   put last: the folder is whole

There is no lock that would hold everywhere, so each start writes into a folder of its own: one that was cut off and
goes on does no harm to its successor. The newest folder with the mark is the replica's checkpoint. Nothing is renamed
into its place, since not all systems can; where they can, a start gives its predecessor's folder its own name, which
takes it from whoever still writes there.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator

from lockstep.connect.disk import entries, move_folder, remove_folder, replace_file
from lockstep.connect.remote.paths import AnyPath, location
from lockstep.errors import RunError, ServiceError
from lockstep.faults.windows import Window, reached
from lockstep.runtime.state import checkpoint as checkpoints
from lockstep.runtime.state.checkpoint import Found, Plan
from lockstep.runtime.state.folders import check_peers_plan, found_in, stage_epochs
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.state.state_metadata import relocate
from lockstep.store.protocols import Holder, Store

IN_PLACE, SET_ASIDE = "in-place", "set-aside"
SET_ASIDE_KEPT = 2
SEEDING_ATTEMPTS = 3
"""A peer that takes another seed itself, or comes back as another process, has its checkpoint elsewhere afterwards."""
_REHEARSAL = "rehearsal-"
_FOLDER = re.compile(r"(\d+)-(\d+)")


def stage_folders(folder: AnyPath, stages: int) -> tuple[AnyPath, ...]:
    """The checkpoints of all stages in a folder."""
    return tuple(folder / f"stage-{number}" for number in range(1, stages + 1))


def in_place(replica: AnyPath) -> AnyPath | None:
    """The newest folder of a replica that is whole; None if there is none, or if that one is distrusted."""
    numbered = sorted(_numbered(replica), reverse=True)
    newest = next((folder for _, folder in numbered if (folder / IN_PLACE).exists()), None)
    return None if newest is None or (newest / SET_ASIDE).exists() else newest


def rehearsal_place(address: str, replica: str) -> AnyPath:
    """Where a rehearsal keeps its state; if it is killed, the replica's next start removes what it left."""
    return location(address) / replica / f"{_REHEARSAL}{secrets.token_hex(4)}"


def standings_at(address: str, stages: int) -> list[tuple[int, ...]]:
    """The newest epoch that each stage of each replica has computed, by the checkpoints at an address."""
    found = (in_place(replica) for replica in entries(location(address)))
    return [stage_epochs(stage_folders(folder, stages)) for folder in found if folder is not None]


def _numbered(replica: AnyPath) -> Iterator[tuple[tuple[int, int], AnyPath]]:
    """The folders of a replica, each with its start and its number among those of that start."""
    for path in entries(replica):
        if match := _FOLDER.fullmatch(path.name):
            yield (int(match[1]), int(match[2])), path


class CheckpointsAtAddress:
    """A replica's checkpoints, as :class:`~lockstep.runtime.state.recovery.Recovery` asks for them."""

    def __init__(self, address: str, stages: int, store: Store, holder: Holder, plan: Plan, version: str) -> None:
        self._place = location(address)
        self._stages = stages
        self._store = store
        self._holder = holder
        self._plan = plan
        self._version = version
        self._replica = self._place / holder.replica
        self._current = in_place(self._replica)
        own = [number for (start, number), _ in _numbered(self._replica) if start == holder.incarnation]
        self._number = (holder.incarnation, max(own, default=0) + 1)
        self._fresh = self._replica / "{}-{}".format(*self._number)

    @property
    def folders(self) -> tuple[AnyPath, ...]:
        """Where Spark writes, once a checkpoint is in place for each stage."""
        assert self._current is not None
        return stage_folders(self._current, self._stages)

    def find(self, stage: int) -> Found | None:
        """Read what is there, and whether its files are whole."""
        if self._current is None:
            return None
        found = found_in(self.folders[stage])
        if not (self._current / IN_PLACE).exists():
            raise _taken(self._holder)
        return found

    def take_back(self, stage: int, batch: int) -> None:
        """Let the newest batch be computed again."""
        checkpoints.take_back(self.folders[stage], batch)

    def keep(self, stage: int) -> None:
        """Use the checkpoint that is there; from now on this start writes it."""
        if stage == 0:
            self._take_over()
        self._complete(stage, self.folders[stage])

    def make(self, stage: int) -> None:
        """Put an empty checkpoint beside the one that is there."""
        self._note(stage_folders(self._fresh, self._stages)[stage])

    def copy(self, stage: int, peer: str) -> int:
        """Put a copy of a peer's checkpoint beside the one that is there; the epoch it stands at."""
        fresh = stage_folders(self._fresh, self._stages)[stage]
        for attempt in range(1, SEEDING_ATTEMPTS + 1):
            source = in_place(self._place / peer)
            if source is None:
                raise RunError("LS0606", f"no snapshot could be taken of {peer}", why="it has no checkpoint in place.")
            try:
                epoch = copy_checkpoint(stage_folders(source, self._stages)[stage], fresh).epoch
                break
            except RunError:
                if attempt == SEEDING_ATTEMPTS or in_place(self._place / peer) == source:
                    raise
        check_peers_plan(fresh, self._plan, peer)
        self._note(fresh)
        return epoch

    def swap(self, stage: int, taken: int, *, keep_old: bool) -> None:
        """Use what was put beside the checkpoint, which has all epochs up to ``taken``, with the last stage."""
        old, is_last = self._current, stage == self._stages - 1
        if is_last:
            reached(Window.SEEDING_HALF_DONE, self._holder.replica, taken)
            if old is not None and keep_old:
                replace_file(old / SET_ASIDE, b"")
                self._store.add_event("checkpoint-set-aside", f"kept as {old}", self._holder.replica)
            self._current = self._fresh
        self._complete(stage, stage_folders(self._fresh, self._stages)[stage])

    def _take_over(self) -> None:
        """Have the folder of an earlier start become this one's, by its name or as a copy."""
        old = self._current
        assert old is not None
        if old.name.partition("-")[0] == str(self._holder.incarnation):
            return
        if not move_folder(old, self._fresh):
            both = zip(stage_folders(old, self._stages), stage_folders(self._fresh, self._stages), strict=True)
            for source, target in both:
                at = checkpoints.standing(source)
                if at is not None and at.batch >= 0:
                    copy_checkpoint(source, target)
        self._current = self._fresh

    def _complete(self, stage: int, folder: AnyPath) -> None:
        """Make one stage ready for this start; with the last one the whole folder is in place, and older ones go."""
        relocate(folder)
        self._note(folder)
        if stage == self._stages - 1:
            assert self._current is not None
            replace_file(self._current / IN_PLACE, b"")
            self._sweep()

    def _note(self, folder: AnyPath) -> None:
        checkpoints.write_fingerprint(folder, self._plan, self._version, self._holder.incarnation)

    def _sweep(self) -> None:
        """Remove what earlier starts left, and this one's earlier seeds. Later starts may have folders too."""
        for path in entries(self._replica):
            if path.name.startswith(_REHEARSAL):
                remove_folder(path)
        older = sorted(one for one in _numbered(self._replica) if one[0] <= self._number and one[1] != self._current)
        aside = [folder for _, folder in older if (folder / SET_ASIDE).exists()]
        for _, folder in older:
            if folder not in aside[-SET_ASIDE_KEPT:]:
                remove_folder(folder)


def _taken(holder: Holder) -> ServiceError:
    return ServiceError(
        "LS0703",
        f"the checkpoint of {holder.replica} was taken over by another start while start {holder.incarnation} read it",
        why="two starts of a replica were under way, and each has a folder of its own.",
        hint="nothing to do: the replica is started again.",
    )
