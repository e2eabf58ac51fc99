"""A class archive for Spark's JVM, so that a replica boots in half the time.

Spark loads about fifteen thousand classes before its first micro-batch; Java can keep them, parsed and verified, in a
file (application class-data sharing). It is made once per machine, by ``make setup`` or ``lockstep doctor --fix``; a
JVM that the file does not fit ignores it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pyspark

from lockstep.errors import EnvironmentError_
from lockstep.machine import cache_folder, find_java

BUILD_TIMEOUT_S = 300.0
ARCHIVES_KEPT = 4
"""One per environment and Java; each has 170 MB, and environments come and go."""
EDITION = 2
"""Raised whenever jobs load other classes than before: an archive of an earlier edition is not used."""
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def archive_path() -> Path:
    """Where the archive of this machine's Java and Spark is, whether it exists or not."""
    java = find_java()
    identity = f"{java.home}|{(java.home / 'release').stat().st_mtime_ns if (java.home / 'release').exists() else ''}"
    key = hashlib.sha256(f"{identity}|{Path(pyspark.__file__).parent}|{EDITION}".encode()).hexdigest()[:12]
    return cache_folder() / f"spark-{pyspark.__version__}-java{java.version}-{key}.jsa"


def archive_options() -> str:
    """What to tell the JVM: use the archive if there is one."""
    path = archive_path()
    return f"-XX:SharedArchiveFile={path} -Xshare:auto {_QUIET}" if path.exists() and " " not in str(path) else _QUIET


def build_archive() -> Path:
    """Make the archive unless it is there: boot Spark once, run a small stateful stream, keep what was loaded."""
    path = archive_path()
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-archive-") as scratch:
        made = Path(scratch) / "classes.jsa"
        answer = subprocess.run(
            [sys.executable, "-m", "lockstep.runtime.spark.rehearsal", str(made)],
            cwd=scratch,
            capture_output=True,
            text=True,
            timeout=BUILD_TIMEOUT_S,
            check=False,
        )
        if answer.returncode != 0 or not made.exists():
            raise EnvironmentError_(
                "LS0012",
                "the class archive could not be made",
                why=(answer.stderr.strip().splitlines() or ["no reason was given"])[-1],
                hint="jobs run without it, they only start more slowly; `lockstep doctor` looks at the machine.",
            )
        # Replacing is atomic: two processes that build at once both end with a whole file.
        target = path.with_suffix(f".{os.getpid()}.new")
        target.write_bytes(made.read_bytes())
        target.replace(path)
    older = sorted(path.parent.glob("spark-*.jsa"), key=lambda one: one.stat().st_mtime)[:-ARCHIVES_KEPT]
    for one in older:
        one.unlink(missing_ok=True)
    return path
