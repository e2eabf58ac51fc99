"""A process on the timeline: it can be struck at each durable step, hang, die, and come back as a zombie."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lockstep.clock import US_PER_S
from lockstep.errors import LockstepError
from lockstep.runtime.endings import exit_code
from lockstep.runtime.epoch.epoch_steps import DIGEST, FINISH
from lockstep.runtime.epoch.sealing import SEAL
from lockstep.sim.faults import Strike
from lockstep.store.protocols import Entry, Holder

if TYPE_CHECKING:
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.world import World

EXIT_KILLED = -9
STORE_STEPS = (SEAL, DIGEST, FINISH)
"""The steps that are transactions of the store."""
AWAKENING_S = 0.2
"""Over this long the threads of a process that hung come back to life, in any order."""


class SimProcess:
    """One process of a replica. Towards the supervisor it looks like ``agent.processes.ReplicaProcess``."""

    def __init__(self, world: World, host: SimHost, *, gently: bool, pid: int) -> None:
        self.world = world
        self.host = host
        self.name = ""
        self.pid = pid
        self.gentle = gently
        self.alive = True
        self.zombie = False
        self.holder = Holder("", 0)
        """The incarnation that it is; none before it has begun to act for a replica."""
        self.in_step = False
        """Whether it does a step of a machine now: a call without an answer waits then, and it is done again."""
        self._who = ""
        self._exit_code: int | None = None
        self._ended_us = 0
        self._still_until_us = 0
        self._overdue: list[Callable[[], None]] = []
        self.stuck_us: list[tuple[int, int]] = []
        """(from, to) of every write of its own that was stuck in the disk: nothing it does makes that faster."""

    # What the supervisor asks of a process.

    def exit_code(self) -> int | None:
        """How it ended, None while it runs (as far as the supervisor can see)."""
        return self._exit_code

    def kill(self) -> None:
        """End it at once. A process that hangs may be out of reach: it is taken for dead and goes on later."""
        if not self.alive or (self.zombie and not self.world.scenario.hosts):
            return
        # Whoever has the store's lock is on this machine, and so is a spare: nothing is out of reach here.
        is_near = self.world.write_lock.holder is self or not self.holder.incarnation
        missed = self.is_still and not is_near and self.world.faults.kill_misses()
        self._ended_us = self.world.timeline.now_us
        self.note("is killed" + (", and is out of reach" if missed else ""))
        self._exit_code = EXIT_KILLED if self._exit_code is None else self._exit_code
        self.down()
        self.zombie, self.alive = missed, missed
        self.world.write_lock.release(self)

    def drain(self) -> None:
        """Finish the epoch under way and end."""
        raise NotImplementedError

    def full_speed(self) -> None:
        """Niceness is not simulated."""
        self.gentle = False

    # How time and faults act on it.

    @property
    def is_still(self) -> bool:
        """Whether it hangs or pauses now."""
        return self.world.timeline.now_us < self._still_until_us

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something later, if this process still lives; if it hangs then, when it moves again."""

        def happen() -> None:
            if not self.alive:
                return
            if self.world.timeline.now_us < self._still_until_us:
                self._overdue.append(happen)
            else:
                action()

        self.world.timeline.after(seconds, happen)

    def keep_still(self, seconds: float) -> None:
        """Hang or pause."""
        self.note(f"stands still for {seconds:.1f} s")
        self.down()
        self._still_until_us = max(self._still_until_us, self.world.timeline.now_us + round(seconds * US_PER_S))
        self.world.timeline.after(seconds, lambda: None if self.is_still else self.move_again())

    def move_again(self) -> None:
        """The hang is over: whatever was due meanwhile races."""
        if self._overdue and self.alive:
            self.note("moves again")
        self._still_until_us = min(self._still_until_us, self.world.timeline.now_us)
        overdue, self._overdue = self._overdue, []
        for happen in overdue:
            self.world.timeline.after(self.world.draw.uniform(0, AWAKENING_S), happen)

    def exit(self, code: int) -> None:
        """The process ends by itself (or by a fault)."""
        self.note(f"ends with {code}")
        self._ended_us = self.world.timeline.now_us
        self.down()
        self.alive = False
        self.world.write_lock.release(self)
        if self._exit_code is None:
            self._exit_code = code

    def fail(self, error: LockstepError) -> None:
        """It met an error that it cannot go on after."""
        self.note(f"fails: {error.code} {error.fact}")
        self.exit(exit_code(error))

    def down(self) -> None:
        """It does not compute any more."""

    def note(self, what: str) -> None:
        """A line for the trace."""
        self.world.history.note(self._who + ("*" if self.zombie else ""), what)

    def tell(self, what: str) -> None:
        """A line for the trace that is counted too: tests ask whether it ever happened."""
        self.note(what)
        self.world.history.told[f"zombie {what}" if self.zombie else what] += 1

    # How its step machines are driven.

    def lead_s(self, step: str) -> float:
        """How long it takes until a step is done, from when it was decided."""
        raise NotImplementedError

    def takes_s(self, step: str) -> float:
        """How long it takes from a step to the next."""
        raise NotImplementedError

    def store_took_s(self) -> float:
        """How long the store has taken for what was just written; more than nothing while it is slow."""
        raise NotImplementedError

    def torn(self, step: str, stage: int) -> None:
        """A crash in the midst of a step."""
        raise NotImplementedError

    def sealed(self, epoch: int) -> Entry | None:
        """The entry of an epoch, if it is sealed."""
        raise NotImplementedError

    def guarded(self, step: str, stage: int, perform: Callable[[], None]) -> None:
        """A step and what follows it, with a fault before, in the midst of or after it, if the seed says so."""
        strike = self.world.faults.strike(self.name)
        if strike is None:
            perform()
        else:
            self._strike(strike, step, stage, perform)

    def _strike(self, strike: Strike, step: str, stage: int, perform: Callable[[], None]) -> None:
        if strike.when == "after":
            perform()
        holds = strike.fault == "hold" and step in STORE_STEPS and not self.zombie
        self.tell(f"{'hang' if strike.fault == 'hold' and not holds else strike.fault} {strike.when} {step}")
        if holds and self.world.write_lock.holder is None:
            self._hold(strike.still_s, perform)
            return
        if strike.fault == "slow":
            now_us = self.world.timeline.now_us
            self.stuck_us.append((now_us, now_us + round(strike.still_s * US_PER_S)))
            self.after(strike.still_s, perform)
            return
        if strike.fault == "crash":
            if strike.when == "in the midst of":
                self.torn(step, stage)
            self.exit(EXIT_KILLED)
            return
        self.keep_still(strike.still_s)
        if strike.when != "after":
            self.after(0, perform)

    def _hold(self, seconds: float, perform: Callable[[], None]) -> None:
        """Be stopped inside the transaction that the step is."""

        def end_transaction() -> None:
            self.world.write_lock.release(self)
            perform()

        self.world.write_lock.take(self)
        self.keep_still(seconds)
        self.after(0, end_transaction)
