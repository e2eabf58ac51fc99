"""The documentation holds together: links lead somewhere, every page is in the site, every error has its section."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lockstep.errors.page import all_pages

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = sorted(path for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for path in ROOT.glob(pattern))
LINK = re.compile(r"(?<!`)\]\((?!\w+:)([^)\s]+)\)")


@cache
def site() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "docs_site.py"))


def prose(page: Path) -> str:
    """The text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", lambda code: code[0] if "](" not in code[0] else "", text)


@cache
def anchors(page: Path) -> set[str]:
    """What a link to a page may end with: its headings as GitHub names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{page.name} links to {link}"


def test_the_index_of_the_guide_names_every_page_of_it() -> None:
    named = {link.partition("#")[0] for link in LINK.findall((GUIDE / "README.md").read_text(encoding="utf-8"))}
    assert {page.name for page in GUIDE.glob("*.md")} - {"README.md"} <= named


def test_every_page_is_in_the_navigation_of_the_site_once() -> None:
    def pages(entry: Any) -> list[str]:
        if isinstance(entry, str):
            return [entry]
        return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in pages(part)]

    listed = pages(site()["navigation"]())
    there = [str(path) for path in site()["site_files"]() if path.suffix == ".md"]
    assert sorted(listed) == sorted([*there, *(f"errors/{name}" for name in site()["error_pages"]())])


def test_every_error_code_has_a_section_in_the_site() -> None:
    text = "\n".join(site()["error_pages"]().values())
    assert re.findall(r"^## (LS\d{4}): ", text, re.MULTILINE) == list(all_pages())


def test_text_of_the_repository_becomes_what_the_site_reads() -> None:
    made = site()["site_text"]
    page = Path("docs/benchmarks.md")
    assert made("```python raises\nx = [1](2)\n```", page, []) == "```python\nx = [1](2)\n```"
    assert made("So:\n- one\n- two\nand on", page, []) == "So:\n\n- one\n- two\nand on"
    assert made("| `a \\| b` | c \\| d |", page, []) == "| `a | b` | c \\| d |"
    # What is in the repository and not in the site is named; what is nowhere stays a link, for MkDocs to refuse.
    assert made("[results](../benchmarks/results), [no](no.md)", page, []) == "results, [no](no.md)"


def test_error_texts_keep_their_code_and_their_special_characters() -> None:
    text = site()["error_pages"]()["LS01.md"]
    assert "```text\nuser string, ok boolean, at timestamp, tags array<string>" in text
    assert "array\\<T\\>, map\\<K,V\\>" in text
