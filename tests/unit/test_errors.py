"""Every code that is raised has a page, every page's code is raised, and errors survive the trip between processes."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

import lockstep.errors.tree
from lockstep.errors import FunctionError, LockstepError, PlanError, StoreError, from_wire
from lockstep.errors.page import all_pages

SOURCE = Path(lockstep.errors.tree.__file__).resolve().parents[1]
CODE = re.compile(r"LS0\d\d\d")


def _codes_in_source() -> set[str]:
    """Codes in the code itself; the pages may mention others, and docstrings show some in examples."""
    pages = SOURCE / "errors" / "pages"
    files = (file for file in SOURCE.rglob("*.py") if file.parent != pages)
    return {code for file in files for code in CODE.findall(file.read_text(encoding="utf-8"))}


def test_every_code_in_the_source_has_a_page() -> None:
    assert sorted(_codes_in_source() - set(all_pages())) == []


def test_every_page_belongs_to_a_code_that_the_source_uses() -> None:
    assert sorted(set(all_pages()) - _codes_in_source()) == []


def test_no_code_has_two_pages() -> None:
    defined = [
        code
        for file in (SOURCE / "errors" / "pages").glob("*.py")
        for code in re.findall(r'^    "(LS0\d\d\d)": Page', file.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert sorted(defined) == sorted(set(defined))
    assert set(defined) == set(all_pages())


@pytest.mark.parametrize("code", sorted(all_pages()))
def test_a_page_has_a_title_and_says_something(code: str) -> None:
    page = all_pages()[code]
    assert page.title
    assert not page.title.endswith(".")
    assert len(page.text) > 80
    assert page.text == page.text.strip()


def test_an_error_survives_the_wire_inside_a_foreign_text() -> None:
    error = StoreError("LS0401", 'a "quoted" fact >> with marks', why="two\nlines", hint="try — ünïcode")
    back = from_wire(f"py4j.Py4JJavaError: ...\n  at foo {error.to_wire()} bar >> baz")
    assert isinstance(back, StoreError)
    assert (back.code, back.fact, back.why, back.hint) == (error.code, error.fact, error.why, error.hint)


@pytest.mark.parametrize(
    "text", ["", "no error here", "<<lockstep-error ", "<<lockstep-error [1]>>", "<<lockstep-error {"]
)
def test_text_without_a_whole_error_gives_none(text: str) -> None:
    assert from_wire(text) is None


def test_an_error_survives_pickling() -> None:
    error = FunctionError("LS0301", "fact", why="why", hint="hint")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back)) == (FunctionError, str(error))


def test_a_code_outside_its_area_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError, match="LS0401"):
        PlanError("LS0401", "wrong area")


def test_an_error_without_why_and_hint_is_one_line() -> None:
    assert str(LockstepError("LS0101", "fact")) == "LS0101 fact"
