"""Another environment for a job that runs: a Python with its packages, or a Java. It is asked what it is first."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lockstep.config import EnvironmentSettings
from lockstep.errors import ServiceError
from lockstep.machine import JAVA_VERSION_MIN, java_at
from lockstep.runtime.desired_run import DesiredRun
from lockstep.runtime.process_environment import process_environment

PROBE_TIMEOUT_S = 60.0
"""Loading PySpark and Lockstep takes two seconds, on a busy machine many more."""
_PROBE = "import pyspark, pyarrow, lockstep.runtime.spec"


def with_environment(before: DesiredRun, python: str = "", java: str = "") -> DesiredRun:
    """The job in another environment. What is not named stays as it is. LS0748 if replicas could not start in it."""
    for what, path, inside in (("python", python, ""), ("java", java, "bin/java")):
        if path and not (Path(path).is_absolute() and (Path(path) / inside).exists()):
            raise _refused(
                f"there is no {what} at {path}",
                "an environment is named by the absolute path of its python, or of Java's home, on every host.",
            )
    if java:
        _check_java(Path(java))
    if python:
        _check_python(python)
    named = {**({"python": python} if python else {}), **({"java": java} if java else {})}
    return replace(before, environment={**before.environment, **named})


def named_environment(known: Mapping[str, EnvironmentSettings], name: str) -> EnvironmentSettings:
    """An environment of lockstep.toml. LS0748 if there is none of that name."""
    if (found := known.get(name)) is None:
        raise ServiceError(
            "LS0748",
            f'there is no environment "{name}"',
            why=f"lockstep.toml names {', '.join(sorted(known)) or 'none'}.",
            hint=f'add a table [environments.{name}] with python = "/srv/next/bin/python", or java = HOME.',
        )
    return found


def _check_java(home: Path) -> None:
    found = java_at(home)
    if found is None or found.version < JAVA_VERSION_MIN:
        said = "it does not answer `java -version`" if found is None else f"it is Java {found.version}"
        raise _refused(f"no replica can run on the Java at {home}", f"{said}; Spark needs {JAVA_VERSION_MIN} or newer.")


def _check_python(python: str) -> None:
    """Have it load what a replica loads: one that cannot would be started again and again until it is given up."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            env={**process_environment(), "PYSPARK_PYTHON": python},
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(f"no replica can run with {python}", f"it does not run: {error}.") from None
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"it ended with exit code {done.returncode}"])[-1]
        raise _refused(f"no replica can run with {python}", f"{said[:500]}.")


def _refused(fact: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0748",
        fact,
        why=why,
        hint="python -m venv /srv/next && /srv/next/bin/pip install lockstep; then --environment /srv/next/bin/python.",
    )
