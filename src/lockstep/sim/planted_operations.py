"""Bugs in how operations are carried out, each with the promise that it breaks."""

from __future__ import annotations

from dataclasses import replace

from lockstep.control.operations import changing, rolling
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.changing import Operations
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import JOIN, SWITCH_BACK, Change, View
from lockstep.control.supervise import supervisor as supervising
from lockstep.runtime.epoch.epoch_steps import EpochSteps
from lockstep.runtime.steering import Steering
from lockstep.sim.planting import Bug, swapped
from lockstep.sim.scenario import SETTINGS, Ask, Scenario

TAKEN_OVER_HALF_WAY = Scenario(
    operations=(Ask(2.0, "restart"),), faults_s=16.0, supervisor_killed_s=(4.0, 6.0, 8.0, 10.0)
)
SWITCHED = Scenario(operations=(Ask(2.0, "other results", 7, wish="commit", later_s=8.0),), faults_s=8.0)
TAKEN_BACK = Scenario(
    operations=(Ask(2.0, "other results", 0, wish="rollback", later_s=9.0),), faults_s=8.0, slowness=(1.0, 1.0, 1.0)
)
RESTARTED = Scenario(operations=(Ask(4.0, "restart"),), faults_s=6.0)
COMPARED = Scenario(operations=(Ask(3.0, "other results", 0, timeout_s=12.0),), faults_s=12.0)
HURRIED_TO_AND_FRO = Scenario(
    operations=tuple(Ask(2.0, "other results", 0, wish="rollback", later_s=6.0 + n) for n in range(4)),
    faults_s=12.0,
    # Epochs shorter than the time in which somebody may not have heard of a switch (0.25 s).
    slowness=(0.1, 0.1, 0.1),
    settings=SETTINGS.model_copy(update={"epoch_interval_s": 0.05}),
)
LATE = Scenario(operations=tuple(Ask(2.0, "other results", 0, timeout_s=4.0 * n, later_s=0.5) for n in range(1, 6)))
STRUCK = Scenario(operations=(Ask(3.0, "restart"), Ask(4.0, "partitions", 4)), faults_s=24.0, crash_chance=0.004)


class ForgetfulBook(OperationBook):
    """Knows only what was asked for since it was opened."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self._taken_up: set[int] = set()

    def open(self) -> Operation | None:
        """One that somebody else has begun is not seen."""
        held = super().open()
        if held is not None and held.state == "asked":
            self._taken_up.add(held.number)
        return held if held is not None and held.number in self._taken_up else None


class RestartingBook(ForgetfulBook):
    """Begins anew with what somebody else has begun."""

    def open(self) -> Operation | None:
        """One that somebody else has begun is as if it had just been asked for."""
        if super().open() is None and (held := OperationBook.open(self)) is not None:
            self._taken_up.add(held.number)
            self.update(held.number, lambda one: replace(one, state="asked", route=()))
        return super().open()


def _join_unseen(change: Change, view: View) -> bool:
    return change.operation.phase == JOIN or _IS_REACHED(change, view)


def _publish_on(change: Change) -> tuple[int, int]:
    """On the way back nobody says who publishes from now on."""
    if change.operation.state == "rolling-back":
        return change.after.results_of, change.before.results_of
    return _PUBLISHING(change)


def _switched_back(change: Change, view: View) -> bool:
    return change.operation.phase == SWITCH_BACK or _IS_REACHED(change, view)


def _stay_when_late(operation: Operation, view: View) -> Operation:
    """As it was before the simulator found it: past its deadline, and with no way back, it does not go on either."""
    change = Change(operation)
    if operation.state in ("running", "waiting") and rolling._reason_to_go_back(change, view) and not change.way_back():
        return operation
    return _ADVANCE(operation, view)


_IS_REACHED, _PUBLISHING, _ADVANCE = rolling._is_reached, Change.publishing, rolling.advance

OPERATION_BUGS: tuple[Bug, ...] = (
    Bug(
        "operation-forgotten",
        "Whoever takes over goes on with no operation that it has not begun itself.",
        "operations",
        swapped((changing, "OperationBook", ForgetfulBook)),
        TAKEN_OVER_HALF_WAY,
    ),
    Bug(
        "operation-begun-anew",
        "Whoever takes over begins anew with the operation that was under way.",
        "operations",
        swapped((changing, "OperationBook", RestartingBook)),
        TAKEN_OVER_HALF_WAY,
    ),
    Bug(
        "operation-stuck-when-late",
        "An operation that is late, and has no way back any more, waits for ever.",
        "operations",
        swapped((changing, "advance", _stay_when_late)),
        LATE,
    ),
    Bug(
        "commit-not-noted",
        "An operation counts as done, and what is to run stays what it was.",
        "operations",
        swapped((Operations, "_commit", lambda operations, change: None)),  # noqa: ARG005
        SWITCHED,
    ),
    Bug(
        "old-leaves-first",
        "The first replica is replaced before the new one has agreed, and nobody counts those that are left.",
        "capacity",
        swapped(
            (rolling, "_is_reached", _join_unseen),
            (supervising, "may_leave", lambda *_: True),
        ),
        RESTARTED,
    ),
    Bug(
        "leaves-below-the-wanted",
        "A replica makes room for a change while another one is away.",
        "capacity",
        swapped((supervising, "may_leave", lambda *_: True)),
        STRUCK,
    ),
    Bug(
        "shadow-publishes",
        "New results are published before an entry says so.",
        "generation",
        swapped((EpochSteps, "_is_in_shadow", lambda steps, entry: False)),  # noqa: ARG005
        COMPARED,
    ),
    Bug(
        "turn-undone",
        "A sealer that has not heard of a switch yet undoes it.",
        "generation",
        swapped((Steering, "for_entry", lambda steering, previous: (steering.generation, steering.turn))),  # noqa: ARG005
        HURRIED_TO_AND_FRO,
    ),
    Bug(
        "rolled-back-half",
        "An operation is rolled back, and the new results go on to be published.",
        "operations",
        swapped((Change, "publishing", _publish_on), (rolling, "_is_reached", _switched_back)),
        TAKEN_BACK,
    ),
)
