"""The documentation holds together: links lead somewhere, every page is in the site, every error has its section."""

from __future__ import annotations

import inspect
import re
import runpy
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import lockstep
from lockstep import testing, typing
from lockstep.cli.main import app
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


def ours(page: Path) -> list[str]:
    """The code in the columns of a page's tables that are about Lockstep."""
    found: list[str] = []
    columns: list[int] = []
    for line in page.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            columns = []
        elif not columns:
            columns = [number for number, cell in enumerate(cells) if re.match(r"Lockstep|`ls\.", cell)]
        else:
            found += [code for number in columns for code in re.findall(r"`([^`]+)`", cells[number])]
    return found


def test_every_name_that_people_are_told_to_use_is_there() -> None:
    public = [getattr(package, name) for package in (lockstep, testing, typing) for name in package.__all__]
    members = {name for cls in public if inspect.isclass(cls) for name in dir(cls)}
    known = {
        r"\bls\.(\w+)": set(lockstep.__all__),
        r"\bF\.(\w+)": set(dir(lockstep.F)),
        r"\bctx\.(\w+)": set(dir(typing.ProcessContext)),
        r"\bcollector\.(\w+)": set(dir(typing.Collector)),
        r"\bjob\.(\w+)(?=\()": set(dir(lockstep.Job)),
        r"\bt\.(\w+)(?=\()": set(dir(lockstep.Topology)),
        r"\blockstep\.testing\.(\w+)": set(testing.__all__),
        r"^lockstep ([a-z-]+)": set(get_command(app).commands),  # type: ignore[attr-defined]
        r"(?:^|\))\.(\w+)": members,
    }
    codes = ours(ROOT / "docs" / "coming-from.md")
    assert len(codes) > 300
    for pattern, names in known.items():
        told = {name for code in codes for name in re.findall(pattern, code)}
        assert told, pattern
        assert told <= names, pattern
