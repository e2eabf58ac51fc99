"""`lockstep doctor`: whether this machine can run jobs, and what to do where it cannot."""

from __future__ import annotations

import locale
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.text import Text

from lockstep.cli.output import out, print_json
from lockstep.cli.project import Project, project_of
from lockstep.errors import LockstepError
from lockstep.machine import JAVA_VERSION_MIN, find_java

Verdict = Literal["ok", "warn", "fail"]
_STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "bold red"}

PYSPARK_VERSION = "4.3.0"
DISK_FREE_FAIL_BYTES = 200 * 2**20
"""Below this a checkpoint or a shuffle of a small job may not fit."""
DISK_FREE_WARN_BYTES = 2 * 2**30
MEMORY_PER_REPLICA_BYTES = 1536 * 2**20
"""A replica's JVM with its default heap of 1 GB, and its Python processes."""


@dataclass(frozen=True)
class Finding:
    """What one look at the machine showed."""

    subject: str
    verdict: Verdict
    fact: str
    hint: str = ""


def doctor(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Make the class archive if it is missing (45 s, once).")] = False,
) -> None:
    """Look at the machine and the project folder: can jobs run here, and if not, what to do.

    Exit code 0 if nothing failed, 1 otherwise. Starts no Spark.

    [bold]Examples[/bold]

      lockstep doctor

      lockstep --project /srv/alerts doctor --json
    """
    if fix:
        from lockstep.runtime.spark.archive import build_archive

        build_archive()
    findings = examine(project_of(context))
    failed = any(finding.verdict == "fail" for finding in findings)
    if as_json:
        print_json({"ok": not failed, "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _show(finding)
    raise typer.Exit(1 if failed else 0)


def examine(project: Project) -> list[Finding]:
    """All findings, in the order in which someone would mend them."""
    looks: list[Callable[[], Finding]] = [
        _python,
        _java,
        _pyspark,
        _archive,
        _memory,
        lambda: _disk(project),
        lambda: _sqlite(project),
        lambda: _settings(project),
        lambda: _jobs(project),
        _loopback,
        _host_name,
        _locale,
    ]
    return [look() for look in looks]


def _show(finding: Finding) -> None:
    line = Text.assemble(
        (f"{finding.verdict:<5}", _STYLES[finding.verdict]), (f"{finding.subject:<11}", "bold"), finding.fact
    )
    out.print(line, soft_wrap=True)
    if finding.hint:
        out.print(Text(f"{'':<16}try: {finding.hint}"), soft_wrap=True)


def _python() -> Finding:
    return Finding("Python", "ok", f"{sys.version.split()[0]} at {sys.executable}")


def _java() -> Finding:
    try:
        java = find_java()
    except LockstepError as error:
        return Finding("Java", "fail", f"{error.fact}: {error.why}", error.hint)
    how = "JAVA_HOME" if java.found_by == "JAVA_HOME" else f"found by {java.found_by}; JAVA_HOME is not set"
    return Finding("Java", "ok", f"{java.version} at {java.home} ({how}; {JAVA_VERSION_MIN} or newer is needed)")


def _pyspark() -> Finding:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Finding("PySpark", "fail", "not installed", f"pip install pyspark=={PYSPARK_VERSION}")
    if found != PYSPARK_VERSION:
        return Finding(
            "PySpark",
            "warn",
            f"{found}; Lockstep is tested with {PYSPARK_VERSION}",
            f"pip install pyspark=={PYSPARK_VERSION}",
        )
    return Finding("PySpark", "ok", found)


def _archive() -> Finding:
    from lockstep.runtime.spark.archive import archive_path

    try:
        path = archive_path()
    except LockstepError:
        return Finding("boot", "warn", "without Java there is no class archive either")
    if path.exists():
        return Finding("boot", "ok", f"class archive at {path}: replicas boot fast")
    return Finding("boot", "warn", "no class archive: replicas take twice as long to boot", "lockstep doctor --fix")


def _memory() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    fact = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GB free, {psutil.cpu_count()} cores"
    if memory.available < 2 * MEMORY_PER_REPLICA_BYTES:
        return Finding("memory", "warn", fact, "two replicas want about 3 GB; set driver_memory under [spark] lower.")
    return Finding("memory", "ok", fact)


def _disk(project: Project) -> Finding:
    try:
        free = shutil.disk_usage(project.folder).free
    except OSError as error:
        return Finding("disk", "fail", f"{project.folder}: {error.strerror}", "name an existing folder with --project.")
    fact = f"{free / 2**30:.1f} GB free at {project.folder}"
    hint = "make room: checkpoints, journals and sinks grow there."
    if free < DISK_FREE_FAIL_BYTES:
        return Finding("disk", "fail", fact, hint)
    return Finding("disk", "warn", fact, hint) if free < DISK_FREE_WARN_BYTES else Finding("disk", "ok", fact)


def _sqlite(project: Project) -> Finding:
    """Whether the folder can hold a store: network file systems often lack what SQLite's write-ahead log needs."""
    try:
        with tempfile.TemporaryDirectory(dir=project.folder, prefix=".lockstep-doctor-") as folder:
            connection = sqlite3.connect(Path(folder) / "probe.db")
            try:
                mode = connection.execute("pragma journal_mode = wal").fetchone()[0]
                connection.execute("create table probe (x)")
                connection.commit()
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        return Finding("SQLite", "fail", f"a store cannot be made in {project.folder}: {error}", "use a local folder.")
    if mode != "wal":
        return Finding("SQLite", "fail", f"{project.folder} does not allow write-ahead logs", "use a local folder.")
    return Finding("SQLite", "ok", f"{sqlite3.sqlite_version}, write-ahead log works in the project folder")


def _settings(project: Project) -> Finding:
    from lockstep.config import load_settings

    try:
        settings = load_settings(project.folder)
    except LockstepError as error:
        return Finding("settings", "fail", f"{error.fact}: {error.why}", error.hint)
    return Finding("settings", "ok", f"{settings.run.replicas} replicas by default, Spark on {settings.spark.master}")


def _jobs(project: Project) -> Finding:
    """Whether this version can read the stores of the jobs that are here."""
    job = ""
    try:
        jobs = project.jobs()
        for job in jobs:
            with project.open_store(job):
                pass
    except LockstepError as error:
        whose = f'job "{job}": ' if job else ""
        return Finding("store", "fail", f"{whose}{error.fact}. {error.why}", error.hint)
    return Finding("store", "ok", f"readable, jobs: {', '.join(jobs)}" if jobs else "no job has run here yet")


def _loopback() -> Finding:
    """Spark's driver, its workers and Python talk over 127.0.0.1."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            return Finding("loopback", "ok", "127.0.0.1 accepts connections")
    except OSError as error:
        return Finding("loopback", "fail", f"127.0.0.1 does not accept connections: {error}", "allow loopback traffic.")


def _host_name() -> Finding:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError:
        return Finding(
            "host name",
            "warn",
            f"{name} does not resolve; Java may pause on it",
            f"add it to /etc/hosts: 127.0.0.1 {name}",
        )
    return Finding("host name", "ok", f"{name} is {address}")


def _locale() -> Finding:
    encoding = locale.getpreferredencoding(do_setlocale=False)
    if encoding.lower().replace("-", "") != "utf8":
        return Finding(
            "locale", "warn", f"the encoding is {encoding}; output may show ? for letters", "export LC_ALL=C.UTF-8"
        )
    return Finding("locale", "ok", f"{encoding} (replicas pin their own)")
