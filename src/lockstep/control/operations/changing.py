"""The change that a job is going through, as its supervisor follows it: which replicas there should be now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from lockstep.clock import Clock, wall_us
from lockstep.config import Settings
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import (
    Change,
    Roster,
    SlotView,
    View,
    Wanted,
    advance,
)
from lockstep.control.supervise.supervision import Seen, is_healthy
from lockstep.runtime.desired_run import DesiredRun, note_changed
from lockstep.runtime.shadow import SHADOWED, comparison, shadow_fact
from lockstep.runtime.spec import EXIT_DIVERGED, EXIT_JOB_ERROR, ReplicaSpec, replica_names
from lockstep.runtime.state.recovery import ALIKE, VERSION, VERSION_FROM, began_after
from lockstep.runtime.steering import publish_from
from lockstep.store.protocols import Store

AGREED_EPOCHS = 10
"""A replica of a new kind has computed so many epochs, and disagreed about none, before another one makes room."""
LOOK_S = 0.3
"""How often the book of operations is read, and a change goes on."""


class Changes(Protocol):
    """Says which replicas a job should have."""

    def roster(self) -> Roster:
        """Those that there should be, as it was decided last."""

    @property
    def is_under_way(self) -> bool:
        """Whether a change goes on."""

    def needed(self) -> int:
        """How many replicas have to compute before one of them may leave for a change."""

    def newcomers(self) -> frozenset[str]:
        """Those of a new kind: if they disagree with the others, it is they who are wrong."""

    def look(self, seen: Sequence[Seen], fitting: Mapping[str, bool], head: int) -> Settings | None:
        """Decide anew from what is seen; the job's settings if they have changed."""


class Unchanging:
    """A job that nobody changes."""

    def __init__(self, template: ReplicaSpec, names: Sequence[str]) -> None:
        self._roster = {name: Wanted(template) for name in names}

    def roster(self) -> Roster:
        """Always the same."""
        return self._roster

    @property
    def is_under_way(self) -> bool:
        """Never."""
        return False

    def needed(self) -> int:
        """All of them."""
        return len(self._roster)

    def newcomers(self) -> frozenset[str]:
        """Nobody."""
        return frozenset()

    def look(self, seen: Sequence[Seen], fitting: Mapping[str, bool], head: int) -> Settings | None:
        """Nothing changes."""
        del seen, fitting, head
        return None


class Operations:
    """Implements :class:`Changes` for a job whose operations are in its store."""

    def __init__(
        self,
        store: Store,
        order: DesiredRun,
        elapsed_s: Callable[[], float],
        version_of: Callable[[DesiredRun], str] = lambda order: order.code_hash,
        clock: Clock = wall_us,
    ) -> None:
        self._store, self._order, self._elapsed_s = store, order, elapsed_s
        self._version_of, self._clock = version_of, clock
        self.on_change: Callable[[Sequence[DesiredRun]], None] = lambda _orders: None
        """Called with all specs that replicas may be of, when they have changed."""
        self._book = OperationBook(store, clock)
        self._operation: Operation | None = self._book.open()
        self._joined: dict[tuple[str, int], int] = {}
        """At which epoch an incarnation of a replica was first seen to compute."""
        self._next_s = 0.0
        self._roster = self._wanted()

    @property
    def orders(self) -> list[DesiredRun]:
        """The specs that replicas may be of now: hosts need the code of all of them."""
        change = Change(self._operation) if self._operation is not None else None
        return [self._order] if change is None else [change.before, change.after]

    @property
    def kinds(self) -> list[str]:
        """The likenesses that replicas may have now: whoever takes over goes on with all of them."""
        return [order.template().likeness for order in self.orders]

    def roster(self) -> Roster:
        """Those that there should be, as it was decided last."""
        return self._roster

    @property
    def is_under_way(self) -> bool:
        """Whether an operation was asked for, and is not over."""
        return self._operation is not None

    def needed(self) -> int:
        """As many as are wanted: where a change adds some or takes some away, the lower number."""
        if self._operation is None:
            return len(self._roster)
        change = Change(self._operation)
        return min(len(change.names_before), len(change.names_after))

    def newcomers(self) -> frozenset[str]:
        """The replicas of the generation that a change leads to, while it goes on."""
        if self._operation is None:
            return frozenset()
        change = Change(self._operation)
        if change.after.generation == change.before.generation:
            return frozenset()
        new = change.after.generation
        return frozenset(name for name, wanted in self._roster.items() if wanted.template.generation == new)

    def look(self, seen: Sequence[Seen], fitting: Mapping[str, bool], head: int) -> Settings | None:
        """Go on with the change under way, or take up the one that was asked for."""
        if self._elapsed_s() < self._next_s:
            return None
        self._next_s = self._elapsed_s() + LOOK_S
        before, held = self._operation, self._book.open()
        if held is None:
            self._operation = None
        else:
            if held.state == "asked":
                self._take_up(Change(held))
            self._operation = self._advanced(held, self._view(held, seen, fitting, head))
        if self._operation == before:
            return None
        self._roster = self._wanted()
        if _specs(before) != _specs(self._operation):
            self.on_change(self.orders)
            return self._order.parsed_settings()
        return None

    def _advanced(self, held: Operation, view: View) -> Operation | None:
        """Act first, then write down that it was done: whoever comes next does it again, which does no harm."""
        after = advance(held, view)
        if after == held:
            self._steer(held)
            return held
        if after.state == "done":
            self._commit(Change(held))
        self._steer(after)
        written = self._book.update(held.number, lambda now: _moved_on(held, now, after))
        self._store.add_event("operation", _told(after))
        return written if written.is_open else None

    def _steer(self, operation: Operation) -> None:
        """Where results change: one sealed entry switches, another one switches back."""
        if not operation.is_open or not (change := Change(operation)).changes_results:
            return
        generation, beside = change.publishing()
        publish_from(self._store, generation, beside)

    def _commit(self, change: Change) -> None:
        """From now on this is what is to run."""
        after = change.after
        if change.changes_results:
            since = self._store.fact(began_after(after.results_of)) or "-1"
            self._store.set_fact(VERSION_FROM, since)
        self._store.set_fact(VERSION, self._version_of(after))
        self._order = note_changed(self._store, after)

    def _take_up(self, change: Change) -> None:
        """What was found about an earlier change says nothing about this one."""
        self._note_alike(change)
        self._store.set_fact(shadow_fact(change.after.results_of), "null")
        self._store.set_fact(SHADOWED, str(change.after.results_of))

    def _note_alike(self, change: Change) -> None:
        """Code with the same results may go on from the other's state, forwards and back."""
        if not change.changes_results and change.before.code_hash != change.after.code_hash:
            alike = [self._version_of(change.before), self._version_of(change.after)]
            self._store.set_fact(ALIKE, json.dumps(alike))

    def _wanted(self) -> Roster:
        if self._operation is not None and self._operation.state != "asked":
            return Change(self._operation).roster()
        template = self._order.template()
        return {name: Wanted(template) for name in replica_names(self._order.settings["run"]["replicas"])}

    def _view(self, held: Operation, seen: Sequence[Seen], fitting: Mapping[str, bool], head: int) -> View:
        settings = self._order.parsed_settings().run
        slots: dict[str, SlotView] = {}
        for one in seen:
            ready = is_healthy(one, head, settings) and self._has_agreed(one)
            slots[one.name] = SlotView(one.alive, fitting.get(one.name, False), ready, _trouble(one))
        entry, found = self._store.head(), comparison(self._store, Change(held).after.results_of)
        publishes = entry.generation if entry is not None else self._order.results_of
        return View(slots, self._clock(), publishes, found.epochs, found.telling, found.differing)

    def _has_agreed(self, one: Seen) -> bool:
        said = one.progress
        if said is None or said.state != "running":
            return False
        joined = self._joined.setdefault((said.replica, said.incarnation), said.epoch)
        return said.epoch >= joined + AGREED_EPOCHS


def _moved_on(held: Operation, now: Operation, after: Operation) -> Operation:
    """The operation one step further, unless somebody else has moved it meanwhile; a word that came since stays."""
    if replace(now, wish=held.wish) != held:
        return now
    return replace(after, wish=now.wish) if now.wish != held.wish else after


def _trouble(one: Seen) -> str:
    if one.given_up:
        return "it was started too often, and given up"
    if not one.alive and one.exit_code == EXIT_JOB_ERROR:
        return "the job fails in it; see its log, and `lockstep status`"
    if not one.alive and one.exit_code == EXIT_DIVERGED:
        return "it computes something else than the others"
    return ""


def _specs(operation: Operation | None) -> object:
    return (operation.before, operation.after) if operation is not None else None


def _told(operation: Operation) -> str:
    step = operation.steps[-1]
    text = f": {step.text}" if step.text else ""
    return f"{operation.number} ({operation.kind}), {step.name}{text}"
