"""What people install: the wheel in an environment of its own, with the packages it asks for and no others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILT_FROM = ("pyproject.toml", "README.md", "LICENSE", "src/lockstep")
TIMEOUT_S = 600.0
"""Seconds are enough, but machines that run tests can be very busy."""
ALLOWED = "TEST_ALLOWS_PYTEST"

_HIDE = '''\
"""Packages that are only there for development are not there for the wheel; pytest is, for those who ask for it."""
import os
from importlib.machinery import PathFinder

HIDDEN = frozenset({hidden!r})
find_spec = PathFinder.find_spec


def find_visible_spec(name, path=None, target=None):
    return None if name.partition(".")[0] in HIDDEN else find_spec(name, path, target)


if not os.environ.get({allowed!r}):
    PathFinder.find_spec = find_visible_spec
'''


class WheelEnvironment:
    """A virtual environment in ``folder`` with the wheel of this source tree in it."""

    def __init__(self, folder: Path) -> None:
        self.python = folder / "environment" / "bin" / "python"
        self.wheel = _built(folder)
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "environment")], folder)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "install", "--no-deps", "--no-index"]
        _run([*pip, "--quiet", str(self.wheel)], folder)
        self.site = next((folder / "environment" / "lib").glob("python3.*/site-packages"))
        # The dependencies are those of this environment: a second copy of Spark takes minutes and proves nothing.
        # Path files of a folder that is added in this way are not read: the editable install of lockstep is not seen.
        (self.site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\nimport only_dependencies\n")
        (self.site / "only_dependencies.py").write_text(_HIDE.format(hidden=_only_for_development(), allowed=ALLOWED))

    def run(self, *arguments: str, folder: Path, **environment: str) -> str:
        """What ``python ARGUMENTS`` printed in ``folder``; it has to end well."""
        inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        return _run([str(self.python), *arguments], folder, {**inherited, **environment})

    def lockstep(self, *arguments: str, folder: Path) -> str:
        """What the installed command printed."""
        return self.run(str(self.python.with_name("lockstep")), *arguments, folder=folder)


def _built(folder: Path) -> Path:
    """The wheel, built from a copy: setuptools leaves files beside what it builds, and takes up what lies there."""
    source = folder / "source"
    for name in BUILT_FROM:
        target = source / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    _run([*pip, "--wheel-dir", str(folder / "wheels"), str(source)], folder)
    shutil.rmtree(source)
    (wheel,) = (folder / "wheels").glob("lockstep-*.whl")
    return wheel


def _only_for_development() -> list[str]:
    """The modules of all packages that are pinned for development alone."""
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.txt").read_text(), re.MULTILINE)
    names = {_plain(name) for name in pinned}
    return sorted(
        module
        for module, packages in packages_distributions().items()
        if packages and {_plain(package) for package in packages} <= names
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout
