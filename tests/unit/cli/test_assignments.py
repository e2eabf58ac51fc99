from __future__ import annotations

import pytest

from lockstep.cli.assignments import assignments, epoch_range
from lockstep.errors import EnvironmentError_


def test_a_value_may_hold_equals_signs_and_the_last_assignment_wins() -> None:
    assert assignments("--set", ["a=1", "b=x=y", "a=2"]) == {"a": "2", "b": "x=y"}


@pytest.mark.parametrize("text", ["", "a", "=1", " =1"])
def test_what_is_no_assignment_is_refused_with_the_option_named(text: str) -> None:
    with pytest.raises(EnvironmentError_, match="--spark-conf") as caught:
        assignments("--spark-conf", [text])
    assert caught.value.code == "LS0007"


@pytest.mark.parametrize("text", ["b:a", "7:3", "-1:3", "x", "1:2:3", ":-2"])
def test_what_is_no_range_of_epochs_is_refused(text: str) -> None:
    with pytest.raises(EnvironmentError_) as caught:
        epoch_range(text)
    assert caught.value.code == "LS0007"
