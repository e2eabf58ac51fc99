"""Operations under chaos: which replicas there should be meanwhile, and whether each operation came to its end once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lockstep.clock import US_PER_S
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.operations.rolling import BACK, GROW, REPLACE, Change
from lockstep.runtime.desired_run import DesiredRun, last_run
from lockstep.runtime.spec import replica_names
from lockstep.store.protocols import Store

WAY_BACK_S_MAX = 180.0
"""What is not done by its deadline turns back then, and may need as long as a boot for each replica."""
_AT_ONCE = ("activate", "deactivate")
"""Operations that whoever asks has done already."""


@dataclass(frozen=True)
class Shape:
    """Which replicas a job should have now."""

    names: frozenset[str]
    """All of them, those that an operation has added included."""
    settled: frozenset[str]
    """Those of them that no operation is just starting, replacing or ending."""


def shape_of(store: Store, replicas: int) -> Shape:
    """As the store says; ``replicas`` if the job has never run."""
    order, under_way = last_run(store), OperationBook(store).open()
    names = frozenset(replica_names(order.settings["run"]["replicas"] if order is not None else replicas))
    if under_way is None or under_way.state == "asked":
        return Shape(names, names)
    change = Change(under_way)
    staying = frozenset(change.names_before) & frozenset(change.names_after)
    phase = under_way.phase
    return Shape(frozenset(change.roster()), staying - {phase.removeprefix(REPLACE), phase.removeprefix(BACK)})


@dataclass(frozen=True)
class Asked:
    """One operation that chaos has asked for."""

    number: int
    route: tuple[str, ...]
    """The steps that it was to take."""

    @staticmethod
    def of(operation: Operation) -> Asked:
        """As it has just been asked for."""
        return Asked(operation.number, Change(operation).way_forward())

    def to_json(self) -> dict[str, Any]:
        """For a deed."""
        return {"operation": self.number, "route": list(self.route)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Asked | None:
        """What :meth:`to_json` gave, None for a deed that was no operation."""
        return Asked(data["operation"], tuple(data["route"])) if "operation" in data else None


def complaints_about(asked: Sequence[Asked], kept: Sequence[Operation], order: DesiredRun | None) -> list[str]:
    """What is wrong with the operations of a run that is over; ``order`` is what the job is at its end."""
    by_number = {one.number: one for one in kept}
    numbers = {one.number for one in asked}
    found = [f"operation {one.number} is lost" for one in asked if one.number not in by_number]
    strangers = [one for one in kept if one.kind not in _AT_ONCE and one.number not in numbers]
    found += [f"nobody has asked for operation {one.number} ({one.kind})" for one in strangers]
    for one in asked:
        if (operation := by_number.get(one.number)) is not None:
            found += [f"operation {one.number} ({operation.kind}) {said}" for said in _wrong(one, operation)]
    generation = 1 + sum(_counts(one, by_number.get(one.number)) for one in asked)
    if order is not None and not strangers and order.generation != generation:
        found.append(f"the job has generation {order.generation}, and what was done makes {generation}")
    return found


def _counts(asked: Asked, operation: Operation | None) -> bool:
    """Whether it has made a further generation of the job."""
    return operation is not None and operation.state == "done" and asked.route != (GROW,)


def _wrong(asked: Asked, one: Operation) -> list[str]:
    names = [step.name for step in one.steps]
    found = [f"has done {name} {count} times" for name, count in Counter(names).items() if count > 1]
    if one.is_open:
        return [*found, f"is {one.state}, in phase {one.phase}"]
    late_s = (one.ended_us - one.deadline_us) / US_PER_S - (0 if one.state == "done" else WAY_BACK_S_MAX)
    if late_s > 0:
        found.append(f"was {one.state} {late_s:.0f} s too late")
    forward = list(takewhile(lambda name: name in asked.route, names))
    if one.state == "done" and names != [*asked.route, "done"]:
        found.append(f"is done, with the steps {', '.join(names)} instead of {', '.join(asked.route)}")
    if one.state != "done" and forward != list(asked.route[: len(forward)]):
        found.append(f"is {one.state}, after the steps {', '.join(names)} of {', '.join(asked.route)}")
    return found


def steps_told(one: Operation) -> str:
    """Its steps, each with when it began.

    >>> one = Operation(3, "restart", {}, "chaos", 5_000_000, 300_000_000).noted("join", 6_000_000)
    >>> steps_told(one.ended("done", 48_000_000))
    'join 1.0 s, done 43.0 s'
    """
    return ", ".join(f"{step.name} {(step.at_us - one.asked_us) / US_PER_S:.1f} s" for step in one.steps)
