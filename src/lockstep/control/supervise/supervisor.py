"""The shell around supervision: it starts, watches, kills and drains the replicas of one job."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial

from lockstep.agent.client import ENDING, AgentSilent
from lockstep.clock import US_PER_S
from lockstep.config import Settings
from lockstep.connect.protocols import SinkSide, SourceSide
from lockstep.control.coordinator.taking_over import LEASE_S, TERM
from lockstep.control.operations.changing import Changes, Unchanging
from lockstep.control.supervise.retention import floor_epoch, forget, pinned_epochs, with_pins
from lockstep.control.supervise.slots import Slot, computes, note_lag
from lockstep.control.supervise.supervision import (
    Action,
    GiveUp,
    Held,
    Kill,
    Move,
    Seen,
    Start,
    StopJob,
    decide,
    held_now,
    is_booting,
    may_leave,
    pass_by,
    spread,
)
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.control.supervise.verdicts import Verdicts
from lockstep.errors import ConnectError, LockstepError, RunError, StoreError, from_wire
from lockstep.runtime.decide.last_seen import LastSeen
from lockstep.runtime.decide.marks import TimeStep, is_caught_up, is_over
from lockstep.runtime.desired_run import LEASE, RUN_BEGAN
from lockstep.runtime.spec import (
    EXIT_DIVERGED,
    EXIT_DRAINED,
    EXIT_FAILED,
    EXIT_JOB_ERROR,
    ReplicaSpec,
    Seed,
    replica_names,
)
from lockstep.runtime.steps import Pause, Step, Steps, run
from lockstep.store.patience import PATIENCE_S, patience
from lockstep.store.protocols import Entry, Progress, Store

LOOK, TEND, TELL = "look", "tend", "tell"
TICK_S = 0.1
RETENTION_INTERVAL_S = 5.0
SWEEP_INTERVAL_S, SWEEPS = 60.0, 3
STORE_TROUBLE_S_MAX = 60.0
"""How long the store may refuse to be written (disk full, locked) before the job is stopped."""
PROCESSOR_LOOK_S = 5.0
"""How often it is looked whether a replica in which nothing moves uses the processor."""
BUSY_SHARE = 0.1
"""Of a core: a replica that waits uses less (measured), one that computes gets more even on a busy machine."""
TROUBLE_S = 0.5
"""After trouble that lasted longer the lease is asked for before anything else is done."""
LOCKED = "LS0413"
REPLACED = "LS0610"
SILENT = "LS0680"
_PASSING = ("LS0404", LOCKED, "LS0421", SILENT, ENDING)


class Supervisor:
    """Runs one job until it is stopped."""

    def __init__(
        self,
        store: Store,
        template: ReplicaSpec,
        settings: Settings,
        sources: Mapping[str, SourceSide],
        sinks: Mapping[str, SinkSide],
        identity: str,
        time_steps: tuple[TimeStep, ...] = (),
        *,
        around: Surroundings,
        changes: Changes | None = None,
    ) -> None:
        self._changes = changes or Unchanging(template, replica_names(settings.run.replicas))
        self._around = around
        self._store = store
        self._template = template
        self._settings = settings
        self._sources = sources
        self._sinks = sinks
        self._identity = identity
        self._time_steps = time_steps
        self._next_retention = self._around.elapsed_s() + RETENTION_INTERVAL_S
        self._next_renewal = 0.0
        self._term = store.fact(TERM)
        self._trouble_since_s: float | None = None
        self._began_us = self._around.now_us() - round(self._around.elapsed_s() * US_PER_S)
        self._last_seen = LastSeen()
        self._held: Held | None = None
        self._waits_since_us: int | None = None
        """Since when this process has found the store locked, whenever it asked."""
        self._crowded_since_us: int | None = None
        self._dead: dict[str, int] = {}
        """Holders that ended, and how often it is still looked for what they left."""
        self._next_sweep_s = 0.0
        self._somebody_computes = False
        self._owed: deque[Callable[[], None]] = deque()
        """What was done and is still to be written down: deeds do not wait for the store."""
        self.stops = 0
        self.slots = {name: Slot(name) for name in self._changes.roster()}
        self._verdicts = Verdicts(store, around, self.slots, self.kill, self._fail, self._changes.newcomers)
        self.failure: LockstepError | None = None
        self.done = False
        self.replaced = False
        """Whether another one has taken over."""
        for name, process in around.adopted.items():
            self._adopt(self.slots.setdefault(name, Slot(name)), process)

    def stop(self) -> None:
        """Stop after the epoch under way; called a second time, at once.

        A plain number, no lock: this runs in a signal handler, which may have interrupted whoever holds the lock.
        """
        self.stops += 1

    def run(self, on_tick: Callable[[], None]) -> None:
        """Keep the replicas going until stopped or nothing can be done; leaves no process behind."""
        with closing(self.steps(on_tick)) as steps:
            run(steps, lambda pause: self._around.sleep(pause.seconds))

    def steps(self, on_tick: Callable[[], None]) -> Steps[None]:
        """What :meth:`run` does, step by step."""
        patience_s = self._settings.run.lag_timeout_s
        try:
            while not self.stops:
                # A call that waits longer would keep this process from ending whoever is in the way.
                yield Step(LOOK, partial(self._despite_trouble, self._tick), patience_s)
                yield Step(TEND, self._tend_reserve, patience_s)
                yield Step(TELL, partial(_shown, on_tick), patience_s)
                yield Pause(TICK_S)
            yield from self._drain(on_tick)
        except RunError as error:
            self.replaced = error.code == REPLACED
            raise
        finally:
            # Whoever has taken over has all processes now.
            if not self.replaced:
                self._end_reserve()
                self._kill_all()

    def _tend_reserve(self) -> None:
        """While the store answers: a spare is not worth that whoever holds its lock is seen later. None is ordered
        while a replica has to be started: of one that is new to the job nobody has a word yet."""
        is_awaited = any(slot.process is None and not slot.given_up for slot in self.slots.values())
        calm = self._held is None and self._trouble_since_s is None
        if self._around.reserve is not None and calm and not self.stops:
            self._around.reserve.tend(orders=not is_awaited)

    def _end_reserve(self) -> None:
        if self._around.reserve is not None:
            self._around.reserve.close()

    def _steady_us(self) -> int:
        """Now, by a clock that nobody sets: how long something takes must not depend on the other one."""
        return self._began_us + round(self._around.elapsed_s() * US_PER_S)

    def _despite_trouble(self, act: Callable[[], None]) -> None:
        """A store that cannot be written for a moment is no reason to end replicas that may well go on."""
        began_us, began_s = self._steady_us(), self._around.elapsed_s()
        try:
            act()
            self._trouble_since_s = self._waits_since_us = None
        except (StoreError, AgentSilent) as error:
            now_s = self._around.elapsed_s()
            if error.code == LOCKED:
                self._waits_since_us = self._waits_since_us or began_us
            if self._trouble_since_s is None:
                self._trouble_since_s = began_s
            if error.code not in _PASSING or now_s - self._trouble_since_s > STORE_TROUBLE_S_MAX:
                raise

    def _renew(self) -> None:
        """Now and then; and after trouble before anything is done: the job may be another one's by now."""
        now_s = self._around.elapsed_s()
        troubled_s = now_s - self._trouble_since_s if self._trouble_since_s is not None else 0.0
        if troubled_s > TROUBLE_S or now_s >= self._next_renewal:
            self._next_renewal = self._around.elapsed_s() + LEASE_S / 4
            # A lease that was lost and is free again is no right to go on: somebody may have had it meanwhile.
            if self._store.fact(TERM) != self._term or not self._store.acquire(LEASE, self._identity, LEASE_S):
                raise RunError(
                    REPLACED,
                    f'job "{self._template.job}" is supervised by another process now',
                    why="this one did nothing for so long that its lease was taken over.",
                    hint="nothing to do: the other one goes on. See `lockstep status`.",
                )

    def _look(self) -> None:
        if told := self._around.look():
            self._owe_event("agent-lost", told, "")

    def _adopt(self, slot: Slot, process: Process) -> None:
        slot.process, slot.starts, slot.started_us = process, 1, self._steady_us()
        kind = self._around.kinds.get(slot.name)
        slot.likeness = self._changes.roster()[slot.name].template.likeness if kind is None else kind
        self._owe_event("replica-adopted", f"{process.where}, which runs since an earlier start", slot.name)

    def _tick(self) -> None:
        self._look()
        if self._pass_by():
            return
        for slot in self.slots.values():
            if slot.process is not None and (code := slot.process.exit_code()) is not None:
                self._ended(slot, code)
        self._renew()
        self._write_owed()
        now = self._steady_us()
        words = self._last_seen.aged(self._store.progress(), now, self._around.elapsed_s())
        progress = {one.replica: one for one in words}
        head = self._store.head()
        head_epoch = head.epoch if head else -1
        self._verdicts.look(progress, self._settings.run)
        if self._is_done(head, progress):
            self.done = True
            self.stops = max(1, self.stops)
            return
        seen = [self._seen(slot, progress.get(slot.name), head_epoch, now) for slot in self.slots.values()]
        self._share_out(seen)
        self._follow_roster(seen, head_epoch, now)
        seen = [one for one in seen if one.name in self.slots]
        for action in decide(seen, head_epoch, now, self._settings.run):
            self._act(action)
        self._spread(seen, head_epoch, now)
        self._write_owed()
        if self._around.elapsed_s() >= self._next_retention:
            self._retain(list(progress.values()))

    def _follow_roster(self, seen: Sequence[Seen], head: int, now: int) -> None:
        """See how far a change is, and bring the replicas to what there should be now."""
        fitting = {slot.name: self._fits(slot) for slot in self.slots.values()}
        if (settings := self._changes.look(seen, fitting, head)) is not None:
            self._settings = settings
        roster = self._changes.roster()
        for name in roster.keys() - self.slots.keys():
            self.slots[name] = Slot(name)
        for slot in list(self.slots.values()):
            if slot.process is None and slot.name not in roster:
                del self.slots[slot.name]
                self._owed.append(partial(self._store.remove, slot.name))
            elif slot.process is None and slot.likeness not in ("", roster[slot.name].template.likeness):
                # What it failed as says nothing about what it is to be now.
                slot.begin_anew()
            elif slot.process is not None and slot.leaves_since_us is None and self._may_leave(slot, seen, head):
                slot.process.drain()
                slot.leaves_since_us = now
                why = "something else is wanted in its place" if slot.name in roster else "it is not wanted any more"
                self._owe_event("replica-leaves", why, slot.name)

    def _may_leave(self, slot: Slot, seen: Sequence[Seen], head: int) -> bool:
        """Whether its process is not what there should be, and the others do without it."""
        if self._fits(slot):
            return False
        beside = [one for one in seen if one.name != slot.name and one.name in self.slots]
        stay = [one for one in beside if self.slots[one.name].leaves_since_us is None]
        mine = next((one for one in seen if one.name == slot.name), None)
        return mine is None or may_leave(mine, stay, self._changes.needed(), head, self._settings.run)

    def _fits(self, slot: Slot) -> bool:
        """Whether its process is what there should be."""
        wanted = self._changes.roster().get(slot.name)
        if wanted is None or slot.process is None or slot.likeness != wanted.template.likeness:
            return False
        return not wanted.host or slot.host in ("", wanted.host)

    def _spread(self, seen: Sequence[Seen], head: int, now: int) -> None:
        """Let replicas that had to share a host live apart again; not while a change says where they live."""
        crowded = None if self._changes.is_under_way else self._around.crowded()
        self._crowded_since_us = None if crowded is None else self._crowded_since_us or now
        for_s = (now - (self._crowded_since_us or now)) / US_PER_S
        move = spread(crowded, for_s, seen, head, now, self._settings.run)
        if move is not None:
            self._crowded_since_us = None
            self._act(move)

    def _pass_by(self) -> bool:
        """End whoever has kept the store locked for too long; whether asking the store would only mean to wait now."""
        holder, now = self._around.lock_holder(), self._steady_us()
        pids = holder.pids if holder is not None else ()
        mine = next((one.name for one in self.slots.values() if one.process and one.process.pid in pids), None)
        stopped = holder is not None and holder.stopped
        self._held = held_now(self._held, mine, now, stopped=stopped, waits_since_us=self._waits_since_us)
        if self._held is None:
            return False
        kill = pass_by(self._held, now, self._settings.run)
        if kill is not None:
            self._act(kill)
        return self._held.stopped and kill is None

    def _owe_event(self, kind: str, text: str, replica: str) -> None:
        self._owed.append(partial(self._store.add_event, kind, text, replica))

    def _write_owed(self) -> None:
        """Write down what was done; what the store refuses now is written at the next tick, before anything else."""
        while self._owed:
            self._owed[0]()
            self._owed.popleft()

    def _is_done(self, head: Entry | None, progress: Mapping[str, Progress]) -> bool:
        """Whether a run that ends by itself has published everything."""
        if head is None or not self._settings.run.ends_by_itself:
            return False
        if self._settings.run.available_now:
            is_all = is_caught_up(head, self._store.fact(RUN_BEGAN) or "", self._time_steps)
        else:
            is_all = is_over(head, self._time_steps)
        return is_all and any(said.epoch >= head.epoch for said in progress.values())

    def _seen(self, slot: Slot, said: Progress | None, head: int, now: int) -> Seen:
        alive = slot.process is not None
        mine = said if said is not None and slot.process is not None and said.process == slot.process.handle else None
        slot.host = mine.host if mine is not None else slot.host
        note_lag(slot, mine, head, now, self._settings.run.lead_epochs_max)
        self._look_at_processor(slot, mine, now)
        return Seen(
            name=slot.name,
            alive=alive,
            started_us=slot.started_us,
            progress=mine,
            exit_code=slot.exit_code,
            ended_us=slot.ended_us,
            restarts_us=tuple(slot.restarts_us),
            given_up=slot.given_up,
            behind_since_us=slot.behind_since_us,
            behind_then_epochs=slot.behind_then_epochs,
            busy_us=slot.busy_us,
            failed_after=slot.failed_after,
            kind=slot.likeness,
            leaves_since_us=slot.leaves_since_us,
        )

    def _share_out(self, seen: Sequence[Seen]) -> None:
        """Give whoever has caught up its full share, and all of them if there is nobody left to be gentle to.

        Not at the first epoch: whoever catches up computes back to back, and those who publish would feel it.
        """
        self._somebody_computes = any(computes(one.progress) for one in seen)
        for one in seen:
            process = self.slots[one.name].process
            has_joined = one.progress is not None and one.progress.state == "running"
            if process is not None and process.gentle and (has_joined or not self._somebody_computes):
                process.full_speed()

    def _look_at_processor(self, slot: Slot, said: Progress | None, now: int) -> None:
        """See whether a replica in which nothing seems to move uses the processor; the others are not looked at."""
        moved_us = max(said.moved_us, said.active_us) if said is not None else 0
        span_us = now - slot.cpu_seen_us
        if slot.process is None or min(now - moved_us, span_us) < PROCESSOR_LOOK_S * US_PER_S:
            return
        before_s, slot.cpu_s, slot.cpu_seen_us = slot.cpu_s, slot.process.cpu_s(), now
        # A look long ago tells nothing: what was used since may have been used then.
        if span_us < 2 * PROCESSOR_LOOK_S * US_PER_S and slot.cpu_s - before_s > BUSY_SHARE * span_us / US_PER_S:
            slot.busy_us = now

    def _ended(self, slot: Slot, code: int, *, kill: bool = True) -> None:
        """A process is gone: clear up after it, and take it out of everyone's reckoning."""
        assert slot.process is not None
        slot.error = slot.process.error()
        if kill:
            slot.process.kill()
        handle, slot.process = slot.process.handle, None
        # Whatever it ended with: its own checkpoint is what it was outvoted about.
        slot.exit_code, slot.ended_us = EXIT_DIVERGED if slot.outvoted else code, self._steady_us()
        slot.outvoted = False
        self._owed.append(partial(self._store.retire, slot.name))
        self._owed.append(partial(self._note_end, slot, handle, code))
        self._owe_event("replica-ended", f"exit code {code}", slot.name)

    def _note_end(self, slot: Slot, handle: str, code: int) -> None:
        """What it said last holds no more."""
        said = next((one for one in self._store.progress() if one.replica == slot.name), None)
        said = said if said is not None and said.process == handle else None
        if code == EXIT_JOB_ERROR:
            slot.failed_after = said.epoch if said is not None else -1
        if said is not None:
            # A second Ctrl-C kills: that is how the user wanted it to stop.
            state = "stopped" if code == EXIT_DRAINED or self.stops > 1 else "failed"
            self._store.report(replace(said, state=state, updated_us=self._around.now_us()))
            self._dead[f"{slot.name}.{said.incarnation}"] = SWEEPS
            self._sweep()

    def _sweep(self) -> None:
        """Have it removed what dead replicas left; several times: of an epoch that nobody has published all stays."""
        self._next_sweep_s = self._around.elapsed_s() + SWEEP_INTERVAL_S
        if self._dead:
            self._around.aside(partial(self._sweep_now, list(self._dead)))
            self._dead = {holder: left - 1 for holder, left in self._dead.items() if left > 1}

    def _sweep_now(self, dead: list[str]) -> None:
        for name, side in self._sinks.items():
            try:
                side.sweep(dead)
            except (LockstepError, OSError) as error:
                # Leftovers cost disk space; stopping the job for them would cost the output.
                self._store.add_event("sweep-failed", f'sink "{name}": {error}')

    def _act(self, action: Action) -> None:
        slot = self.slots[action.replica]
        match action:
            case Start(seed=seed):
                self._start(slot, seed)
            case Kill(reason=reason):
                self.kill(slot.name, "replica-killed", reason)
            case Move(reason=reason):
                assert slot.process is not None
                slot.process.drain()
                slot.leaves_since_us = self._steady_us()
                self._owe_event("replica-moved", reason, slot.name)
            case GiveUp(reason=reason):
                slot.given_up = True
                self._owe_event("replica-given-up", reason, slot.name)
            case StopJob(reason=reason):
                self._fail(from_wire(slot.error) or RunError("LS0602", f"{slot.name} cannot go on", why=reason))

    def _fail(self, error: LockstepError) -> None:
        """Stop gracefully for a reason; the first reason counts."""
        self.failure = self.failure or error
        self.stops = max(1, self.stops)

    def _start(self, slot: Slot, seed: Seed) -> None:
        now = self._steady_us()
        if slot.starts > 0 and slot.leaves_since_us is None:
            slot.restarts_us.append(now)
        slot.leaves_since_us = None
        slot.starts += 1
        slot.started_us, slot.cpu_seen_us, slot.busy_us = now, 0, 0
        slot.behind_since_us = None
        wanted = self._changes.roster()[slot.name]
        slot.likeness, slot.host = wanted.template.likeness, ""
        # The first of a new generation has nothing of its own to go on from.
        seed = "peer" if wanted.template.takes_older else seed
        spec = replace(wanted.template, replica=slot.name, seed=seed, host=wanted.host)
        try:
            slot.process = self._around.start(spec, gently=self._somebody_computes)
        except OSError as error:
            # A full disk, or no more processes: a start that failed at once, and is tried again after a pause.
            slot.exit_code, slot.ended_us = EXIT_FAILED, now
            self._owe_event("replica-not-started", str(error), slot.name)
            return
        slot.exit_code = None
        self._owe_event("replica-started", f"{slot.process.where}, start {slot.starts}", slot.name)

    def kill(self, replica: str, kind: str, reason: str) -> None:
        """Kill -9 a replica's process group, and have it written down: it may hold the lock that writing needs."""
        process = self.slots[replica].process
        if process is not None:
            process.kill()
            self._owed.append(partial(self._store.retire, replica))
            self._owe_event(kind, reason, replica)

    def _retain(self, progress: list[Progress]) -> None:
        self._next_retention = self._around.elapsed_s() + RETENTION_INTERVAL_S
        if self._around.elapsed_s() >= self._next_sweep_s:
            self._sweep()
        given_up = [slot.name for slot in self.slots.values() if slot.given_up]
        floor = with_pins(floor_epoch(progress, given_up, self._settings.run), pinned_epochs(self._store))
        if floor > self._store.floor():
            try:
                forget(self._store, self._sources, floor)
            except ConnectError as error:
                # What nobody needs stays for a while: it costs disk space, and stopping would cost the output.
                self._store.add_event("trim-failed", str(error))

    def _drain(self, on_tick: Callable[[], None]) -> Steps[None]:
        running = [slot for slot in self.slots.values() if slot.process is not None]
        for slot in running:
            assert slot.process is not None
            self._despite_trouble(slot.process.drain)
        yield Step(TEND, self._end_reserve)
        began_s, run = self._around.elapsed_s(), self._settings.run
        while self._around.elapsed_s() < began_s + run.stop_timeout_s and self.stops < 2:
            self._despite_trouble(self._look)
            if all(slot.process is None or slot.process.exit_code() is not None for slot in running):
                return
            self._pass_by()
            if self._around.elapsed_s() > began_s + run.lag_timeout_s:
                yield Step(LOOK, partial(self._despite_trouble, self._end_booting), run.lag_timeout_s)
            yield Step(LOOK, partial(self._despite_trouble, self._renew), self._settings.run.lag_timeout_s)
            yield Step(TELL, partial(_shown, on_tick), self._settings.run.lag_timeout_s)
            yield Pause(TICK_S)

    def _end_booting(self) -> None:
        """End whoever has no epoch under way: it might not hear that it has to stop before it has booted."""
        said = {one.process: one for one in self._store.progress()}
        for slot in self.slots.values():
            word = said.get(slot.process.handle) if slot.process is not None else None
            if slot.process is not None and is_booting(word):
                self._ended(slot, EXIT_DRAINED)
        self._write_owed()

    def _kill_all(self) -> None:
        running = [(slot, slot.process) for slot in self.slots.values() if slot.process is not None]
        codes = [process.exit_code() for _, process in running]
        for _, process in running:
            # An agent that does not hear this ends them when nobody talks to it any more.
            with suppress(AgentSilent):
                process.kill()
        # Only now is the store told: whatever goes wrong there, no process is left behind, and there is time to wait.
        for (slot, _), code in zip(running, codes, strict=True):
            self._ended(slot, -signal.SIGKILL if code is None else code, kill=False)
        with patience(PATIENCE_S):
            self._write_owed()
            self._store.release(LEASE, self._identity)


def _shown(on_tick: Callable[[], None]) -> None:
    """Show the job, if the store answers: that people see nothing for a while is no reason to end it."""
    try:
        on_tick()
    except StoreError as error:
        if error.code not in _PASSING:
            raise
