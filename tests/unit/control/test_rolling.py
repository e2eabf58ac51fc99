"""How a change rolls through replicas: whatever happens when, it is done or rolled back, and never half."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.config import Settings
from lockstep.control.operations.model import Kind, Operation
from lockstep.control.operations.rolling import Change, SlotView, View, advance
from lockstep.control.operations.verbs import with_replicas, with_shape
from lockstep.runtime.desired_run import DesiredRun

DEADLINE_US = 900_000_000
SECOND_US = 1_000_000


def spec(replicas: int = 2) -> DesiredRun:
    settings = Settings.model_validate({"run": {"replicas": replicas}}).model_dump(mode="json")
    return DesiredRun("job", "code/ab/job.py:job", "hash", "sqlite:x", settings)


def upgraded(before: DesiredRun) -> DesiredRun:
    number = before.generation + 1
    return replace(before, code_hash="other", job_file="code/cd/job.py:job", generation=number, results_of=number)


def asked(kind: Kind, before: DesiredRun, after: DesiredRun, **arguments: Any) -> Operation:
    return Operation(1, kind, arguments, "ann", 0, DEADLINE_US, before=before.to_json(), after=after.to_json())


class World:
    """Replicas that do at once what the roster wants, unless told otherwise; a supervisor and a ledger on paper."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        before = Change(operation).before
        self.running = {name: before.template() for name in Change(operation).names_before}
        self.publishes = before.results_of
        self.now_us = 0
        self.broken: set[int] = set()
        """Generations in which the job fails."""
        self.compared, self.telling, self.differing = 20, 5, 0
        self.fewest = len(self.running)
        self.phases: list[str] = []

    def step(self) -> None:
        self.now_us += SECOND_US
        before = self.operation
        if not before.is_open:
            return
        self.operation = advance(before, self._view())
        if self.operation.is_open and self.operation.phase != (self.phases or [""])[-1]:
            self.phases.append(self.operation.phase)
        if self.operation.is_open and Change(self.operation).changes_results:
            self.publishes = Change(self.operation).publishing()[0]
        self._follow()

    def _view(self) -> View:
        roster = Change(self.operation).roster() if self.operation.state != "asked" else {}
        slots = {}
        for name in self.running.keys() | roster.keys():
            is_there = name in self.running and self.running[name].generation not in self.broken
            wanted = roster.get(name)
            fits = is_there and wanted is not None and self.running[name].likeness == wanted.template.likeness
            trouble = "the job fails in it" if wanted and wanted.template.generation in self.broken else ""
            slots[name] = SlotView(is_there, fits, is_there, trouble)
        return View(slots, self.now_us, self.publishes, self.compared, self.telling, self.differing)

    def _follow(self) -> None:
        if not self.operation.is_open:
            return
        for name, wanted in Change(self.operation).roster().items():
            if self.running.get(name) != wanted.template:
                # It leaves first: whoever is left has the output going.
                self.running.pop(name, None)
                self.fewest = min(self.fewest, self._computing())
                self.running[name] = wanted.template
        for name in [name for name in self.running if name not in Change(self.operation).roster()]:
            del self.running[name]
        self.fewest = min(self.fewest, self._computing())

    def _computing(self) -> int:
        return sum(spec.generation not in self.broken for spec in self.running.values())

    def run(self, seconds: int = 2_000) -> Operation:
        for _ in range(seconds):
            self.step()
        return self.operation


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_rescale_replaces_one_at_a_time_and_is_never_below_what_is_wanted(replicas: int) -> None:
    before = spec(replicas)
    world = World(asked("rescale", before, with_shape(before, 4, None, None)))
    assert world.run().state == "done"
    assert world.fewest == replicas
    assert sorted(world.running) == [f"r{n}" for n in range(replicas)]
    assert {one.generation for one in world.running.values()} == {2}
    assert world.phases == ["join", *(f"replace r{n}" for n in range(replicas)), "leave"]


def test_the_number_of_replicas_changes_without_replacing_anybody() -> None:
    before = spec(2)
    for wanted in (3, 1):
        world = World(asked("rescale", before, with_replicas(before, wanted)))
        kept = {name: one.likeness for name, one in world.running.items()}
        assert world.run().state == "done"
        assert len(world.running) == wanted
        assert all(world.running[name].likeness == kept[name] for name in world.running.keys() & kept.keys())


@pytest.mark.parametrize("replicas", [1, 2])
def test_what_fails_in_the_new_generation_is_rolled_back_at_once(replicas: int) -> None:
    before = spec(replicas)
    world = World(asked("upgrade", before, upgraded(before)))
    world.broken = {2}
    ended = world.run()
    assert ended.state == "rolled-back" and "the job fails in it" in ended.error
    assert world.fewest == replicas
    assert {one.generation for one in world.running.values()} == {1}
    assert world.publishes == 1
    assert ended.ended_us < DEADLINE_US


def test_equal_results_switch_by_themselves_and_different_ones_wait_for_a_person() -> None:
    before = spec(2)
    equal = World(asked("upgrade", before, upgraded(before)))
    assert equal.run().state == "done"
    assert equal.publishes == 2
    assert equal.phases == ["join", "compare", "switch", "replace r0", "confirm", "replace r1", "leave"]

    different = World(asked("upgrade", before, upgraded(before)))
    different.differing = 3
    assert different.run(100).state == "waiting"
    assert different.publishes == 1
    different.operation = replace(different.operation, wish="commit")
    assert different.run().state == "done"
    assert different.publishes == 2

    nobody = World(asked("upgrade", before, upgraded(before)))
    nobody.differing = 3
    assert nobody.run().state == "rolled-back"
    assert nobody.publishes == 1


def test_an_upgrade_can_be_taken_back_after_the_switch_until_it_is_confirmed() -> None:
    before = spec(2)
    world = World(asked("upgrade", before, upgraded(before), keep_s=300))
    while world.operation.phase != "confirm":
        world.step()
    assert world.publishes == 2 and world.running["r1"].generation == 1
    world.operation = replace(world.operation, wish="rollback")
    ended = world.run()
    assert ended.state == "rolled-back"
    assert world.publishes == 1
    assert {one.generation for one in world.running.values()} == {1}
    assert sorted(world.running) == ["r0", "r1"]
    assert world.phases[-3:] == ["switch back", "back r0", "withdraw"]


def test_a_move_replaces_one_replica_on_its_new_host() -> None:
    before = spec(2)
    operation = asked("move", before, before, replica="r1", host="h2")
    started = advance(operation, View({}, 1))
    assert Change(started).way_forward() == ("join", "replace r1", "leave")
    assert Change(started).roster()["r2"].host == "h2"
    last = replace(started, route=("leave",), steps=(*started.steps,))
    assert Change(last).roster()["r1"].host == "h2" and Change(last).roster()["r0"].host == ""


@given(
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["rescale", "upgrade", "replicas", "both", "fewer"]),
    st.lists(st.sampled_from(["go", "break", "mend", "rollback", "commit", "differ"]), max_size=40),
    st.sampled_from(["rollback", "commit"]),
)
def test_whatever_happens_it_is_done_or_rolled_back_and_all_replicas_are_of_one_kind(
    replicas: int, kind: str, happening: list[str], at_deadline: Literal["rollback", "commit"]
) -> None:
    before = spec(replicas)
    after = {
        "rescale": with_shape(before, 4, None, None),
        "upgrade": upgraded(before),
        "replicas": with_replicas(before, replicas + 1),
        "both": with_replicas(with_shape(before, 4, None, None), replicas + 1),
        "fewer": with_replicas(with_shape(before, 4, None, None), max(1, replicas - 1)),
    }[kind]
    operation = asked("upgrade" if kind == "upgrade" else "rescale", before, after)
    world = World(replace(operation, at_deadline=at_deadline))
    for what in happening:
        if what == "break" and kind != "replicas":
            world.broken = {2}
        elif what == "mend":
            world.broken = set()
        elif what == "differ":
            world.differing = 1
        elif what in ("rollback", "commit") and world.operation.is_open:
            world.operation = replace(world.operation, wish="rollback" if what == "rollback" else "commit")
        world.step()
    world.broken = set()
    ended = world.run()
    assert not ended.is_open
    generations = {one.generation for one in world.running.values()}
    wanted = after if ended.state == "done" else before
    assert generations == {wanted.generation}
    assert len(world.running) == wanted.settings["run"]["replicas"]
    if kind == "upgrade":
        assert world.publishes == wanted.results_of


def test_after_a_switch_back_the_old_kind_publishes_what_the_new_one_has_only_sealed() -> None:
    before = spec(1)
    world = World(asked("upgrade", before, upgraded(before), keep_s=300))
    while world.operation.phase != "confirm":
        world.step()
    world.operation = replace(world.operation, wish="rollback")
    world.step()
    assert world.operation.phase == "switch back"
    assert Change(world.operation).publishing() == (1, 0), "no entry of the new kind keeps the old one in the shadow"


def test_a_switch_waits_for_somebody_who_can_publish() -> None:
    before = spec(1)
    world = World(asked("upgrade", before, upgraded(before)))
    while world.operation.phase != "compare":
        world.step()
    world.broken = {2}
    gone = replace(world.operation, wish="commit")
    view = View({"r0": SlotView(alive=True, fits=True, ready=True)}, world.now_us, 1, 20, 0)
    assert advance(gone, view).phase == "compare"


def test_epochs_without_a_row_say_nothing_about_new_code() -> None:
    world = World(asked("upgrade", spec(), upgraded(spec())))
    world.telling = 0
    for _ in range(100):
        world.step()
    assert world.operation.phase == "compare" and world.operation.is_open
    world.telling = 1
    for _ in range(200):
        world.step()
    assert world.operation.state == "done"


def test_what_is_late_and_has_no_way_back_any_more_is_done_all_the_same() -> None:
    before = spec(2)
    world = World(asked("upgrade", before, upgraded(before), keep_s=0))
    while world.operation.phase != "replace r1":
        world.step()
    assert not Change(world.operation).way_back()
    world.now_us = DEADLINE_US + SECOND_US
    assert world.run(20).state == "done", "found by the simulator: it stayed in this phase for ever"
