"""From what a replica starts: its own checkpoint, a peer's snapshot, or the beginning of the ledger.

The JVM is up by then: the seed is taken last, so that the replica joins a second or two behind.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

from lockstep.config import RunSettings
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import RunError
from lockstep.plan.fingerprints import differences
from lockstep.plan.graph import Graph
from lockstep.runtime.spec import ReplicaSpec, replica_folder
from lockstep.runtime.state.checkpoint import Found, Plan, Standing
from lockstep.runtime.state.checkpoints_at_address import CheckpointsAtAddress
from lockstep.runtime.state.folders import KEPT_SHAPE, CheckpointFolders, Shape, Snapshots, SnapshotsHere
from lockstep.runtime.steps import Pause, Step, Steps, run
from lockstep.store.protocols import BOOTING, COMPUTING, Holder, Progress, Store

FIND, TAKE_BACK, KEEP, COPY, SWAP, TELL = "find", "take back", "keep", "copy", "swap", "tell"
OWN, SCRATCH = "own", "scratch"
"""What a replica may start from besides the snapshot of a peer, whose name the choice then is."""
ALIKE = "alike-versions"
"""Fact: two versions of the code that are said to have the same results, while or after one replaced the other."""
VERSION = "version"
VERSION_FROM = "version-from"
"""Facts: the version of the code that runs, and the last epoch of the version before it."""
_POLL_S = 0.5


def state_at(replica: str) -> str:
    """The fact that says on which host a replica's state is.

    >>> state_at("r0")
    'state-at-r0'
    """
    return f"state-at-{replica}"


def alike_versions(store: Store, version: str) -> tuple[str, ...]:
    """The versions of the code whose state may be gone on with: this one, and one with the same results beside it."""
    alike = json.loads(store.fact(ALIKE) or "[]")
    return tuple(alike) if version in alike else (version,)


def began_after(results_of: int) -> str:
    """The fact that says after which epoch of the generation before it a generation began to compute.

    >>> began_after(2)
    'generation-2-after'
    """
    return f"generation-{results_of}-after"


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
        return OWN
    return SCRATCH if reaches_back else ""


class Checkpoints(Protocol):
    """The checkpoints of one replica, one for each of its stages: its folders, or a model of them."""

    def find(self, stage: int) -> Found | None:
        """What is there, None if nothing is."""

    def take_back(self, stage: int, batch: int) -> None:
        """Undo the commit of the newest batch."""

    def keep(self, stage: int) -> None:
        """Use what is there."""

    def make(self, stage: int) -> None:
        """Put an empty one beside it."""

    def copy(self, stage: int, peer: str) -> int:
        """Put a copy of a peer's beside it; the epoch it stands at."""

    def swap(self, stage: int, taken: int, *, keep_old: bool) -> None:
        """Put what is beside it in its place."""


@dataclass(frozen=True)
class Recovery:
    """One start of a replica: it ends with a checkpoint in place for each stage, or with LS0605."""

    store: Store
    holder: Holder
    checkpoints: Checkpoints
    settings: RunSettings
    plan: Plan
    version: str
    time_steps: Sequence[Sequence[str]]
    """The ``event_time`` steps of each stage."""
    prefer_peer: bool
    elapsed_s: Callable[[], float] = time.monotonic
    host: str = ""
    """Where this start is, if the job lives on several hosts."""
    again: bool = False
    """Whether this start has had a seed before: then its own checkpoint is one that it computes with."""
    results_of: int = 1
    """The generation of its results: those of another one have another state."""
    takes_older: bool = False
    """Whether it may go on from the state of an older generation: it is the first of its own."""

    def steps(self) -> Steps[None]:
        """Look, choose, put in place."""
        own = yield Step(FIND, self._usable)
        choice = yield from self._choose(own)
        taken = None if choice == OWN else (yield from self._copied(choice, own))
        if taken is None:
            yield from self._keep(own)
        else:
            # What it was told to distrust has been set aside by the first seed.
            distrusted = self.prefer_peer and not self.again
            yield from self._replace(choice, taken, keep_old=own is None or distrusted)
        if self.host:
            # Not by what it says of itself: a start that found nothing to start from spoke on that host too.
            yield Step(TELL, self._tell_where)

    def _tell_where(self) -> None:
        """Nor by one that was replaced while its host was cut off: it would hide where its successor's state is."""
        if self.store.is_live(self.holder):
            self.store.set_fact(state_at(self.holder.replica), self.host)

    def _choose(self, own: Sequence[Standing] | None) -> Steps[str]:
        """The choice; if there is none yet but another replica is booting, wait for that one."""
        replica = self.holder.replica
        furthest_behind = min(own, key=lambda at: at.epoch) if own is not None else None
        deadline_s = self.elapsed_s() + self.settings.start_timeout_s / 2
        while True:
            situation = self._situation(furthest_behind, is_sound=own is not None)
            beyond = self.settings.seed_beyond_epochs
            choice = choose(situation, prefer_peer=self.prefer_peer, seed_beyond_epochs=beyond)
            if choice:
                return choice
            if not may_wait(self.store, replica) or self.elapsed_s() > deadline_s:
                raise _impossible(situation)
            yield Pause(_POLL_S)

    def _situation(self, own: Standing | None, *, is_sound: bool) -> Situation:
        situation = situation_of(self.store, self.holder.replica, own, is_sound)
        if self.takes_older:
            # From the beginning it would compute epochs that older code has published.
            return replace(situation, changed=True)
        peers = [one for one in situation.peers if one.results_of == self.results_of]
        # Results that came later did not compute the first epochs.
        return replace(situation, peers=peers, changed=situation.changed or self.results_of > 1)

    def _keep(self, own: Sequence[Standing]) -> Steps[None]:
        for stage, (at, time_steps) in enumerate(zip(own, self.time_steps, strict=True)):
            if must_replay(at, _head_epoch(self.store), self.store.observed(at.epoch), time_steps):
                yield Step(TAKE_BACK, partial(self.checkpoints.take_back, stage, at.batch))
                lost = f"what epoch {at.epoch} saw of event time was lost"
                yield Step(TELL, partial(self._tell, "epoch-replayed", lost))
            yield Step(KEEP, partial(self.checkpoints.keep, stage))

    def _copied(self, choice: str, own: Sequence[Standing] | None) -> Steps[int | None]:
        """Put copies beside what is there; up to which epoch, None if that was not possible and need not be."""
        try:
            return (yield from self._copies(choice))
        except (RunError, OSError) as error:
            if not self.again or own is None:
                raise
            # Without a newer seed it computes its way forward.
            yield Step(TELL, partial(self._tell, "not-seeded", f"it goes on with its own checkpoint: {error}"))
            return None

    def _copies(self, choice: str) -> Steps[int]:
        taken = -1
        for stage in range(len(self.time_steps)):
            if choice == SCRATCH:
                yield Step(COPY, partial(self.checkpoints.make, stage))
            else:
                epoch = yield Step(COPY, partial(self.checkpoints.copy, stage, choice))
                taken = min(taken, epoch) if stage > 0 else epoch
        return taken

    def _replace(self, choice: str, taken: int, *, keep_old: bool) -> Steps[None]:
        """All swaps come after all copies: a peer that cannot be copied costs nothing that is there."""
        for stage in range(len(self.time_steps)):
            yield Step(SWAP, partial(self.checkpoints.swap, stage, taken, keep_old=keep_old))
        if choice != SCRATCH:
            yield Step(TELL, partial(self._tell, "seeded", f"from {choice} at epoch {taken}"))
        if self.takes_older:
            yield Step(TELL, partial(self.store.set_fact, began_after(self.results_of), str(taken)))

    def _usable(self) -> list[Standing] | None:
        """Where the own checkpoints stand if they may be used: all of them or none."""
        usable: list[Standing] = []
        changed = changed_at(self.store)
        for stage in range(len(self.time_steps)):
            found = self.checkpoints.find(stage)
            if found is None:
                return None
            after = changed[stage] if stage < len(changed) else -1
            version = self.version if found.version in alike_versions(self.store, self.version) else found.version
            refused = refusal(replace(found, version=version), self.plan, self.version, after, _head_epoch(self.store))
            if refused is not None:
                self._tell(*refused)
                return None
            usable.append(found.at or Standing(-1, -1, -1))
        return usable

    def _tell(self, kind: str, text: str) -> None:
        self.store.add_event(kind, text, self.holder.replica)


def refusal(found: Found, plan: Plan, version: str, changed_after: int, head: int) -> tuple[str, str] | None:
    """Why a checkpoint may not be used, as the kind and the text of an event; None if it may."""
    at = found.at
    if found.damage:
        return "checkpoint-damaged", found.damage
    if found.plan is None or differences(found.plan, plan):
        return "checkpoint-foreign", "it was written by another plan"
    if at is not None and found.version != version and at.epoch != changed_after:
        # All replicas change to the new code after the same epoch, or their states would differ for good.
        return "checkpoint-of-older-code", f"it ends at epoch {at.epoch}"
    if at is not None and at.begun_epoch > head:
        # It belongs to another history.
        return "checkpoint-contradicts-ledger", f"it has epoch {at.begun_epoch}, the ledger ends at {head}"
    return None


def prepare(
    spec: ReplicaSpec,
    store: Store,
    holder: Holder,
    graph: Graph,
    version: str,
    settings: RunSettings,
    *,
    again: bool = False,
    shape: Shape = KEPT_SHAPE,
) -> tuple[AnyPath, ...]:
    """Put a checkpoint for each stage in place for this start and return their folders."""
    plan, stages, address = graph.fingerprint(), len(graph.stages), spec.parsed_settings().checkpoints
    checkpoints: CheckpointFolders | CheckpointsAtAddress
    if address:
        checkpoints = CheckpointsAtAddress(address, stages, store, holder, plan, version)
    else:
        snapshots = _snapshots(spec, store, plan, version, stages)
        checkpoints = CheckpointFolders(spec.folder, stages, snapshots, store, holder, plan, version, shape)
    time_steps = [[step.id for step in stage.event_times] for stage in graph.stages]
    prefer_peer = spec.seed == "peer"
    recovery = Recovery(
        store,
        holder,
        checkpoints,
        settings,
        plan,
        version,
        time_steps,
        prefer_peer,
        host=spec.host,
        again=again,
        results_of=spec.results_of,
        takes_older=spec.takes_older,
    )
    run(recovery.steps())
    return checkpoints.folders


def _snapshots(spec: ReplicaSpec, store: Store, plan: Plan, version: str, stages: int) -> Snapshots:
    """Where the peers' snapshots come from: folders of this host, but for peers that live on others."""
    here = SnapshotsHere(partial(replica_folder, Path(spec.home), spec.job), stages)
    if not spec.host:
        return here
    # Imported late: on one host no replica needs TLS and HTTP, and loading them takes time of its start.
    from lockstep.runtime.transfer import snapshots
    from lockstep.runtime.transfer.receiving import Pace

    hosts = spec.parsed_settings().hosts
    elsewhere = snapshots.SnapshotsElsewhere(
        lambda peer: snapshots.connected(snapshots.address_of(spec.store, host_of(peer)), hosts),
        store,
        snapshots.Starting(
            spec.job, spec.replica, stages, plan, version if spec.generation == 1 else "", bool(spec.environment)
        ),
        spec.folder,
        Pace(hosts.seed_bytes_per_s_max),
    )

    def host_of(peer: str) -> str:
        return next((one.host for one in store.progress() if one.replica == peer), "")

    return snapshots.SnapshotsAnywhere(here, elsewhere, lambda peer: host_of(peer) != spec.host)


def must_replay(at: Standing, head: int, observed: Mapping[str, int | None], time_steps: Sequence[str]) -> bool:
    """Whether the newest epoch of a checkpoint has to be computed again, for what its records say of event time.

    Progress is written to disk a little later than Spark's commit. If the power fails between the two, the next epoch
    would be sealed with marks that leave this one out, and a replica that kept its watermark would close windows
    earlier than the others.

    >>> must_replay(Standing(4, 7, 7), 7, {}, ["event_time"]), must_replay(Standing(4, 7, 7), 8, {}, ["event_time"])
    (True, False)
    """
    return at.batch >= 0 and at.epoch >= head and any(step not in observed for step in time_steps)


def may_wait(store: Store, replica: str) -> bool:
    """Whether another replica is booting: it may have something to start from in a moment."""
    booting = [one for one in store.progress() if one.replica != replica and one.state in BOOTING]
    return any(store.is_live(Holder(one.replica, one.incarnation)) for one in booting)


def situation_of(store: Store, replica: str, own: Standing | None, sound: bool) -> Situation:
    """What the store says when ``replica`` has to choose."""
    open_ones = [one for one in store.divergences() if not one.verdict]
    accused = {who for one in open_ones for who in (one.published_by, str(Holder(one.replica, one.incarnation)))}
    # Not by the age of its word: clocks of hosts differ by minutes, and this one has seen no word before. Whoever ended
    # was retired.
    others = [one for one in store.progress() if one.replica != replica and one.state in COMPUTING]
    holders = {one.replica: Holder(one.replica, one.incarnation) for one in others}
    # Nobody is seeded from a party to a disagreement that is not judged yet: it could be the one that is wrong.
    peers = [one for one in others if store.is_live(holders[one.replica]) and str(holders[one.replica]) not in accused]
    changed = max(changed_at(store)) >= 0
    return Situation(own, sound, _head_epoch(store), store.floor(), peers, changed)


def changed_at(store: Store) -> tuple[int, ...]:
    """For each stage the epoch up to which an older version of the job's code computed, -1 if there was none."""
    return tuple(int(epoch) for epoch in (store.fact(VERSION_FROM) or "-1").split(","))


def _head_epoch(store: Store) -> int:
    head = store.head()
    return head.epoch if head is not None else -1


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
