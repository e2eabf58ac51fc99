"""From what a replica starts: its own checkpoint, a peer's snapshot, or the beginning of the ledger.

The JVM is up by then: the seed is taken last, so that the replica joins a second or two behind.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.clock import US_PER_S, wall_us
from lockstep.config import RunSettings
from lockstep.errors import RunError
from lockstep.faults.windows import Window, reached
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.runtime.decide.pacing import FRESH_S, is_live
from lockstep.runtime.spec import ReplicaSpec, replica_folder
from lockstep.runtime.state import checkpoint as checkpoints
from lockstep.runtime.state.checkpoint import Standing
from lockstep.runtime.state.snapshot import copy_checkpoint
from lockstep.runtime.state.state_metadata import relocate
from lockstep.store.protocols import Holder, Progress, Store

Plan = dict[str, object]
VERSION = "version"
VERSION_FROM = "version-from"
"""Facts: the version of the code that runs, and the last epoch of the version before it."""
_BOOTING = frozenset({"starting", "seeding"})
_POLL_S = 0.5


@dataclass(frozen=True)
class Situation:
    """What is known when a replica has to choose. ``own`` is None without a (sound) checkpoint of its own."""

    own: Standing | None
    own_sound: bool
    head: int
    floor: int
    peers: Sequence[Progress]
    changed: bool = False
    """Whether older code computed epochs: then nobody starts from the beginning, or new code would compute them."""


def choose(situation: Situation, *, prefer_peer: bool, seed_beyond_epochs: int) -> str:
    """ "own", "scratch", or the name of the peer to take a snapshot from; "" if nothing is possible.

    >>> choose(Situation(None, True, head=-1, floor=0, peers=()), prefer_peer=False, seed_beyond_epochs=50)
    'scratch'
    """
    own = situation.own if situation.own_sound else None
    is_empty = own is not None and own.epoch < 0
    if own is not None and (situation.floor > max(0, own.epoch) or (is_empty and situation.changed)):
        # The entry of its own epoch is needed too: the next epoch begins at that cut. An empty one is the beginning.
        own = None
    own_epoch = own.epoch if own is not None else -1
    # Whoever is told to prefer a peer may be ahead of all of them, and wrong.
    beyond = -1 if prefer_peer else own_epoch
    peer = max((one for one in situation.peers if one.epoch > beyond), key=lambda one: one.epoch, default=None)
    far_behind = situation.head - own_epoch > seed_beyond_epochs
    reaches_back = situation.floor == 0 and not situation.changed
    if peer is not None and (prefer_peer or far_behind or (own is None and not reaches_back)):
        return peer.replica
    if own is not None:
        return "own"
    return "scratch" if reaches_back else ""


def checkpoint_folders(folder: Path, stages: int) -> tuple[Path, ...]:
    """Where the stages of a replica keep their checkpoints.

    >>> [path.name for path in checkpoint_folders(Path("r0"), 3)]
    ['checkpoint', 'checkpoint-2', 'checkpoint-3']
    """
    return tuple(folder / (f"checkpoint-{number}" if number > 1 else "checkpoint") for number in range(1, stages + 1))


def prepare(
    spec: ReplicaSpec, store: Store, holder: Holder, graph: Graph, version: str, settings: RunSettings
) -> tuple[Path, ...]:
    """Put a checkpoint for each stage in place for this start and return their folders."""
    plan = graph.fingerprint()
    folders = checkpoint_folders(spec.folder, len(graph.stages))
    own, sound = _own(folders, plan, version, store, holder)
    choice = _patient_choice(spec, store, own, sound, settings)
    if choice == "own":
        for folder, stage in zip(folders, graph.stages, strict=True):
            relocate(folder)
            _replay_unobserved(folder, [step.id for step in stage.event_times], store, holder)
            checkpoints.write_fingerprint(folder, plan, version)
        return folders
    fresh = [folder.with_name(f"{folder.name}.new") for folder in folders]
    taken = None
    for folder in fresh:
        shutil.rmtree(folder, ignore_errors=True)
    if choice != "scratch":
        theirs = checkpoint_folders(replica_folder(Path(spec.store), spec.job, choice), len(folders))
        taken = min(copy_checkpoint(one, new).epoch for one, new in zip(theirs, fresh, strict=True))
        for new in fresh:
            _check_peers_plan(new, plan, choice)
    for folder, new in zip(folders, fresh, strict=True):
        checkpoints.write_fingerprint(new, plan, version)
        _clear(folder, store, holder, keep=not sound or spec.seed == "peer")
        reached(Window.SEEDING_HALF_DONE, spec.replica, taken if taken is not None else -1)
        new.rename(folder)
        relocate(folder)
    if taken is not None:
        store.add_event("seeded", f"from {choice} at epoch {taken}", spec.replica)
    return folders


def _check_peers_plan(copied: Path, plan: Plan, peer: str) -> None:
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


def _replay_unobserved(folder: Path, time_steps: Sequence[str], store: Store, holder: Holder) -> None:
    at, head = checkpoints.standing(folder), store.head()
    if at is not None and must_replay(at, head.epoch if head else -1, store.observed(at.epoch), time_steps):
        checkpoints.take_back(folder, at.batch)
        store.add_event("epoch-replayed", f"what epoch {at.epoch} saw of event time was lost", holder.replica)


def must_replay(at: Standing, head: int, observed: Mapping[str, int | None], time_steps: Sequence[str]) -> bool:
    """Whether the newest epoch of a checkpoint has to be computed again, for what its records say of event time.

    Progress is written to disk a little later than Spark's commit. If the power fails between the two, the next epoch
    would be sealed with marks that leave this one out, and a replica that kept its watermark would close windows
    earlier than the others.

    >>> must_replay(Standing(4, 7, 7), 7, {}, ["event_time"]), must_replay(Standing(4, 7, 7), 8, {}, ["event_time"])
    (True, False)
    """
    return at.batch >= 0 and at.epoch >= head and any(step not in observed for step in time_steps)


def _patient_choice(spec: ReplicaSpec, store: Store, own: Standing | None, sound: bool, settings: RunSettings) -> str:
    """The choice; if there is none yet but another replica is booting, wait for that one."""
    deadline_s = time.monotonic() + settings.start_timeout_s / 2
    while True:
        situation = situation_of(store, spec.replica, own, sound, wall_us())
        choice = choose(situation, prefer_peer=spec.seed == "peer", seed_beyond_epochs=settings.seed_beyond_epochs)
        if choice:
            return choice
        if not may_wait(store.progress(), spec.replica, wall_us()) or time.monotonic() > deadline_s:
            raise _impossible(situation)
        time.sleep(_POLL_S)


def may_wait(progress: Sequence[Progress], replica: str, now_us: int) -> bool:
    """Whether another replica is booting: it may have something to start from in a moment."""
    booting = [one for one in progress if one.replica != replica and one.state in _BOOTING]
    return any(abs(now_us - one.updated_us) < FRESH_S * US_PER_S for one in booting)


def situation_of(store: Store, replica: str, own: Standing | None, sound: bool, now_us: int) -> Situation:
    """What the store says when ``replica`` has to choose."""
    head = store.head()
    open_ones = [one for one in store.divergences() if not one.verdict]
    accused = {who for one in open_ones for who in (one.published_by, str(Holder(one.replica, one.incarnation)))}
    others = [one for one in store.progress() if one.replica != replica and is_live(one, now_us)]
    holders = {one.replica: Holder(one.replica, one.incarnation) for one in others}
    # Nobody is seeded from a party to a disagreement that is not judged yet: it could be the one that is wrong.
    peers = [one for one in others if store.is_live(holders[one.replica]) and str(holders[one.replica]) not in accused]
    changed = max(changed_at(store)) >= 0
    return Situation(own, sound, head.epoch if head else -1, store.floor(), peers, changed)


def changed_at(store: Store) -> tuple[int, ...]:
    """For each stage the epoch up to which an older version of the job's code computed, -1 if there was none."""
    return tuple(int(epoch) for epoch in (store.fact(VERSION_FROM) or "-1").split(","))


def _clear(folder: Path, store: Store, holder: Holder, *, keep: bool) -> None:
    """Make room for a new checkpoint; one that was only behind is not worth keeping."""
    if folder.exists() and keep:
        aside = checkpoints.set_aside(folder, holder.incarnation)
        store.add_event("checkpoint-set-aside", f"kept as {aside.name}", holder.replica)
    elif folder.exists():
        shutil.rmtree(folder)


def _own(
    folders: Sequence[Path], plan: Plan, version: str, store: Store, holder: Holder
) -> tuple[Standing | None, bool]:
    """Where the own checkpoints stand, the one furthest behind, and whether they may be used: all of them or none."""
    found: list[Standing] = []
    changed = changed_at(store)
    for number, folder in enumerate(folders):
        until = changed[number] if number < len(changed) else -1
        at = _own_stage(folder, plan, version, until, store, holder)
        if at is None:
            return None, False
        found.append(at)
    return min(found, key=lambda at: at.epoch), True


def _own_stage(
    folder: Path, plan: Plan, version: str, changed_after: int, store: Store, holder: Holder
) -> Standing | None:
    """Where the checkpoint of one stage stands, None if it may not be used."""
    if not folder.exists():
        return None
    try:
        noted = checkpoints.read_fingerprint(folder)
        at = checkpoints.standing(folder)
        if at is not None and at.batch >= 0:
            checkpoints.check_state(folder, at.batch)
    except (RunError, OSError, ValueError) as error:
        store.add_event("checkpoint-damaged", str(error), holder.replica)
        return None
    head = store.head()
    head_epoch = head.epoch if head else -1
    if noted is None or differences(noted[0], plan):
        store.add_event("checkpoint-foreign", "it was written by another plan", holder.replica)
        return None
    if at is not None and noted[1] != version and at.epoch != changed_after:
        # All replicas change to the new code after the same epoch, or their states would differ for good.
        store.add_event("checkpoint-of-older-code", f"it ends at epoch {at.epoch}", holder.replica)
        return None
    if at is not None and contradicts(at, head_epoch):
        store.add_event(
            "checkpoint-contradicts-ledger",
            f"it has epoch {at.begun_epoch}, the ledger ends at {head_epoch}",
            holder.replica,
        )
        return None
    return at or Standing(-1, -1, -1)


def contradicts(at: Standing, head_epoch: int) -> bool:
    """Whether a checkpoint has an epoch that the ledger does not know: it belongs to another history."""
    return at.begun_epoch > head_epoch


def _impossible(situation: Situation) -> RunError:
    return RunError(
        "LS0605",
        "this replica has nothing to start from",
        why=f"it has no sound checkpoint, no healthy peer runs, and {_no_beginning(situation)}.",
        hint="put back a copy of the store's folder, or start the job under another name.",
    )


def _no_beginning(situation: Situation) -> str:
    if situation.changed:
        return "older code of the job computed the first epochs"
    return f"the ledger begins at epoch {situation.floor}"
