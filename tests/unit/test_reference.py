"""The API reference is what the docstrings say, and every public name has one."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    made: dict[str, str] = runpy.run_path(str(ROOT / "scripts" / "reference.py"))["pages"]()
    return made


def test_the_reference_is_up_to_date(pages: dict[str, str]) -> None:
    there = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.md")}
    changed = sorted(name for name in {*there, *pages} if there.get(name) != pages.get(name))
    assert changed == [], "run 'make reference'"


def test_every_public_name_and_method_is_described(pages: dict[str, str]) -> None:
    bare = []
    for page, text in pages.items():
        for section in text.split("\n## ")[1:]:
            title, _, body = section.partition("\n")
            described = [line for line in body.split("```")[::2] if line.strip()]
            if page != "README.md" and not described:
                bare.append(f"{page}: {title}")
    assert bare == []


def test_nothing_of_the_machinery_shows(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert " at 0x" not in text, name
        assert ":func:`" not in text and ":class:`" not in text, name
