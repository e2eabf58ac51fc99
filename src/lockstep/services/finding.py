"""What of the services can be had on this machine, and how to get the rest. Looks only; nothing is installed here."""

from __future__ import annotations

import os
import pwd
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from lockstep.errors import LockstepError
from lockstep.machine import HADOOP_VERSION, cache_folder, find_java
from lockstep.services.descriptions import KAFKA_VERSION, Kind, Tools, User

_DEBIAN_POSTGRES = Path("/usr/lib/postgresql")
_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True)
class Missing:
    """Why a service cannot be had here, and how to get it."""

    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.why}; to get it: {self.hint}"


@dataclass(frozen=True)
class Available:
    """A service that can be started, from what; ``fetch`` says that something is fetched first, once."""

    tools: Tools
    source: str
    fetch: bool = False


def available(kind: Kind, environment: Mapping[str, str] | None = None) -> Available | Missing:
    """What the machine has for a service."""
    known = os.environ if environment is None else environment
    if kind == "postgres":
        return _postgres(known)
    try:
        java = find_java(known).home / "bin" / "java"
    except LockstepError as error:
        return Missing(error.fact, error.hint)
    if kind == "kafka":
        return _kafka(java, known)
    if kind == "hdfs":
        return _hdfs(java, known)
    return _zookeeper(java) if kind == "zookeeper" else _spark(java)


def missing(kind: Kind) -> str | None:
    """Why a service cannot be had here and how to get it, None if it can: the reason to skip a test.

    >>> missing("zookeeper")
    """
    found = available(kind)
    return str(found) if isinstance(found, Missing) else None


def fetched_jars(kind: Kind, environment: Mapping[str, str] | None = None) -> Path:
    """The folder of the jars that Maven's client fetched for a service, or is to fetch."""
    version = HADOOP_VERSION if kind == "hdfs" else KAFKA_VERSION
    return cache_folder(environment) / f"{kind}-{version}"


def _spark_home() -> Path:
    spec = find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else Path()


def _spark(java: Path) -> Available | Missing:
    home = _spark_home()
    if not (home / "bin" / "spark-class").exists() or shutil.which("bash") is None:
        return Missing("there is no pyspark with its programs, or no bash to run them", "pip install pyspark==4.3.0")
    return Available(Tools(java, programs=home), "pyspark")


def _zookeeper(java: Path) -> Available | Missing:
    jars = _spark_home() / "jars"
    if not any(jars.glob("zookeeper-[0-9]*.jar")):
        return Missing("ZooKeeper is not among pyspark's jars", "pip install pyspark==4.3.0")
    return Available(Tools(java, f"{jars}/*"), "pyspark's jars")


def _kafka(java: Path, environment: Mapping[str, str]) -> Available | Missing:
    home = environment.get("KAFKA_HOME")
    if home:
        if any(Path(home).glob("libs/kafka_*.jar")):
            return Available(Tools(java, f"{home}/libs/*"), f"KAFKA_HOME ({home})")
        return Missing(f"KAFKA_HOME ({home}) has no libs/kafka_*.jar", "unset it, or let it name Kafka's folder")
    jars = fetched_jars("kafka", environment)
    tools = Tools(java, f"{jars}/*")
    return _fetched("kafka", tools, jars, "there is neither KAFKA_HOME nor", environment)


def _hdfs(java: Path, environment: Mapping[str, str]) -> Available | Missing:
    jars = fetched_jars("hdfs", environment)
    return _fetched("hdfs", Tools(java, f"{jars}/*:{_spark_home()}/jars/*"), jars, "there is no", environment)


def _fetched(kind: Kind, tools: Tools, jars: Path, neither: str, environment: Mapping[str, str]) -> Available | Missing:
    if jars.is_dir():
        return Available(tools, str(jars))
    if shutil.which("mvn", path=environment.get("PATH", os.defpath)) is None:
        return Missing(
            f"{neither} Maven's client (mvn) to fetch {kind} with",
            f"lockstep services install {kind} (Debian, Ubuntu: apt-get install maven)",
        )
    return Available(tools, f"{jars.name}, fetched once with mvn into {jars}", fetch=True)


def _postgres(environment: Mapping[str, str]) -> Available | Missing:
    try:
        user = _unprivileged()
    except KeyError:
        return Missing("Postgres does not run as root, and there is no user to run it as", "useradd postgres")
    for programs, source in _postgres_programs(environment):
        if (programs / "postgres").exists() and (programs / "initdb").exists():
            return Available(Tools(programs=programs, user=user), f"{source} ({programs})")
    return Missing(
        "there is no Postgres here",
        "lockstep services install postgres (Debian, Ubuntu: apt-get install postgresql; or pip install pgserver)",
    )


def _postgres_programs(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    found = []
    on_path = shutil.which("postgres", path=environment.get("PATH", os.defpath))
    if on_path:
        # Debian's wrappers and links stand elsewhere than what they start: initdb finds its files beside the real one.
        found.append((Path(on_path).resolve().parent, "PATH"))
    versions = [path for path in _DEBIAN_POSTGRES.glob("*/bin") if path.parent.name.isdigit()]
    found += [(path, "Debian") for path in sorted(versions, key=lambda path: -int(path.parent.name))]
    spec = find_spec("pgserver")
    if spec is not None and spec.origin:
        found.append((Path(spec.origin).parent / "pginstall" / "bin", "PyPI's pgserver"))
    return found


def _unprivileged() -> User | None:
    """Whom to run Postgres as; None for the user we are, KeyError if we are root and there is nobody else."""
    if os.geteuid() != 0:
        return None
    for name in _UNPRIVILEGED:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return User(entry.pw_uid, entry.pw_gid)
    raise KeyError(_UNPRIVILEGED)
