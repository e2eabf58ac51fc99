from __future__ import annotations

import pytest

from lockstep.errors.page import all_pages
from tests.unit.cli.conftest import Call


@pytest.mark.parametrize("spelling", ["LS0001", "ls0001", "0001", "1", " LS1 "])
def test_a_code_is_found_however_it_is_spelled(lockstep: Call, spelling: str) -> None:
    said = lockstep("explain", spelling)
    assert said.code == 0
    assert said.out == f"LS0001 {all_pages()['LS0001'].title}\n\n{all_pages()['LS0001'].text}\n"
    assert said.err == ""


def test_an_unknown_code_lists_those_near_it(lockstep: Call) -> None:
    said = lockstep("explain", "LS0098")
    assert said.code == 2
    assert said.out == ""
    assert "LS0008" in said.err
    last = max(code for code in all_pages() if code.startswith("LS00"))
    assert f"{last} {all_pages()[last].title}" in said.err


def test_a_word_that_is_no_code_is_answered_with_how_codes_look(lockstep: Call) -> None:
    assert "codes look like LS0107" in lockstep("explain", "banana").err


def test_without_a_code_every_code_is_listed(lockstep: Call) -> None:
    said = lockstep("explain", "--json")
    assert [line["code"] for line in said.json()] == sorted(all_pages())
    listed = lockstep("explain").out
    assert [code for code in all_pages() if code not in listed] == []
