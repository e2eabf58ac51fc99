"""Driving a step machine with real effects: answers and errors come back to it, in the order of its steps."""

from __future__ import annotations

import pytest

from lockstep.errors import StoreError
from lockstep.runtime.steps import Pause, Step, Steps, run
from lockstep.store.patience import PATIENCE_S, patience_s


def _fail() -> None:
    raise StoreError("LS0404", "the disk is full")


def _machine(said: list[str]) -> Steps[str]:
    try:
        yield Step("write", _fail)
    except StoreError as error:
        said.append(error.code)
    sealed = yield Pause(3.0, epoch=7)
    waits_s = yield Step("look", patience_s, patience_s=1.5)
    return f"{sealed} {waits_s}"


def test_an_error_of_a_step_is_raised_inside_the_machine_which_may_go_on() -> None:
    said: list[str] = []
    pauses: list[Pause] = []

    def pause(one: Pause) -> str:
        pauses.append(one)
        return "sealed"

    assert run(_machine(said), pause, before=said.append) == "sealed 1.5"
    assert said == ["write", "LS0404", "look"]
    assert pauses == [Pause(3.0, epoch=7)]
    assert patience_s() == PATIENCE_S, "a step's patience is its own"


def test_an_error_that_the_machine_does_not_expect_reaches_whoever_drives_it() -> None:
    def machine() -> Steps[None]:
        yield Pause(1.0)

    def interrupted(pause: Pause) -> None:
        raise StoreError("LS0413", f"locked, while it waited {pause.seconds} s")

    with pytest.raises(StoreError, match="LS0413"):
        run(machine(), interrupted)
