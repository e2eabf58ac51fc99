"""The code and the tables of a job on their way to a host: a zip file, and the hash of its bytes beside it. The state
that a job begins with goes the same way.

Folders of code and of tables are named after the hash of what is in them, so a bundle is known by their names: to ask
whether a host has it, nobody has to make it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote

from lockstep.errors import LockstepError, RunError
from lockstep.store.home import job_folder

if TYPE_CHECKING:
    from lockstep.runtime.transfer.serving import Answer

BUNDLE_BYTES_MAX = 2_000_000_000
FILES_MAX = 20_000
DIGEST_HEADER = "Lockstep-Digest"
FOLDER = "bundles"
"""In a job's folder: a file for each bundle that was unpacked here."""
_CHUNK_BYTES = 1 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}")
STATES = "states"
"""In a job's folder: state that came and was not put in place yet."""
_NAME = re.compile(rf"(code|tables|{STATES})/[0-9a-f]+/.+")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same for every file, as zip knows no earlier time: equal files make equal bundles."""


def pack(folder: Path, parts: Iterable[str], target: Path, prefix: str = "") -> str:
    """Put some folders of a job's folder (``code/HASH``, ``tables/HASH``) into one file; its digest.

    ``prefix`` is put before the names of files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     code = Path(name, "code", "ab", "job.py")
    ...     code.parent.mkdir(parents=True)
    ...     _ = code.write_text("job = 1")
    ...     one, other = (pack(Path(name), ["code/ab"], Path(name, zipped)) for zipped in ("1.zip", "2.zip"))
    >>> one == other
    True
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as bundle:
        for part in sorted(parts):
            for path in sorted(path for path in (folder / part).rglob("*") if _belongs(path)):
                info = zipfile.ZipInfo(f"{prefix}{path.relative_to(folder).as_posix()}", _EPOCH)
                info.compress_type = zipfile.ZIP_DEFLATED
                with path.open("rb") as source, bundle.open(info, "w") as packed:
                    shutil.copyfileobj(source, packed, _CHUNK_BYTES)
    with target.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def bundle_id(parts: Iterable[str]) -> str:
    """What a bundle of these folders is called.

    >>> bundle_id(["tables/9c", "code/ab"]) == bundle_id(["code/ab", "tables/9c"])
    True
    """
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()


def is_there(folder: Path, name: str) -> bool:
    """Whether a bundle has been unpacked into a job's folder."""
    return _DIGEST.fullmatch(name) is not None and (folder / FOLDER / name).exists()


def unpack(folder: Path, name: str, file: Path) -> None:
    """Put what a bundle has into a job's folder. What is there already stays: folders are named after their content."""
    with zipfile.ZipFile(file) as bundle:
        _check(bundle, name)
        new = folder / FOLDER / f"{name}.new"
        shutil.rmtree(new, ignore_errors=True)
        bundle.extractall(new)
        for part in [one for kind in sorted(new.iterdir()) for one in sorted(kind.iterdir())]:
            target = folder / part.relative_to(new)
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                part.rename(target)
        shutil.rmtree(new)
    (folder / FOLDER / name).touch()


def take(home: Path, method: str, path: str, headers: Mapping[str, str], body: IO[bytes]) -> Answer:
    """``PUT /bundles/JOB/NAME``: for a server to mount, which has seen the token."""
    from lockstep.runtime.transfer.serving import Answer

    words = path.split("/")
    given = {name.lower(): value for name, value in headers.items()}
    length, digest = given.get("content-length", ""), given.get(DIGEST_HEADER.lower(), "")
    if method != "PUT" or len(words) != 4 or not _DIGEST.fullmatch(words[3]) or not length.isdecimal():
        return Answer(400, {"Content-Length": "0", "Connection": "close"})
    try:
        _take(job_folder(home, unquote(words[2])), words[3], digest, int(length), body)
    except LockstepError as error:
        said = json.dumps({"error": error.to_wire()}).encode()
        return Answer(409, {"Content-Length": str(len(said)), "Connection": "close"}, _once(said))
    return Answer(200, {"Content-Length": "2", "Content-Type": "application/json"}, _once(b"{}"))


def _take(folder: Path, name: str, digest: str, length: int, body: IO[bytes]) -> None:
    if length > BUNDLE_BYTES_MAX:
        raise refused(f"it has {length:,} bytes; at most {BUNDLE_BYTES_MAX:,} are taken")
    (folder / FOLDER).mkdir(parents=True, exist_ok=True)
    file = folder / FOLDER / f"{name}.{os.urandom(4).hex()}.zip"
    try:
        seen = hashlib.sha256()
        with file.open("wb") as target:
            while length > 0 and (piece := body.read(min(length, _CHUNK_BYTES))):
                length -= len(piece)
                seen.update(piece)
                target.write(piece)
        if length or seen.hexdigest() != digest:
            raise refused("it is not whole")
        unpack(folder, name, file)
    except (OSError, zipfile.BadZipFile) as error:
        raise refused(f"{type(error).__name__}: {error}") from None
    finally:
        file.unlink(missing_ok=True)


def refused(why: str) -> RunError:
    """A bundle that is not taken."""
    return RunError("LS0684", "the job's code and tables were not taken", why=f"{why}.", hint="see the agent's log.")


def _check(bundle: zipfile.ZipFile, name: str) -> None:
    entries = bundle.infolist()
    if len(entries) > FILES_MAX or sum(one.file_size for one in entries) > BUNDLE_BYTES_MAX:
        raise refused(f"bundle {name[:16]} unpacks to too much")
    for one in entries:
        if not _NAME.fullmatch(one.filename) or ".." in PurePosixPath(one.filename).parts or one.is_dir():
            raise refused(f"it has a file {one.filename!r}, and only code, tables and state are taken")


def _belongs(path: Path) -> bool:
    return path.is_file() and not path.is_symlink() and path.suffix != ".pyc"


def _once(data: bytes) -> Generator[bytes]:
    yield data
