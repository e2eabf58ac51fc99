"""Bugs to be planted, each with the promise that it breaks: a simulator that finds none of them proves nothing.

A bug replaces one rule while it is planted; everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.connect.protocols import Publication, SourceSide
from lockstep.control.coordinator import taking_over
from lockstep.control.coordinator.taking_over import LEASE_S
from lockstep.control.hosts import agents
from lockstep.control.hosts.placing import Room
from lockstep.control.supervise import spares, supervision
from lockstep.control.supervise import supervisor as supervising
from lockstep.control.supervise.slots import Slot
from lockstep.control.supervise.spares import Spares
from lockstep.control.supervise.supervision import Action, Seen
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process
from lockstep.errors import StoreError
from lockstep.runtime.decide import pacing, proposing
from lockstep.runtime.decide.pacing import Seal, View, Wait
from lockstep.runtime.decide.proposing import Proposal
from lockstep.runtime.desired_run import LEASE
from lockstep.runtime.epoch.epoch_steps import PUBLISH, EpochSteps
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.state import recovery
from lockstep.runtime.state.checkpoint import Standing
from lockstep.runtime.steps import Step, Steps
from lockstep.sim.checkpoints import Checkpoint, SimCheckpoints
from lockstep.sim.child_processes import SimAgent
from lockstep.sim.coordination import SharedStore
from lockstep.sim.hosts_world import HostsWorld
from lockstep.sim.memory_store import MemoryStore
from lockstep.sim.pipeline import SimSink, State, compute
from lockstep.sim.planted_operations import OPERATION_BUGS
from lockstep.sim.planting import Bug, swapped
from lockstep.sim.replica import SimReplica
from lockstep.sim.scenario import SETTINGS, Scenario
from lockstep.sim.sealer import SimSealer
from lockstep.sim.work import SimOutput, SimWork
from lockstep.store.protocols import Cut, Entry, Holder, Item, Progress, Store

MANY_CRASHES = Scenario(replicas=3, crash_chance=0.05, tear_chance=0.5)
MANY_HANGS = Scenario(hang_chance=0.02, zombie_chance=0.9)
ZOMBIES = replace(MANY_HANGS, hang_chance=0.05)
PATIENT = replace(MANY_HANGS, zombie_chance=0.0, settings=SETTINGS.model_copy(update={"hang_timeout_s": 30.0}))
HURRIED = Scenario(hang_chance=0.02, lead_epochs_max=2, settings=SETTINGS.model_copy(update={"epoch_interval_s": 0.1}))
SILENT = Scenario(faults_s=10.0, silence_s=((2.0, 9.0),))
QUIET = Scenario(crash_chance=0.03, quiet_s=((3.0, 12.0),))
DARK = Scenario(faults_s=8.0, blackouts_s=(3.0, 6.0), power_loss=True)
SET_BACK = Scenario(clock_jumps_s=((3.0, "all", -40.0),), silence_s=((4.0, 11.0),))
TAKEN_OVER = Scenario(faults_s=16.0, supervisor_hangs_s=((2.0, 11.5),), supervisor_lock=False)
TAKEN_OVER_AND_CRASHING = replace(TAKEN_OVER, crash_chance=0.01)
LEFT_ALONE = Scenario(supervisor_killed_s=(4.0,))
FULL_WHILE_FORGETTING = Scenario(
    # The supervisor forgets every five seconds; a lone replica that loses its checkpoint starts from the first epoch.
    replicas=1,
    faults_s=9.5,
    boot_s=(0.2, 0.5),
    crash_chance=0.01,
    tear_chance=1.0,
    disk_full_s=((4.95, 5.3),),
)
HELD = Scenario(hold_chance=0.03)
HELD_AND_SLOW = replace(HELD, store_slow_s=((1.0, 15.0),))
LOCKED = Scenario(disk_locked_s=((2.0, 12.0),))
TWO_STAGES = Scenario(stages=2, pause_chance=0.03, slow_chance=0.05, stops_s=(3.0, 5.5, 8.0, 10.5, 13.0))
SPARED = Scenario(spares=2, crash_chance=0.01, hang_chance=0.005, faults_s=20.0, boot_s=(0.3, 1.0))

CUT_OFF = Scenario(replicas=3, hosts=3, cut_off_s=((3.0, "h1", 4.0), (8.0, "h2", 4.0), (11.0, "h3", 4.0)))
CUT_OFF_BESIDE_SINKS = replace(CUT_OFF, slow_chance=0.05, sinks_beyond=True)
LEFT_ALONE_ON_HOSTS = replace(LEFT_ALONE, hosts=3)
CRASHING_ON_HOSTS = Scenario(hosts=3, crash_chance=0.03, tear_chance=0.5)
STRUCK_AT_THE_LEASE = replace(
    LEFT_ALONE_ON_HOSTS, faults_s=10.0, supervisor_hangs_s=((4.1, 5.0), (4.2, 5.0), (4.3, 5.0))
)
MINUTES_AHEAD = Scenario(hosts=3, clock_jumps_s=((0.0, "h2", 150.0),))


# Publishing.


def _publish_unfenced(sink: SimSink, wanted: Publication, now_us: int) -> Publication:
    sink.show(wanted, now_us)
    return wanted


def _publish_over(sink: SimSink, wanted: Publication, now_us: int) -> Publication:
    """As ``rename`` does it: whoever comes second replaces the manifest."""
    held = sink.held.get(wanted.epoch)
    if held is None or held.by != wanted.by:
        sink.held[wanted.epoch] = wanted
        sink.show(wanted, now_us)
    return wanted


def _publish_as_remembered(work: SimWork, wanted: Publication, output: SimOutput) -> Publication:
    """Whoever was replaced trusts what it saw before it hung."""
    if work._replica.zombie:
        work._world.sinks[output.sink].held.pop(wanted.epoch, None)
    return _PUBLISH(work, wanted, output)


def _publish_over_if_zombie(work: SimWork, wanted: Publication, output: SimOutput) -> Publication:
    if not work._replica.zombie:
        return _PUBLISH(work, wanted, output)
    with swapped((SimSink, "publish", _publish_over))():
        work._world.sinks[output.sink].staged.discard((wanted.epoch, wanted.by))
        return _PUBLISH(work, wanted, output)


def _commit_first(replica: SimReplica, stage: int, entry: Entry, machine: EpochSteps[SimOutput]) -> Steps[None]:
    """The steps of a micro-batch, those that publish last."""
    steps, late, answer = _BATCH(replica, stage, entry, machine), [], None
    with suppress(StopIteration):
        while True:
            step = steps.send(answer)
            if isinstance(step, Step) and step.name.startswith(PUBLISH):
                late.append(step)
                # As if it were published already, just as it is wanted.
                answer = cast("partial[Publication]", step.act).args[0]
            else:
                answer = yield step
    for step in late:
        yield step


_PUBLISH = SimWork.publish
_BATCH = SimReplica.batch


# Sealing.


def _seal_over(store: MemoryStore, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:  # noqa: ARG001
    store.refuse_the_retired(holder)
    return store.put(proposal, holder)


def _seal_by_the_clock(sealer: SimSealer, proposal: Proposal) -> Entry:
    return _PUT(sealer, replace(proposal, entry=replace(proposal.entry, epoch_time_us=sealer._clock())))


def _take_refusal_for_success(sealer: SimSealer, proposal: Proposal) -> Entry:
    try:
        return _PUT(sealer, proposal)
    except StoreError:
        sealer.ready(proposal.entry.epoch + 1, {})
        return proposal.entry


_PUT = SimSealer.put


def _decide_with_data_only(view: View, settings: RunSettings) -> Seal | Wait:
    return pacing.decide(view, settings) if view.has_data else Wait(0.1, "data")


def _decide_by_the_clock(view: View, settings: RunSettings) -> Seal | Wait:
    """As it was before the simulator found it: a clock that is set back takes the heartbeat away."""
    if view.last_sealed_us is not None and view.now_us < view.last_sealed_us:
        return Seal() if view.has_data else Wait(settings.epoch_interval_s, "clock")
    return pacing.decide(view, settings)


# State.


def _copy_leftover(checkpoints: SimCheckpoints, stage: int, peer: str) -> int:
    """A copy that an earlier start left behind is taken for the one that was just ordered."""
    leftover = checkpoints._replica.host.copies.get((checkpoints._replica.name, stage))
    epoch = _COPY(checkpoints, stage, peer)
    if leftover is not None:
        copied = checkpoints.copied[stage]
        checkpoints.copied[stage] = replace(copied, state=leftover.state, before=leftover.before)
    return epoch


def _compute_without_mark(work: SimWork, start: Cut, entry: Entry) -> State:
    """The first epoch after a start gets no mark: what Spark forgot stays forgotten."""
    is_first = work._replica.at.done_us == 0
    entry = replace(entry, marks={}) if is_first else entry
    return compute(work.stage, work.state, start, entry, work.observed(), work.content, work._replica.results)


def _tear_unnoticed(checkpoints: SimCheckpoints, stage: int) -> None:
    """A torn commit looks whole: the epoch counts, its state is the one before."""
    own = checkpoints.own(stage)
    if own is not None and own.begun_epoch > own.epoch:
        checkpoints.write(stage, Checkpoint(own.begun_epoch, own.begun_epoch, own.state, own.before))


_COPY = SimCheckpoints.copy


def _situation_with_the_retired(store: Store, replica: str, own: Standing | None, sound: bool) -> recovery.Situation:
    """Whoever said last how far it was counts as a peer, also if it was retired."""
    peers = [one for one in store.progress() if one.replica != replica and one.epoch >= 0]
    return replace(_SITUATION(store, replica, own, sound), peers=peers)


_SITUATION = recovery.situation_of


# Hosts.


def _acquire_by_clock(store: SharedStore, name: str, holder: str, ttl_s: float) -> bool:
    """A lease lasts until a time by the clock of its holder's host, which others compare with their own."""
    now_us = store.clock_of(holder)()
    held_by, until_us = store._leases.get(name, (holder, 0))
    if held_by != holder and until_us > now_us:
        return False
    store._leases[name] = (holder, now_us + round(ttl_s * US_PER_S))
    store.give(name, holder)
    return True


def _place_where_the_state_is(rooms: Sequence[Room], replica: str, state_at: str = "") -> str | None:  # noqa: ARG001
    hosts = [one.host for one in rooms]
    return state_at if state_at in hosts else min(hosts, default=None)


# Supervising.


def _floor_of_the_newest(progress: Sequence[Progress], given_up: Sequence[str], settings: RunSettings) -> int:  # noqa: ARG001
    return max(0, max(one.epoch for one in progress) - settings.retention_epochs_min)


def _forget_records_first(store: Store, sources: Mapping[str, SourceSide], floor: int) -> None:
    entry = store.entry(floor - 1) if floor > store.floor() else None
    if entry is not None:
        for name, side in sources.items():
            side.trim(entry.cut[name])
        store.trim(floor)


def _start_once(seen: Sequence[Seen], head: int, now_us: int, settings: RunSettings) -> list[Action]:
    return [] if any(one.ended_us for one in seen) else supervision.decide(seen, head, now_us, settings)


def _adopt_and_forget(supervisor: Supervisor, slot: Slot, process: Process) -> None:
    """It is noted as adopted, and its place stays empty."""
    supervisor._owe_event("replica-adopted", f"pid {process.pid}", slot.name)


def _renew_blindly(supervisor: Supervisor) -> None:
    supervisor._store.acquire(LEASE, supervisor._identity, LEASE_S)


def _kill_as_noted(supervisor: Supervisor, replica: str, kind: str, reason: str) -> None:
    """As it was: the store is told first, and whoever has its lock is told about."""
    process = supervisor.slots[replica].process
    if process is not None:
        supervisor._store.retire(replica)
        supervisor._store.add_event(kind, reason, replica)
        process.kill()


def _kill_after_asking(supervisor: Supervisor, replica: str, kind: str, reason: str) -> None:
    """Who computed what, epoch by epoch, before anybody is ended: milliseconds, if the store is well."""
    for epoch in range(_ASKED_EPOCHS):
        supervisor._store.digests(epoch)
    _KILL(supervisor, replica, kind, reason)


_KILL = Supervisor.kill
_ASKED_EPOCHS = 30


BUGS: tuple[Bug, ...] = (
    Bug(
        "publish-without-fence",
        "Every replica publishes every epoch, and no sink asks whether it is there.",
        "once",
        swapped((SimSink, "publish", _publish_unfenced)),
    ),
    Bug(
        "seal-by-overwrite",
        "An entry is put into the ledger whether its epoch has one or not.",
        "agreement",
        swapped((MemoryStore, "seal", _seal_over)),
    ),
    Bug(
        "commit-before-publish",
        "A replica commits an epoch first and publishes it then: after a crash in between nobody does.",
        "order",
        swapped((SimReplica, "batch", _commit_first)),
    ),
    Bug(
        "stale-snapshot",
        "A snapshot that an interrupted start left behind is used again as if it were new.",
        "equality",
        swapped((SimCheckpoints, "copy", _copy_leftover)),
        MANY_CRASHES,
    ),
    Bug(
        "zombie-publishes",
        "A replica that hung, was replaced and seeded anew publishes what it had in memory, trusting its old look.",
        "once",
        swapped((SimWork, "publish", _publish_as_remembered)),
        ZOMBIES,
        CUT_OFF_BESIDE_SINKS,
    ),
    Bug(
        "manifest-overwritten",
        "A zombie's manifest replaces the one that is there, as rename does and link does not.",
        "once",
        swapped((SimWork, "publish", _publish_over_if_zombie)),
        ZOMBIES,
    ),
    Bug(
        "orphan-seals",
        "The ledger takes entries of incarnations that were replaced.",
        "incarnation",
        swapped((MemoryStore, "refuse_the_retired", lambda store, holder: None)),  # noqa: ARG005
        ZOMBIES,
    ),
    Bug(
        "retention-ignores-laggards",
        "What the foremost replica does not need is forgotten.",
        "retention",
        swapped((supervising, "floor_epoch", _floor_of_the_newest)),
        PATIENT,
    ),
    Bug(
        "records-forgotten-first",
        "Records are forgotten before the ledger is: if the disk refuses the second, epochs stay without records.",
        "equality",
        swapped((supervising, "forget", _forget_records_first)),
        FULL_WHILE_FORGETTING,
    ),
    Bug(
        "unbounded-lead",
        "Nobody waits for a slower replica.",
        "readiness",
        swapped((pacing, "slowest_in_set", lambda view, settings: view.epoch - 1)),  # noqa: ARG005
        HURRIED,
    ),
    Bug(
        "watermark-lost",
        "The first epoch after a start has no mark, so watermarks begin at nothing.",
        "equality",
        swapped((SimWork, "computed", _compute_without_mark)),
        QUIET,
    ),
    Bug(
        "ledger-gap",
        "An error while sealing is taken for success, and the ledger does not insist on the order.",
        "completeness",
        swapped(
            (SimSealer, "put", _take_refusal_for_success),
            (MemoryStore, "refuse_what_does_not_follow", lambda store, proposal: None),  # noqa: ARG005
        ),
        LOCKED,
    ),
    Bug(
        "heartbeat-skipped",
        "Without data nothing is sealed, however long.",
        "progress",
        swapped((proposing, "decide", _decide_with_data_only)),
        SILENT,
    ),
    Bug(
        "heartbeat-by-the-clock",
        "The heartbeat is measured with a clock that somebody may set back.",
        "progress",
        swapped((proposing, "decide", _decide_by_the_clock)),
        SET_BACK,
    ),
    Bug(
        "time-goes-back",
        "Epoch time is whatever the clock of the sealing replica says.",
        "time",
        swapped((SimSealer, "put", _seal_by_the_clock)),
        SET_BACK,
    ),
    Bug(
        "marks-not-kept",
        "What epochs saw of event time is forgotten.",
        "marks",
        swapped((MemoryStore, "observed", lambda store, epoch: {})),  # noqa: ARG005
    ),
    Bug(
        "marks-lost-in-a-blackout",
        "An epoch whose view of event time was lost with the power is not computed again.",
        "marks",
        swapped((recovery, "must_replay", lambda at, head, observed, steps: False)),  # noqa: ARG005
        DARK,
    ),
    Bug(
        "damaged-checkpoint-used",
        "Checkpoints are used without a look at their files.",
        "equality",
        swapped((SimCheckpoints, "is_sound", lambda checkpoints, checkpoint: True)),  # noqa: ARG005
        MANY_CRASHES,
    ),
    Bug(
        "torn-commit-counts",
        "A commit that a crash tore counts as whole.",
        "equality",
        swapped((SimCheckpoints, "tear", _tear_unnoticed)),
        MANY_CRASHES,
    ),
    Bug(
        "nobody-restarts",
        "The supervisor starts every replica once.",
        "progress",
        swapped((supervising, "decide", _start_once)),
    ),
    Bug(
        "lease-ignored",
        "A supervisor that another one has replaced goes on as if it had its lease, and the agent obeys both.",
        "adoption",
        swapped((Supervisor, "_renew", _renew_blindly), (SimAgent, "admit", lambda agent, term: None)),  # noqa: ARG005
        TAKEN_OVER_AND_CRASHING,
    ),
    Bug(
        "adopt-twice",
        "Whoever takes over adopts the replicas that run, and starts them anew as well.",
        "adoption",
        swapped((Supervisor, "_adopt", _adopt_and_forget)),
        LEFT_ALONE,
        LEFT_ALONE_ON_HOSTS,
    ),
    Bug(
        "kill-noted-first",
        "A kill is written to the store before it is done: whoever is stopped with the store's lock is never killed.",
        "progress",
        swapped((Supervisor, "kill", _kill_as_noted)),
        HELD,
    ),
    Bug(
        "held-lock-unseen",
        "The supervisor waits for the store like everybody else, whoever has its lock.",
        "progress",
        swapped((Supervisor, "_pass_by", lambda supervisor: False)),  # noqa: ARG005
        HELD,
    ),
    Bug(
        "kill-asks-first",
        "Before it kills, the supervisor reads the record: where the store is slow, everybody waits meanwhile.",
        "progress",
        swapped((Supervisor, "kill", _kill_after_asking)),
        HELD_AND_SLOW,
    ),
    Bug(
        "one-stage-is-enough",
        "An epoch counts as computed when one of two stages has computed it.",
        "marks",
        swapped((StageProgress, "_is_computed", lambda progress, epoch: True)),  # noqa: ARG005
        replace(TWO_STAGES, stops_s=()),
    ),
    Bug(
        "drain-stops-short",
        "A replica that is asked to stop does not let the stages that are behind come up to the foremost.",
        "stopping",
        swapped((StageProgress, "newest_epoch", property(lambda progress: progress.at.epoch))),
        TWO_STAGES,
    ),
    Bug(
        "spare-beside-a-boot",
        "A spare is ordered as soon as there is none, whoever is missing or on its way.",
        "spares",
        swapped((spares, "is_calm", lambda progress, pids, now_us: bool(progress))),  # noqa: ARG005
        SPARED,
    ),
    Bug(
        "spare-given-twice",
        "A spare that was given to a replica is still counted among those that wait.",
        "spares",
        swapped((Spares, "_take", lambda spares, one: one.spare)),  # noqa: ARG005
        SPARED,
    ),
    Bug(
        "seed-from-retired",
        "A replica is seeded by one that was retired: it may have been outvoted, or be behind for good.",
        "incarnation",
        swapped(
            (recovery, "situation_of", _situation_with_the_retired),
            (HostsWorld, "refuse_seed_of_retired", lambda world, wanted: None),  # noqa: ARG005
        ),
        CRASHING_ON_HOSTS,
    ),
    Bug(
        "lease-by-clock",
        "A lease ends at a time that its holder wrote down, by the clock of whoever wants it.",
        "lease",
        swapped((SharedStore, "acquire", _acquire_by_clock)),
        MINUTES_AHEAD,
    ),
    Bug(
        "lease-from-the-living",
        "Whoever stood still after it took the lease, and lost it, takes it from the next one before it has a term.",
        "lease",
        swapped((taking_over, "_keep_lease", taking_over._take_lease)),
        STRUCK_AT_THE_LEASE,
    ),
    Bug(
        "placed-together",
        "A replica is started where its state is, whoever else is there.",
        "placement",
        swapped((agents, "choose_host", _place_where_the_state_is)),
        CRASHING_ON_HOSTS,
    ),
    *OPERATION_BUGS,
)


def bug_named(name: str) -> Bug | None:
    """The bug of this name.

    >>> bug_named("unbounded-lead").promise
    'readiness'
    """
    return next((bug for bug in BUGS if bug.name == name), None)
