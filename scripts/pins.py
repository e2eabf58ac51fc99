"""Writes requirements.txt and requirements-dev.txt from what is installed in .venv: exact pins, all the way down.

Run it (`make pins`) after installing a new version by hand; the diff shows what moved.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
BUILD = ("setuptools",)
"""Installs the project itself, without fetching an unpinned builder each time."""


def main() -> int:
    """Write both files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime = _closure([*project["dependencies"], *BUILD])
    extras = [text for extra in project["optional-dependencies"].values() for text in extra]
    # "all" names the project itself, whose other extras are here already.
    dev = _closure([text for text in extras if Requirement(text).name != project["name"]])
    only_dev = {name: version for name, version in dev.items() if name not in runtime}
    _write("requirements.txt", "what `lockstep` needs to run", [], runtime)
    _write("requirements-dev.txt", "what its tests and checks need besides", ["-r requirements.txt"], only_dev)
    return 0


def _closure(wanted: Iterable[str]) -> dict[str, str]:
    """Every package that ``wanted`` leads to, with the version that is installed."""
    pins: dict[str, str] = {}
    open_requirements = [Requirement(text) for text in wanted]
    while open_requirements:
        requirement = open_requirements.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in pins:
            continue
        try:
            found = distribution(requirement.name)
        except PackageNotFoundError:
            sys.exit(f"{requirement.name} is not installed in .venv: install it first.")
        pins[name] = found.version
        open_requirements += [r for r in map(Requirement, found.requires or []) if _applies(r, requirement.extras)]
    return dict(sorted(pins.items()))


def _applies(requirement: Requirement, extras: Iterable[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras))


def _write(name: str, purpose: str, first: list[str], pins: dict[str, str]) -> None:
    lines = [f"# {purpose}; written by `make pins`", *first, *(f"{package}=={pin}" for package, pin in pins.items())]
    (ROOT / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
