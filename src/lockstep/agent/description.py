"""What is written down about a job's agent on this host: where it listens, and the token that opens it."""

from __future__ import annotations

import json
import os
import secrets
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from lockstep.agent.contact import UNIX, Contact
from lockstep.credentials import write_private

FILE = "agent.json"
"""In the job's folder, for its owner alone."""
LOG = "agent.log"
PID_FILE = "agent.pid"
"""Beside it, for people and for chaos: whoever commands an agent does not need it."""
_PATH_BYTES_MAX = 100
"""A socket's path has 108 bytes on Linux and 104 elsewhere, the closing zero included."""


@dataclass(frozen=True)
class Description:
    """One agent: for the process itself, and for all that talk to it."""

    job: str
    folder: str
    """The job's, on this host."""
    socket: str
    token: str
    version: str
    """Of Lockstep: another version starts another agent."""
    orphan_timeout_s: float
    stop_timeout_s: float

    @property
    def contact(self) -> Contact:
        """For those that talk to it."""
        log = f"{self.folder}/{LOG}"
        return Contact(f"{UNIX}{self.socket}", self.token, log, instance=Path(self.socket).name)

    def write(self) -> None:
        """Put it where others find it, whole or not at all."""
        path = Path(self.folder) / FILE
        temporary = path.with_suffix(f".{os.getpid()}.new")
        write_private(temporary, json.dumps(asdict(self)))
        temporary.replace(path)

    def remove(self) -> None:
        """The agent has ended: nothing is left of it, unless another one has taken its place."""
        if read(Path(self.folder)) == self:
            (Path(self.folder) / FILE).unlink(missing_ok=True)
            (Path(self.folder) / PID_FILE).unlink(missing_ok=True)
        path = Path(self.socket)
        path.unlink(missing_ok=True)
        if path.parent != Path(self.folder):
            path.parent.rmdir()


def read(folder: Path) -> Description | None:
    """What is written in a job's folder; None if there is nothing, or nothing that this version understands."""
    try:
        return Description(**json.loads((folder / FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def new(job: str, folder: Path, version: str, orphan_timeout_s: float, stop_timeout_s: float) -> Description:
    """One with a token of its own, and a socket in the job's folder, or in a shorter one if that is too long."""
    # A name of its own: an agent that ends late must not take away the socket of the one after it.
    path = folder / f"agent-{secrets.token_hex(4)}.sock"
    if len(os.fsencode(path)) > _PATH_BYTES_MAX:
        path = Path(tempfile.mkdtemp(prefix="lockstep-")) / path.name
    token = secrets.token_urlsafe(32)
    return Description(job, str(folder), str(path), token, version, orphan_timeout_s, stop_timeout_s)
