"""Whoever asks for changes while the job runs, and sees to it that each is done or rolled back, once and in time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.control.operations.book import OPERATIONS, OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import Change
from lockstep.control.operations.verbs import JobVerbs, Manner
from lockstep.errors import LockstepError, ServiceError, StoreError
from lockstep.observe import promises
from lockstep.runtime.desired_run import DesiredRun, last_run
from lockstep.runtime.steering import steering
from lockstep.sim.pipeline import VERSION
from lockstep.sim.scenario import Ask

if TYPE_CHECKING:
    from lockstep.sim.world import World

AGAIN_S = 0.5
"""After so long it is asked again: the store did not answer, or another operation is under way."""
PHASE_S = 30.0
"""What a phase may take once faults have stopped: a boot (2 s), ten epochs of a replica that is half as fast again as
the others and catches up (6 s), and twice that for one that has to start from a peer again."""
BUSY, OVER, STOPPED = "LS0740", "LS0746", "LS0743"


class SimOperator:
    """The people around one job."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._verbs = JobVerbs(world.store, "sim", world.timeline_clock)
        self._book = OperationBook(world.store)
        self._left = len(world.scenario.operations)
        """Asks that nobody has heard yet, and jobs that are deactivated."""
        self._known: dict[int, Operation] = {}
        self._asked: dict[int, tuple[float, Ask]] = {}
        """When each operation was asked for, in true time."""
        self.paused_s: float | None = None
        """Since when the job is deactivated."""
        self.activated_us = 0
        self.quiet_s = 0.0
        """Since when nothing is under way."""

    def plan(self) -> None:
        """Ask for everything in its time."""
        for number, ask in enumerate(self._world.scenario.operations):
            self._after(ask.at_s, partial(self._ask, number, ask))

    @property
    def count(self) -> int:
        """How many operations there were."""
        return len(self._known)

    @property
    def is_quiet(self) -> bool:
        """Whether all was asked for, and nothing is under way."""
        return self._left == 0 and self.open is None

    @property
    def open(self) -> Operation | None:
        """The operation under way."""
        return next((one for one in self._known.values() if one.is_open), None)

    @property
    def lasting(self) -> list[str]:
        """The replicas that there have to be, whatever becomes of what is under way."""
        if (one := self.open) is None:
            return self._world.names
        change = Change(one)
        return min(change.names_before, change.names_after, key=len)

    @property
    def wanted(self) -> int:
        """How many these are."""
        return len(self.lasting)

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._world.timeline.after(seconds, partial(self._try, act))

    def _try(self, act: Callable[[], None]) -> None:
        """Do it, or try it again if the store does not answer, or something else is under way."""
        try:
            if self._world.write_lock.holder is not None:
                raise StoreError("LS0413", "the store is locked")
            self._world.refuse_write("ask")
            act()
        except LockstepError as error:
            if not isinstance(error, StoreError) and error.code not in (BUSY, STOPPED):
                raise
            self._after(AGAIN_S, act)

    # What is asked.

    def _ask(self, number: int, ask: Ask) -> None:
        if ask.what == "deactivate":
            self._verbs.deactivate(Manner(key=f"off {number}"))
            self.paused_s = self._world.timeline.elapsed_s if self.paused_s is None else self.paused_s
            self._after(ask.later_s, partial(self._activate, number))
            return
        manner = Manner("sim", f"ask {number}", ask.timeout_s, ask.at_deadline)
        first = self._asked_for(number, ask, manner)
        if first is None:
            self._left -= 1
            return
        # The answer was lost: who asks again with the same key gets the same operation.
        again = self._asked_for(number, ask, manner)
        same = again is not None and again.number == first.number
        self._world.history.check([] if same else [f"operations: ask {number} made two operations"])
        self._left -= 1
        self._asked[first.number] = (self._world.timeline.elapsed_s, ask)
        if ask.wish:
            self._after(ask.later_s, partial(self._settle, first.number, ask))

    def _asked_for(self, number: int, ask: Ask, manner: Manner) -> Operation | None:
        verbs, before = self._verbs, self._verbs.current()
        match ask.what:
            case "partitions":
                return verbs.rescale(partitions=ask.value, manner=manner)
            case "replicas":
                return verbs.rescale(replicas=ask.value, manner=manner)
            case "move":
                name, host = f"r{ask.value // 10}", f"h{ask.value % 10}"
                known = [one.replica for one in self._world.store.progress()]
                return verbs.move(name, host, manner) if name in known and name in self._world.names else None
            case "same results" | "other results":
                is_same = ask.what == "same results"
                after = replace(before, code_hash=_next_version(before, number, 0 if is_same else ask.value))
                return verbs.upgrade(after, same_results=is_same, keep_s=ask.later_s, manner=manner)
        return verbs.restart(manner)

    def _activate(self, number: int) -> None:
        self._verbs.activate(Manner(key=f"on {number}"))
        if self.paused_s is not None:
            self._world.excuse(self.paused_s, self._world.timeline.elapsed_s + 1.0)
        self.paused_s, self.activated_us = None, self._world.timeline.now_us
        self._left -= 1

    def _settle(self, number: int, ask: Ask) -> None:
        try:
            assert ask.wish
            self._verbs.settle(number, ask.wish)
        except ServiceError as error:
            if error.code != OVER:
                raise

    # What becomes of it.

    def watch(self, key: str) -> None:
        """The store has changed: see what was done with the operations."""
        if key != OPERATIONS:
            return
        now = {one.number: one for one in self._book.all()}
        for number, before in self._known.items():
            self._check(before, now.get(number))
        for number, after in now.items():
            self._tell(self._known.get(number), after)
        self._known = now

    def _check(self, before: Operation, after: Operation | None) -> None:
        check = self._world.history.check
        state = after.state if after is not None else None
        check(promises.operation_over(before.number, "" if before.is_open else before.state, state))
        assert after is not None
        check(promises.operation_steps(before.number, _phases(before), _phases(after)))
        if before.is_open and not after.is_open:
            self._check_outcome(before, after)

    def _check_outcome(self, before: Operation, after: Operation) -> None:
        change, store, number, state = Change(before), self._world.store, after.number, after.state
        wanted = change.after if state == "done" else change.before
        found = last_run(store)
        assert found is not None
        told = partial(promises.operation_outcome, number, state)
        self._world.history.check(told("what is to run", _shape(wanted), _shape(found)))
        if change.changes_results:
            held = steering(store)
            self._world.history.check(told("who publishes", (wanted.results_of, 0), (held.generation, held.beside)))

    def _tell(self, before: Operation | None, after: Operation) -> None:
        history = self._world.history
        if before is None and after.is_open:
            history.note("operator", f"asks for operation {after.number}: {after.kind} {dict(after.arguments)}")
            change = Change(after)
            if change.changes_results:
                history.lineages.pop(change.after.results_of, None)
        for step in after.steps[len(before.steps) if before is not None else 0 :]:
            history.note("operator", f"operation {after.number} ({after.kind}), {step.name}: {step.text}".rstrip(": "))
            history.told[f"operation {step.name.partition(' ')[0]}"] += 1
        if (before is None or before.is_open) and not after.is_open:
            self.quiet_s = self._world.timeline.elapsed_s
            history.told[f"{after.kind} {after.state}"] += 1

    def look(self) -> None:
        """See whether what is under way is late."""
        one, world = self.open, self._world
        if one is None or one.number not in self._asked:
            return
        asked_s, ask = self._asked[one.number]
        due_s = max(asked_s + ask.timeout_s + ask.later_s + world.clocks_wrong_s, world.scenario.troubled_s)
        allowed_s = PHASE_S * (2 * (self.wanted + 1) + 3)
        late_s = world.timeline.elapsed_s - due_s
        world.history.check(promises.operation_in_time(one.number, one.phase, late_s, allowed_s))

    def check_end(self) -> None:
        """The job is about to be stopped: what runs is what was asked for."""
        order = self._world.order
        for one in self._world.live():
            fits = one.acts_for in ("", *self._world.names) and one.spec.likeness == order.template().likeness
            told = f"operations: {one.holder} of generation {one.spec.generation} runs, wanted is {_shape(order)}"
            self._world.history.check([] if fits else [told])


def _phases(operation: Operation) -> list[str]:
    return [step.name for step in operation.steps]


def _shape(order: DesiredRun) -> tuple[Any, ...]:
    conf = order.settings["spark"].get("conf", {})
    return order.generation, order.results_of, order.code_hash, order.settings["run"]["replicas"], tuple(conf.items())


def _next_version(before: DesiredRun, number: int, flavour: int) -> str:
    """The name of new code: what follows the plus is what it changes in the results."""
    held = before.code_hash.partition("+")[2] or "0"
    return f"{VERSION}.{number}+{flavour or held}"
