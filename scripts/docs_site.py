"""Builds the documentation as a static site in build/site, from the Markdown that is in the repository: `make docs`.

The files keep their places, so that links between them hold here and there. What the site is built with
(requirements-docs.txt) has an environment of its own, made when it is missing: nobody else needs it.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lockstep.errors.page import Page, all_pages

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements-docs.txt"
THEME = ROOT / "scripts" / "docs_theme"
BUILD = ROOT / "build" / "docs"
SOURCE, ENVIRONMENT, CONFIG = BUILD / "source", BUILD / "env", BUILD / "mkdocs.yml"
SITE = ROOT / "build" / "site"
PLACES = ("*.md", "docs/**/*.md", "docs/images/*", "examples/*.md", "examples/*.py", "LICENSE")
"""What of the repository is in the site."""
AREAS = {
    "LS00": "the machine, the command line, the project folder",
    "LS01": "the plan of a job",
    "LS02": "expressions and SQL",
    "LS03": "Python functions",
    "LS04": "the store",
    "LS05": "sources and sinks",
    "LS06": "a running job",
    "LS07": "operations, savepoints, the service",
}
_FENCE = re.compile(r"^(\s*```\w*)[^`]*$")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"\s*([-*]|\d+\.) ")
_CODE = re.compile(r"(`+)(.+?)\1")


def main() -> int:
    """Build the site; the exit code of MkDocs, which fails at a link that leads nowhere."""
    gather()
    CONFIG.write_text(json.dumps(config(), indent=2), encoding="utf-8")
    if not _installed():
        return 1
    _write_colours()
    # Not --quiet: warnings that are not shown are not counted either, and --strict would let them pass.
    build = [str(ENVIRONMENT / "bin" / "mkdocs"), "build", "--strict", "--config-file", str(CONFIG)]
    code = subprocess.call(build)
    if code == 0:
        _write_search_index()
        sys.stdout.write(f"{SITE / 'index.html'}\n")
    return code


def gather() -> None:
    """Copy what is in the site into the folder that MkDocs reads."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    places = site_files()
    for place in places:
        target = SOURCE / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".md":
            text = (ROOT / place).read_text(encoding="utf-8")
            target.write_text(site_text(text, place, places), encoding="utf-8")
        else:
            shutil.copyfile(ROOT / place, target)
    for name, text in error_pages().items():
        (SOURCE / "errors").mkdir(exist_ok=True)
        (SOURCE / "errors" / name).write_text(text, encoding="utf-8")


def site_files() -> list[Path]:
    """The files of the repository that are in the site, as paths from its top."""
    found = {path.relative_to(ROOT) for pattern in PLACES for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(found)


def site_text(text: str, place: Path, places: Iterable[Path]) -> str:
    """The Markdown of the repository as Python's Markdown reads it.

    >>> print(site_text("Two:\\n- a\\n- b\\n\\n| `x \\\\| y` |\\n", Path("a.md"), []))
    Two:
    <BLANKLINE>
    - a
    - b
    <BLANKLINE>
    | `x | y` |
    <BLANKLINE>
    """
    known = {(ROOT / each).resolve() for each in places}
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        if fence := _FENCE.match(line):
            # Words after the language (`raises`, `no-run`) are for the tests.
            in_code = not in_code
            lines.append(fence[1])
            continue
        if not in_code:
            line = _LINK.sub(lambda found: _site_link(found, place, known), line)  # noqa: PLW2901
            if line.lstrip().startswith("|"):
                line = _CODE.sub(lambda found: found[0].replace("\\|", "|"), line)  # noqa: PLW2901
            if _ITEM.match(line) and lines and _begins_list(lines[-1]):
                lines.append("")
        lines.append(line)
    return "\n".join(lines)


def _begins_list(before: str) -> bool:
    """Whether an item after this line needs a blank line before it: it does after a paragraph."""
    return bool(before.strip()) and not _ITEM.match(before) and not before.startswith((" ", "#", "|"))


def _site_link(found: re.Match[str], place: Path, known: set[Path]) -> str:
    """A link as it is; only the words of one that leads to something of the repository that is not in the site."""
    image, words, target = found.groups()
    if image or ":" in target or target.startswith("#"):
        return found[0]
    led_to = (ROOT / place.parent / target.partition("#")[0]).resolve()
    return words if led_to.exists() and led_to not in known else found[0]


def error_pages() -> dict[str, str]:
    """A page for each area of codes, from what `lockstep explain` says."""
    made: dict[str, list[str]] = {}
    for code, page in all_pages().items():
        area = code[:4]
        made.setdefault(area, [f"# {area}xx: {AREAS[area]}", ""]).extend(_error_section(code, page))
    return {f"{area}.md": "\n".join(lines) + "\n" for area, lines in made.items()}


def _error_section(code: str, page: Page) -> list[str]:
    lines = [f"## {code}: {_escaped(page.title)}", ""]
    in_code = False
    for line in page.text.split("\n"):
        is_code = line.startswith("    ")
        if is_code != in_code and line.strip():
            lines += ["```", ""] if in_code else ["", "```text"]
            in_code = is_code
        lines.append(line[4:] if in_code else _escaped(line))
    return [*lines, *(["```"] if in_code else []), ""]


def _escaped(text: str) -> str:
    """A plain text as Markdown; what stands between back quotes stays code."""
    parts = text.split("`")
    return "`".join(
        part if number % 2 else re.sub(r"([\\*_<>\[\]#|])", r"\\\1", part) for number, part in enumerate(parts)
    )


def config() -> dict[str, Any]:
    """What MkDocs is told; JSON is YAML too."""
    return {
        "site_name": "Lockstep",
        "site_url": "",
        "docs_dir": str(SOURCE),
        "site_dir": str(SITE),
        "use_directory_urls": False,
        # Colours of code come with the page, not from a script that is fetched.
        "theme": {"name": "readthedocs", "custom_dir": str(THEME), "highlightjs": False},
        "extra_css": ["css/code.css", "css/site.css"],
        "plugins": ["search"],
        "markdown_extensions": ["tables", "fenced_code", "codehilite", {"toc": {"permalink": "#", "toc_depth": 3}}],
        "validation": dict.fromkeys(("omitted_files", "absolute_links", "unrecognized_links", "anchors"), "warn"),
        "nav": navigation(),
    }


def navigation() -> list[dict[str, Any]]:
    """The pages by subject; the glossary is near the top, in reach of every page."""
    return [
        {"Lockstep": "README.md"},
        {"Glossary": "docs/glossary.md"},
        {"Guide": _guide()},
        {"Coming from": "docs/coming-from.md"},
        {"Examples": "examples/README.md"},
        {"Reference": _pages("docs/reference", ["README.md", "functions.md", "settings.md", "rest.md", "testing.md"])},
        {"Errors": [f"errors/{name}" for name in error_pages()]},
        {"Benchmarks": "docs/benchmarks.md"},
        {"Architecture": "ARCHITECTURE.md"},
        {"Decisions": _pages("docs/decisions", [])},
        {"Contributing": "CONTRIBUTING.md"},
        {"Changes": "CHANGELOG.md"},
    ]


def _guide() -> list[str]:
    """The pages of the guide in the order of its index."""
    index = (ROOT / "docs" / "guide" / "README.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| \[[^\]]+\]\(([\w-]+\.md)\)", index, re.MULTILINE)
    return [f"docs/guide/{name}" for name in ("README.md", *named)]


def _pages(folder: str, first: list[str]) -> list[str]:
    names = sorted(path.name for path in (ROOT / folder).glob("*.md"))
    return [f"{folder}/{name}" for name in (*first, *(name for name in names if name not in first))]


def _installed() -> bool:
    """Make the environment ready, if it is not of these requirements."""
    stamp = ENVIRONMENT / ".requirements"
    wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return True
    shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in ([sys.executable, "-m", "venv", str(ENVIRONMENT)], [*pip, "-r", str(REQUIREMENTS)]):
        if subprocess.call(command) != 0:
            return False
    stamp.write_text(wanted, encoding="utf-8")
    return True


def _write_colours() -> None:
    """The colours of code, as Pygments has them."""
    ask = [str(ENVIRONMENT / "bin" / "python"), "-m", "pygments", "-S", "friendly", "-f", "html", "-a", ".codehilite"]
    colours = subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    (SOURCE / "css").mkdir(exist_ok=True)
    (SOURCE / "css" / "code.css").write_text(colours, encoding="utf-8")


def _write_search_index() -> None:
    """The index as a script: a page that is opened from a folder may not read any other kind of file."""
    sections = json.loads((SITE / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    (SITE / "search" / "search_index.js").write_text(f"SEARCH_INDEX = {json.dumps(sections)};\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
