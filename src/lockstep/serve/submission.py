"""A job on its way into the service: its code as a zip file, and the process that orders its run.

The code is the user's, and running it is what they ask for; but it is run in a process of its own, never inside the
service. What is unpacked stays below one temporary folder, whatever names the zip file has.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from lockstep.agent.processes import kill_tree
from lockstep.errors import ServiceError
from lockstep.errors.tree import from_wire
from lockstep.runtime.process_environment import process_environment
from lockstep.store.names import checked_name

if TYPE_CHECKING:
    from lockstep.api.loading import LoadedJob

FILES_MAX = 2_000
UNPACKED_BYTES_MAX = 128 * 2**20
ORDER_TIMEOUT_S = 180.0
"""Loading a job's file, PySpark included, takes seconds; handing it over to hosts some more."""
_PATH = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_.-]*/)*[A-Za-z0-9_][A-Za-z0-9_.-]*")
_JOB_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\.py")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SAID_CHARACTERS = 2_000


@dataclass(frozen=True)
class Submission:
    """What is submitted: a bundle, where the job is in it, and settings over those of the project and of the job."""

    bundle: bytes
    sha256: str
    file: str
    variable: str = ""
    run: Mapping[str, Any] = field(default_factory=dict)
    spark: Mapping[str, Any] = field(default_factory=dict)
    savepoint: str = ""
    """From which one (JOB/NAME) a job that is new goes on; never a path."""


def from_file(
    job_file: str | Path,
    *,
    replicas: int | None = None,
    master: str = "",
    settings: Mapping[str, Any] | None = None,
    spark_conf: Mapping[str, str] | None = None,
    savepoint: str = "",
) -> Submission:
    """The submission of a job in a file of this host (``job.py``, or ``job.py:variable``)."""
    from lockstep.api.loading import load_job

    loaded = load_job(str(job_file))
    bundle = packed(loaded)
    run = {**(settings or {}), **({} if replicas is None else {"replicas": replicas})}
    spark = {"conf": dict(spark_conf or {}), **({"master": master} if master else {})}
    sha256 = hashlib.sha256(bundle).hexdigest()
    return Submission(bundle, sha256, loaded.path.name, loaded.variable, run, spark, savepoint)


def packed(loaded: LoadedJob) -> bytes:
    """The code of a job as a bundle: its file, and the modules that it imports from its folder."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for name, content in loaded.modules:
            # One time for all files: equal code makes equal bundles.
            bundle.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def order(submission: Submission, project: Path) -> str:
    """Have the job ordered; its name. LS0773 if the bundle is none, LS0774 if nothing came of it, or what it met."""
    return _ordered_code(submission, project)["job"]


def upgrade(submission: Submission, project: Path, asked: Mapping[str, Any]) -> int:
    """Have a running job go on with this code; the number of the operation. Errors as in :func:`order`."""
    return int(_ordered_code(submission, project, asked)["operation"])


def _ordered_code(submission: Submission, project: Path, upgrade: Mapping[str, Any] | None = None) -> dict[str, str]:
    _check(submission)
    with tempfile.TemporaryDirectory(prefix="lockstep-submitted-") as name:
        folder = Path(name)
        _unpack(submission.bundle, folder / "code")
        file = folder / "code" / submission.file
        if not file.is_file():
            raise _refused(f"it has no file {submission.file}")
        variable = f":{submission.variable}" if submission.variable else ""
        asked = {
            "job_file": f"{file}{variable}",
            "project": str(project),
            "run": dict(submission.run),
            "spark": dict(submission.spark),
            "savepoint": submission.savepoint,
            **({} if upgrade is None else {"upgrade": dict(upgrade)}),
        }
        return _ordered(asked, project, folder)


def _check(submission: Submission) -> None:
    if hashlib.sha256(submission.bundle).hexdigest() != submission.sha256.lower():
        raise _refused("its sha256 is another than was announced: it was changed on the way")
    if not _JOB_FILE.fullmatch(submission.file):
        raise _refused(f"{submission.file[:100]!r} is not the name of a Python file in its top folder")
    if submission.variable and not _VARIABLE.fullmatch(submission.variable):
        raise _refused(f"{submission.variable[:100]!r} is not the name of a variable")
    if submission.savepoint:
        job, _, name = submission.savepoint.partition("/")
        checked_name("job", job)
        checked_name("savepoint", name)


def _unpack(bundle: bytes, folder: Path) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as opened:
            entries = [one for one in opened.infolist() if not one.is_dir()]
            if len(entries) > FILES_MAX or sum(one.file_size for one in entries) > UNPACKED_BYTES_MAX:
                raise _refused(f"it unpacks to more than {FILES_MAX:,} files or {UNPACKED_BYTES_MAX:,} bytes")
            for one in entries:
                _write(folder, one.filename, opened.read(one))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError, OSError) as error:
        raise _refused(f"it cannot be unpacked: {type(error).__name__}: {error}") from None


def _write(folder: Path, name: str, content: bytes) -> None:
    if not _PATH.fullmatch(name) or ".." in PurePosixPath(name).parts:
        raise _refused(f"it has a file {name[:100]!r}")
    target = folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)


def _ordered(asked: Mapping[str, Any], project: Path, folder: Path) -> dict[str, str]:
    result, log = folder / "result.json", folder / "log.txt"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.control.start.ordering", str(result)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            cwd=project,
            env=process_environment(),
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(asked).encode(), ORDER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            process.wait()
            raise _nothing(f"it took longer than {ORDER_TIMEOUT_S:.0f} s", log) from None
    if not result.exists():
        raise _nothing(f"its process ended with exit code {process.returncode}", log)
    said_back: dict[str, str] = json.loads(result.read_text(encoding="utf-8"))
    if "job" in said_back:
        return said_back
    raise from_wire(said_back["error"]) or _nothing(said_back["error"], log)


def _refused(why: str) -> ServiceError:
    return ServiceError(
        "LS0773",
        "the bundle was not taken",
        why=f"{why}.",
        hint="`lockstep submit job.py --service URL` makes and sends one; docs/guide/service.md says what it has.",
    )


def _nothing(why: str, log: Path) -> ServiceError:
    tail = log.read_text(encoding="utf-8", errors="replace")[-_SAID_CHARACTERS:]
    return ServiceError(
        "LS0774",
        "the job could not be loaded",
        why=f"{why}.\n{tail}".rstrip(),
        hint="`lockstep plan job.py` shows whether the file can be loaded; a job's file only describes the job.",
    )
