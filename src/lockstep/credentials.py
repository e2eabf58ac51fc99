"""Secrets in settings: recognised by their keys, readable by their owner alone, kept out of all that people read.

Light on purpose: whatever is imported here delays the JVM of a replica (``runtime/start.py``).
"""

from __future__ import annotations

import io
import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TextIO

SECRET_KEYS = (
    "(?i)secret|password|passwd|passphrase|token|credential|"  # noqa: S105 - the word, not one
    "(access|account|api|private|shared|storage|encryption).?key|"
    r"fs\.azure\.sas\.|sasl\.jaas\.config|ssl\.key\.pem"
)
"""What the key of a secret looks like; a regular expression that Java reads in the same way."""
REDACTED = "*********(redacted)"
"""What Spark writes, too."""
_HIDDEN_LENGTH_MIN = 6
"""Shorter values ("true" of `...token.enabled`) are words of their own in other texts: there they are not hidden."""

_secret_key = re.compile(SECRET_KEYS)
_password_inside = re.compile(r"""password\s*=\s*["']([^"']+)""", re.IGNORECASE)
"""In a login's configuration (JAAS): what complains about it may name the password alone."""
_hidden: set[str] = set()
"""The values that this process knows and tells nobody."""


def is_secret(key: str) -> bool:
    """Whether a setting of this name is a secret.

    >>> is_secret("sasl.password"), is_secret("security.protocol")
    (True, False)
    """
    return _secret_key.search(key) is not None


def redacted(conf: Mapping[str, str]) -> dict[str, str]:
    """Settings as they may be shown.

    >>> redacted({"spark.hadoop.fs.s3a.secret.key": "hunter2", "spark.sql.shuffle.partitions": "2"})
    {'spark.hadoop.fs.s3a.secret.key': '*********(redacted)', 'spark.sql.shuffle.partitions': '2'}
    """
    return {key: REDACTED if _secret_key.search(key) else value for key, value in conf.items()}


def hide_secrets(conf: Mapping[str, str]) -> None:
    """From now on the values of secrets among these settings are in no text that this process lets out."""
    values = [value for key, value in conf.items() if _secret_key.search(key)]
    values += [inside for value in values for inside in _password_inside.findall(value)]
    _hidden.update(value for value in values if len(value) >= _HIDDEN_LENGTH_MIN)


def without_secrets(text: str) -> str:
    """A text without the values that were hidden.

    >>> hide_secrets({"spark.example.password": "open sesame"})
    >>> without_secrets("cannot log in with open sesame")
    'cannot log in with *********(redacted)'
    >>> _hidden.discard("open sesame")
    """
    for value in sorted(_hidden, key=len, reverse=True):
        text = text.replace(value, REDACTED)
    return text


def knows_secrets() -> bool:
    """Whether there is anything to hide."""
    return bool(_hidden)


def write_private(path: Path, text: str) -> None:
    """Write a file that its owner alone can read, from the first byte on."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


class RedactedStream(io.TextIOBase):
    """A text stream in front of another one that lets no secret through."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Pass on what may be seen."""
        self._stream.write(without_secrets(text))
        return len(text)

    def flush(self) -> None:
        """Pass it on now."""
        self._stream.flush()

    def fileno(self) -> int:
        """The file behind it."""
        return self._stream.fileno()


def relay(lines: IO[bytes], to: int) -> threading.Thread:
    """Copy another process's output, line by line and without secrets, to an open file, until it ends."""

    def copy() -> None:
        with lines:
            for line in lines:
                # A full disk loses the line, but is no end: a process whose output nobody takes stands still.
                with suppress(OSError):
                    os.write(to, without_secrets(line.decode(errors="replace")).encode())

    thread = threading.Thread(target=copy, name="redacted-output", daemon=True)
    thread.start()
    return thread
