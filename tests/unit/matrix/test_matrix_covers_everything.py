"""The table of jobs has everything that a job can be made of: a new kind of step cannot be forgotten."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lockstep.faults.windows import Window
from lockstep.plan.graph import Graph
from tests.matrix.__main__ import chosen
from tests.matrix.case import Case, Given
from tests.matrix.coverage import NOT_WANTED, covered, wanted
from tests.matrix.life import BEFORE_RUNNING, EPOCHS, WHILE_RUNNING
from tests.matrix.table import CASES


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("project")


def _given(case: Case, folder: Path) -> Given:
    return Given(case.inputs(Random(1), EPOCHS), folder)


def _graphs(folder: Path) -> list[Graph]:
    return [case.job(_given(case, folder)).graph() for case in CASES]


def test_there_is_a_job_for_everything_that_a_job_can_be_made_of(folder: Path) -> None:
    lacking = sorted(wanted() - covered(_graphs(folder)))
    assert not lacking, f"add to a job in tests/matrix/jobs, with its reference: {lacking}"


def test_what_is_said_to_be_impossible_is(folder: Path) -> None:
    assert not NOT_WANTED.keys() & covered(_graphs(folder))


def test_a_life_comes_by_every_crash_window() -> None:
    assert {*BEFORE_RUNNING, *WHILE_RUNNING, Window.SEEDING_HALF_DONE} == set(Window)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_sink_of_a_job_has_a_reference_that_expects_something(case: Case, folder: Path) -> None:
    given = _given(case, folder)
    expected = case.expected(given)
    sinks = {sink.id for sink in case.job(given).graph().sinks if sink.spec.kind != "stage"}
    assert expected.keys() == sinks
    assert all(expected.values()), "an empty reference shows nothing"
    again = case.expected(given)
    assert {sink: sorted(rows, key=repr) for sink, rows in again.items()} == {
        sink: sorted(rows, key=repr) for sink, rows in expected.items()
    }, "the same every time"


def test_a_whole_name_means_one_job_and_a_part_of_a_name_or_family_all_that_have_it() -> None:
    assert [case.name for case in chosen("Rolling results, loop")] == ["rolling results", "loop"]
    assert [case.name for case in chosen("rolling")] == ["rolling results", "rolling results in Python"]
    assert chosen("") == list(CASES)
