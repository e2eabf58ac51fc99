"""Production's step machines on the timeline: each step is a moment at which a fault may strike its process."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.errors import LockstepError
from lockstep.runtime.steps import Pause, Step, Steps
from lockstep.sim.store_access import Blocked
from lockstep.store.patience import PATIENCE_S

if TYPE_CHECKING:
    from lockstep.sim.process import SimProcess

FOR_EVER_S = math.inf
"""A pause that only somebody else ends."""
_POLL_S_MIN = 0.025
"""Production looks every 10 ms for data: here that would be most of the work, and a bit later is a legal time too."""
Advance = Callable[[], Step | Pause]


class Driver:
    """Drives one machine of a process, from its first step to its end or that of the process."""

    def __init__(self, process: SimProcess, steps: Steps[None], stage: int) -> None:
        self._process = process
        self._stage = stage
        self._steps = steps
        self._pauses = 0
        self._pausing = False
        self.waits_for: int | None = None
        """The epoch whose sealing would end the pause it is in."""

    def start(self) -> None:
        """Do the first step."""
        self._go_on(partial(next, self._steps))

    def wake(self, after_s: float = 0.0) -> None:
        """End the pause it is in, if it is in one."""
        if self._pausing:
            number = self._pauses
            self._process.after(after_s, lambda: self._resume(number))

    def _go_on(self, advance: Advance) -> None:
        in_step, self._process.in_step = self._process.in_step, False
        try:
            wanted = advance()
        except StopIteration:
            return
        except LockstepError as error:
            self._process.fail(error)
            return
        finally:
            self._process.in_step = in_step
        if isinstance(wanted, Pause):
            self._pause(wanted)
        elif lead_s := self._process.lead_s(wanted.name):
            self._process.after(lead_s, lambda: self._do(wanted))
        else:
            self._do(wanted)

    def _do(self, step: Step) -> None:
        self._process.guarded(step.name, self._stage, lambda: self._perform(step))

    def _perform(self, step: Step) -> None:
        in_step, self._process.in_step = self._process.in_step, True
        try:
            answer: Any = step.act()
        except Blocked:
            self._wait_for_answer(step)
        except LockstepError as error:
            self._later(step, partial(self._steps.throw, error))
        else:
            self._later(step, partial(self._steps.send, answer))
        finally:
            self._process.in_step = in_step

    def _later(self, step: Step, go_on: Advance) -> None:
        took_s = self._process.takes_s(step.name) + self._process.store_took_s()
        self._process.after(took_s, lambda: self._go_on(go_on))

    def _wait_for_answer(self, step: Step) -> None:
        """Try again when the store answers again, or fail when the step's patience is at its end."""
        waiting = [step]

        def again() -> None:
            if waiting:
                self._perform(waiting.pop())

        def give_up() -> None:
            if waiting:
                waiting.clear()
                self._process.tell(f"waits no longer to {step.name}")
                self._go_on(partial(self._steps.throw, self._process.world.no_answer(step.name)))

        self._process.world.when_answering(self._process, lambda: self._process.after(0, again))
        self._process.after(PATIENCE_S if step.patience_s is None else step.patience_s, give_up)

    def _pause(self, pause: Pause) -> None:
        self._pauses += 1
        self._pausing, self.waits_for = True, pause.epoch
        number = self._pauses
        if pause.seconds < FOR_EVER_S:
            self._process.after(max(_POLL_S_MIN, pause.seconds), lambda: self._resume(number))

    def _resume(self, number: int) -> None:
        """Unless something else has ended that pause."""
        if not self._pausing or number != self._pauses:
            return
        self._pausing, epoch = False, self.waits_for
        self.waits_for = None
        self._go_on(partial(self._steps.send, self._process.sealed(epoch) if epoch is not None else None))
