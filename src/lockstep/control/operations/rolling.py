"""How a change rolls through a job's replicas: pure functions of the operation, of what is seen, and of the time.

A further replica of the new kind joins, catches up and agrees; then the others are replaced one at a time, each seeded
by those that are there; then the further one leaves. There are never fewer replicas than wanted. Where results change,
the new kind computes in the shadow until one sealed entry lets it publish, and one of the old kind stays until that is
confirmed, so that another entry can switch back.

    join, replace r0, replace r1, leave                               equal results
    join, compare, switch, replace r0, confirm, replace r1, leave     other results
    grow                                                              only the number of replicas
    switch back, back r0, withdraw                                    the way back, from wherever it is
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from lockstep.clock import US_PER_S
from lockstep.control.operations.model import Operation
from lockstep.runtime.desired_run import DesiredRun
from lockstep.runtime.spec import ReplicaSpec, replica_names

JOIN, COMPARE, SWITCH, CONFIRM, LEAVE, GROW = "join", "compare", "switch", "confirm", "leave", "grow"
SWITCH_BACK, WITHDRAW = "switch back", "withdraw"
REPLACE, BACK = "replace ", "back "
COMPARED_EPOCHS = 10
"""So many epochs of the new results are compared with those published before anything is concluded."""
KEEP_S = 60.0
"""How long after a switch one replica of the old kind is kept, unless the operation says otherwise."""


@dataclass(frozen=True)
class Wanted:
    """What one replica is to be."""

    template: ReplicaSpec
    host: str = ""
    """Where it has to live; empty: anywhere."""


Roster = Mapping[str, Wanted]
"""All replicas that there should be, by name."""


@dataclass(frozen=True)
class SlotView:
    """One replica, as far as an operation is concerned."""

    alive: bool
    fits: bool
    """Whether its process is what the roster wants."""
    ready: bool
    """Whether it is up with the others and has agreed with them for some epochs."""
    trouble: str = ""
    """Why it cannot be what it was meant to be: the job failed in it, it was outvoted, it was given up."""


ABSENT = SlotView(alive=False, fits=False, ready=False)


@dataclass(frozen=True)
class View:
    """What is seen when it is decided how an operation goes on."""

    slots: Mapping[str, SlotView]
    now_us: int
    publishes: int = 1
    """The generation of results in the newest entry."""
    compared_epochs: int = 0
    """Epochs of which the new results were compared with those published."""
    telling_epochs: int = 0
    """Of these, epochs with rows: empty ones are equal whatever the code is."""
    differing_epochs: int = 0


class Change:
    """What an operation changes, read from its specs and from how far it is."""

    def __init__(self, operation: Operation) -> None:
        assert operation.before is not None and operation.after is not None, "an open operation has its specs"
        self.operation = operation
        self.before, self.after = DesiredRun(**operation.before), DesiredRun(**operation.after)
        self._from, self._to = self.before.template(), self.after.template()
        self.names_before = replica_names(self.before.settings["run"]["replicas"])
        self.names_after = replica_names(self.after.settings["run"]["replicas"])
        self.joiner = f"r{max(len(self.names_before), len(self.names_after))}"
        self.changes_results = self.before.results_of != self.after.results_of
        self._pin = str(operation.arguments.get("host", ""))

    @property
    def targets(self) -> list[str]:
        """The replicas that are replaced, in this order."""
        if self.operation.kind == "move":
            return [str(self.operation.arguments["replica"])]
        return self.names_after

    @property
    def replaced(self) -> list[str]:
        """Those of them that are of the new kind, or on their way to it."""
        kinds: dict[str, str] = {}
        for step in self.operation.steps:
            for kind in (REPLACE, BACK):
                if step.name.startswith(kind):
                    kinds[step.name.removeprefix(kind)] = kind
        return [name for name in self.targets if kinds.get(name) == REPLACE]

    def way_forward(self) -> tuple[str, ...]:
        """All phases."""
        if self.operation.kind != "move" and self._from.likeness == self._to.likeness:
            return (GROW,)
        replaced = [f"{REPLACE}{name}" for name in self.targets]
        if not self.changes_results:
            return (JOIN, *replaced, LEAVE)
        return (JOIN, COMPARE, SWITCH, *replaced[:-1], CONFIRM, replaced[-1], LEAVE)

    def way_back(self) -> tuple[str, ...]:
        """From the phase that it is in; empty if there is none any more."""
        if self.operation.phase in (LEAVE, GROW) or (self.changes_results and self.replaced == self.targets):
            return (WITHDRAW,) if self.operation.phase == GROW else ()
        back = [f"{BACK}{name}" for name in reversed(self.replaced) if name in self.names_before]
        return (*([SWITCH_BACK] if self._has_switched else []), *back, WITHDRAW)

    def roster(self) -> dict[str, Wanted]:
        """The replicas that there should be in the phase that it is in."""
        old = {name: Wanted(self._from) for name in self.names_before}
        if self.operation.phase in (WITHDRAW, ""):
            return old
        if self.operation.phase in (LEAVE, GROW):
            return {name: Wanted(self._to, self._pin if name in self.targets else "") for name in self.names_after}
        new = {name: Wanted(self._to, self._pin) for name in self.replaced}
        # The first of its kind has nobody of its own to be seeded by.
        first = replace(self._to, takes_older=self.changes_results and not self._has_switched)
        return {**old, **new, self.joiner: Wanted(first, self._pin)}

    def publishing(self) -> tuple[int, int]:
        """The generation of results that publishes in the phase that it is in, and the one beside it (0: none)."""
        before, after = self.before.results_of, self.after.results_of
        if self.operation.phase == WITHDRAW:
            return before, 0
        if self.operation.phase == LEAVE:
            return after, 0
        if self._has_switched and self.operation.state == "rolling-back":
            # What the new kind has sealed and could not publish, the old one publishes: nobody else will.
            return before, 0
        return (after, before) if self._has_switched else (before, after)

    @property
    def _has_switched(self) -> bool:
        return any(step.name == SWITCH for step in self.operation.steps)


def advance(operation: Operation, view: View) -> Operation:
    """The operation as it goes on from what is seen: the same, one phase further, or over."""
    change = Change(operation)
    if operation.state == "asked":
        return _on(operation, change.way_forward(), view.now_us, state="running")
    if operation.state != "rolling-back":
        if (reason := _reason_to_go_back(change, view)) is not None:
            if back := change.way_back():
                return _on(operation, back, view.now_us, reason, state="rolling-back", error=reason)
            # Nobody of the old kind is left: what is there is what was wanted, and it goes on, late as it is.
            operation = replace(operation, wish="")
        if operation.phase in (COMPARE, CONFIRM):
            return _waited(change, view)
    return _next(operation, view.now_us) if _is_reached(change, view) else operation


def _on(operation: Operation, route: tuple[str, ...], now_us: int, text: str = "", **changes: Any) -> Operation:
    return operation.noted(route[0], now_us, text, route=route, **changes)


def _next(operation: Operation, now_us: int) -> Operation:
    rest = operation.route[1:]
    if rest and operation.state == "rolling-back":
        return _on(operation, rest, now_us)
    if rest:
        return _on(operation, rest, now_us, state="running", wish="")
    if operation.state == "rolling-back":
        return operation.ended("rolled-back", now_us, operation.error)
    return operation.ended("done", now_us)


def _reason_to_go_back(change: Change, view: View) -> str | None:
    one = change.operation
    if one.wish == "rollback":
        return "it was taken back"
    for name, wanted in change.roster().items():
        slot = view.slots.get(name, ABSENT)
        if slot.trouble and wanted.template.generation == change.after.generation != change.before.generation:
            return f"{name}: {slot.trouble}"
    if view.now_us >= one.deadline_us and one.at_deadline == "rollback" and one.phase != CONFIRM:
        return f"it was not done by its deadline, in phase {one.phase}"
    return None


def _waited(change: Change, view: View) -> Operation:
    """Whether to go on, in the two phases that may wait for a person."""
    one = change.operation
    late = view.now_us >= one.deadline_us
    goes_on = one.wish == "commit" or (late and one.at_deadline == "commit")
    if one.phase == CONFIRM:
        kept_s = (view.now_us - one.steps[-1].at_us) / US_PER_S
        is_over = kept_s >= float(one.arguments.get("keep_s", KEEP_S))
        return _next(one, view.now_us) if goes_on or is_over else one
    is_enough = view.compared_epochs >= COMPARED_EPOCHS and view.telling_epochs > 0
    if not _is_well(view.slots.get(change.joiner, ABSENT)) or not (goes_on or is_enough):
        # Nobody would publish if it were to begin now, or nothing is known yet.
        return one
    if goes_on or not view.differing_epochs:
        return _next(one, view.now_us)
    if one.state == "waiting":
        return one
    text = f"{view.differing_epochs} of {view.compared_epochs} epochs differ: see `lockstep diff`, then commit or not"
    return one.noted("waits", view.now_us, text, state="waiting")


def _is_reached(change: Change, view: View) -> bool:
    """Whether all is as the phase wants it."""
    phase, slots, roster = change.operation.phase, view.slots, change.roster()
    if phase == SWITCH:
        return view.publishes == change.after.results_of and _is_well(slots.get(change.joiner, ABSENT))
    if phase == SWITCH_BACK:
        return view.publishes == change.before.results_of
    if phase in (LEAVE, WITHDRAW, GROW):
        are_others_gone = all(name in roster for name, slot in slots.items() if slot.alive)
        return are_others_gone and all(_is_settled(slots.get(name, ABSENT)) for name in roster)
    if phase.startswith(BACK):
        return _is_settled(slots.get(phase.removeprefix(BACK), ABSENT))
    return _is_well(slots.get(change.joiner if phase == JOIN else phase.removeprefix(REPLACE), ABSENT))


def _is_settled(slot: SlotView) -> bool:
    """Whether there is nothing to wait for: one that cannot run as it was before is no reason to wait for ever."""
    return _is_well(slot) or bool(slot.trouble)


def _is_well(slot: SlotView) -> bool:
    return slot.fits and slot.ready
