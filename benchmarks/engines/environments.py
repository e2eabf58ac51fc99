"""Where the other engines live: an environment of its own for each, because what they require excludes each other.

``python -m benchmarks install flink bytewax pathway`` (or ``make bench-engines``) makes them from the pins in
``benchmarks/programs/NAME.txt``. They are below ``benchmarks/.environments``, or where
``LOCKSTEP_ENGINES`` says.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.errors import BenchmarkError

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
"""The programs as users of those engines write them, and their pins."""
FOREIGN = ("flink", "bytewax", "pathway")
_PACKAGES = {"flink": "apache-flink", "bytewax": "bytewax", "pathway": "pathway"}
_ASK_TIMEOUT_S = 60


def home() -> Path:
    """The folder of all environments."""
    return Path(os.environ.get("LOCKSTEP_ENGINES") or PROGRAMS.parent / ".environments")


def python_of(engine: str) -> Path:
    """The Python of an engine's environment, whether it is there or not."""
    return home() / engine / "bin" / "python"


def missing_environment(engine: str) -> str | None:
    """Why an engine's programs cannot run, None if they can."""
    if not PROGRAMS.is_dir():
        return f"its programs are in the source tree ({PROGRAMS} is not there)"
    if not python_of(engine).exists():
        return f"not installed; run: python -m benchmarks install {engine}"
    return None


def version_of(engine: str) -> str:
    """The installed version of an engine."""
    code = f"import importlib.metadata as m; print(m.version('{_PACKAGES[engine]}'))"
    done = subprocess.run(
        [str(python_of(engine)), "-c", code], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S, check=False
    )
    return done.stdout.strip() or "unknown"


def install(engines: Sequence[str], say: Callable[[str], None]) -> None:
    """Make the environments of these engines, BM02 if one cannot be made; what is there already is made again."""
    unknown = [engine for engine in engines if engine not in FOREIGN]
    if unknown:
        raise BenchmarkError(
            "BM02",
            f"there is no engine {', '.join(unknown)} to install",
            hint=f"those that can be installed are {', '.join(FOREIGN)}.",
        )
    for engine in engines:
        say(f"{engine}: making {home() / engine}")
        _run(engine, [sys.executable, "-m", "venv", "--clear", str(home() / engine)])
        pins = str(PROGRAMS / f"{engine}.txt")
        _run(engine, [str(python_of(engine)), "-m", "pip", "install", "--quiet", "--no-deps", "-r", pins])
        say(f"{engine}: {version_of(engine)} is ready")


def _run(engine: str, arguments: list[str]) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchmarkError(
            "BM02",
            f"{engine} could not be installed",
            why=(done.stderr or done.stdout).strip()[-2000:],
            hint="the benchmarks run without it and say that it is missing.",
        )
