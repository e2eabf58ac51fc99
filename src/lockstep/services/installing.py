"""Getting what a service needs: jars into the cache, packages onto the machine (only when asked for)."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from lockstep.errors import EnvironmentError_
from lockstep.machine import s3a_folder
from lockstep.services.descriptions import Kind, fetched_pom, s3a_pom
from lockstep.services.finding import Missing, available, fetched_jars

Say = Callable[[str], None]

FETCH_TIMEOUT_S = 900.0
INSTALL_TIMEOUT_S = 900.0
_COPY_JARS = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_PACKAGES: dict[Kind, tuple[str, ...]] = {
    "kafka": ("maven",),
    "zookeeper": (),
    "postgres": ("postgresql",),
    "spark": (),
    "hdfs": ("maven",),
}


def fetch_service(kind: Kind, say: Say) -> None:
    """Have Maven's client copy the jars of a service into the cache, unless they are there."""
    size = "65 MB" if kind == "hdfs" else "44 MB"
    begun = f"{kind}: fetching its jars with mvn ({size}, about a minute, once)"
    fetch_jars(fetched_jars(kind), fetched_pom(kind), kind, lambda: say(begun))


def fetch_ahead(kind: Kind, say: Say) -> None:
    """Fetch what a service needs, if it can be had here: a host in a network of its own could not."""
    found = available(kind)
    if not isinstance(found, Missing) and found.fetch:
        fetch_service(kind, say)


def fetch_s3a(say: Say) -> None:
    """Have Maven's client copy Spark's client for S3 to where replicas look for it, unless it is there. LS0022."""
    begun = "s3a: fetching Spark's client for S3 with mvn (14 MB, once)"
    fetch_jars(s3a_folder(), s3a_pom(), "Spark's client for S3", lambda: say(begun))
    say("s3a: replicas with checkpoints at an s3a: address find it")


def fetch_jars(jars: Path, pom: str, what: str, begun: Callable[[], object]) -> None:
    """Have Maven's client copy what ``pom`` asks for into a folder, unless it is there.

    One process does it, others wait. ``begun`` is called if there is something to fetch.
    """
    jars.parent.mkdir(parents=True, exist_ok=True)
    with (jars.parent / f"{jars.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if jars.is_dir():
            return
        begun()
        with tempfile.TemporaryDirectory(dir=jars.parent, prefix=f"{jars.name}-") as scratch:
            asked, fresh = Path(scratch, "pom.xml"), Path(scratch, "jars")
            asked.write_text(pom, encoding="utf-8")
            scope = ("-DincludeScope=runtime", f"-DoutputDirectory={fresh}")
            _run(("mvn", "-B", "-q", "-f", str(asked), _COPY_JARS, *scope), FETCH_TIMEOUT_S, what)
            fresh.rename(jars)


def install(kind: Kind, say: Say) -> None:
    """Get what is missing for a service: system packages as root with apt-get, else from PyPI, and Kafka's jars."""
    found = available(kind)
    if isinstance(found, Missing):
        _install_packages(kind, found, say)
        found = available(kind)
    if isinstance(found, Missing):
        raise EnvironmentError_("LS0022", f"{kind} cannot be had here", why=f"{found.why}.", hint=f"{found.hint}.")
    if found.fetch:
        fetch_service(kind, say)
    say(f"{kind}: ready to be started")


def _install_packages(kind: Kind, found: Missing, say: Say) -> None:
    packages = _PACKAGES[kind]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        say(f"{kind}: installing {' '.join(packages)} with apt-get")
        quiet = ("apt-get", "install", "-y", "-qq", "--no-install-recommends", "--no-upgrade", *packages)
        _run(("apt-get", "update", "-qq"), INSTALL_TIMEOUT_S, kind)
        _run(quiet, INSTALL_TIMEOUT_S, kind)
    elif kind == "postgres":
        say("postgres: installing pgserver with pip")
        _run((sys.executable, "-m", "pip", "install", "--quiet", "pgserver"), INSTALL_TIMEOUT_S, kind)
    else:
        raise EnvironmentError_(
            "LS0022", f"{kind} cannot be installed by this user", why=f"{found.why}.", hint=f"{found.hint}."
        )


def _run(command: tuple[str, ...], timeout_s: float, what: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=environment, check=False)
        said = "" if done.returncode == 0 else (done.stdout + done.stderr)[-1500:].strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        said = str(error)
    if said:
        raise EnvironmentError_(
            "LS0022",
            f"{what} could not be fetched",
            why=f"`{command[0]}` says: {said}",
            hint="mend that and try again; nothing was left half done.",
        )
