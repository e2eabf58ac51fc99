"""What the machine offers: above all, a Java that Spark can run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lockstep.errors import EnvironmentError_

JAVA_VERSION_MIN = 17
"""Spark 4 is compiled for Java 17."""

HADOOP_VERSION = "3.5.0"
"""That of the client among PySpark's jars: whatever else of Hadoop is used with it has to have the same."""

_JVM_FOLDERS = ("/usr/lib/jvm", "/Library/Java/JavaVirtualMachines", "/opt/java")
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ASK_TIMEOUT_S = 20.0


@dataclass(frozen=True)
class Java:
    """One Java: its home (what ``JAVA_HOME`` should be), its major version, and how it was found."""

    home: Path
    version: int
    found_by: str


def find_java(environment: Mapping[str, str] | None = None) -> Java:
    """The Java to run Spark on: ``JAVA_HOME`` if set, else the one on the ``PATH``, else one where systems keep them.

    LS0001 if there is none, LS0002 if the one that was chosen is older than Java 17. A ``JAVA_HOME`` that is wrong is
    an error rather than passed over: Spark would use it.
    """
    environment = os.environ if environment is None else environment
    too_old: Java | None = None
    for home, found_by in _candidates(environment):
        java = _ask(home, found_by)
        if java is not None and java.version >= JAVA_VERSION_MIN:
            return java
        if found_by == "JAVA_HOME":
            raise _wrong_java_home(home, java)
        too_old = too_old or java
    raise _no_java() if too_old is None else _old_java(too_old)


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where what was fetched or made for this machine is kept for the next time."""
    known = os.environ if environment is None else environment
    return Path(known.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "lockstep"


def s3a_folder() -> Path:
    """Where Spark's client for S3 is, if it was fetched: PySpark has none."""
    return cache_folder() / f"s3a-{HADOOP_VERSION}"


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"]), "JAVA_HOME"
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path).resolve().parent.parent, "PATH"
    for folder in _JVM_FOLDERS:
        for home in sorted(Path(folder).glob("*"), reverse=True):
            yield (home / "Contents" / "Home" if (home / "Contents" / "Home").is_dir() else home), folder


def java_at(home: Path) -> Java | None:
    """The Java at this home, None if there is none that answers."""
    return _ask.__wrapped__(home, str(home))  # not what it answered once: it may have been replaced


@cache
def java_facts() -> tuple[str, str]:
    """What results may depend on in the Java that is used: its version, and the version of its time zones.

    Read from its files, without starting it. The version is the feature release ("17"): patches change no results.
    """
    home = next((home for home, _ in _candidates(os.environ) if (home / "bin" / "java").exists()), None)
    if home is None:
        return "", ""
    release = home / "release"
    said = release.read_text(encoding="utf-8") if release.exists() else ""
    version = re.search(r'^JAVA_VERSION="(\d+)', said, re.MULTILINE)
    zones = home / "lib" / "tzdb.dat"
    found = re.search(rb"\d{4}[a-z]", zones.read_bytes()[:64]) if zones.exists() else None
    return version[1] if version else "", found[0].decode() if found else ""


@cache
def _ask(home: Path, found_by: str) -> Java | None:
    """The Java at ``home``, or None if there is none that answers. Asked once: it takes a JVM to answer."""
    try:
        said = subprocess.run(
            [str(home / "bin" / "java"), "-version"],
            capture_output=True,
            text=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(said.stderr + said.stdout)
    return Java(home, int(match.group(1)), found_by) if match else None


_INSTALL = (
    "install a Java 17 or 21 runtime (Debian, Ubuntu: apt-get install openjdk-17-jre-headless), then `lockstep doctor`."
)


def _no_java() -> EnvironmentError_:
    return EnvironmentError_(
        "LS0001",
        "no Java was found",
        why=f"Spark runs on Java {JAVA_VERSION_MIN} or newer; neither JAVA_HOME nor the PATH leads to one.",
        hint=_INSTALL,
    )


def _old_java(java: Java) -> EnvironmentError_:
    return EnvironmentError_(
        "LS0002",
        f"Java {java.version} is too old",
        why=f"Spark needs Java {JAVA_VERSION_MIN} or newer; the one found by {java.found_by} is at {java.home}.",
        hint=_INSTALL,
    )


def _wrong_java_home(home: Path, java: Java | None) -> EnvironmentError_:
    if java is not None:
        return EnvironmentError_(
            "LS0002",
            f"JAVA_HOME leads to Java {java.version}, which is too old",
            why=f"Spark needs Java {JAVA_VERSION_MIN} or newer and uses JAVA_HOME ({home}) before anything else.",
            hint="unset JAVA_HOME, or let it name a newer Java.",
        )
    return EnvironmentError_(
        "LS0001",
        "JAVA_HOME leads to no Java",
        why=f"{home}/bin/java does not answer, and Spark uses JAVA_HOME before anything else.",
        hint="unset JAVA_HOME, or let it name the folder of a Java 17 or newer.",
    )
