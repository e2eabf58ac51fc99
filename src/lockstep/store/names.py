"""Names of jobs and journals: they become folders, so they are kept to characters that are safe in a path."""

from __future__ import annotations

import re

from lockstep.errors import StoreError

NAME_CHARACTERS_MAX = 100
"""File systems allow 255 bytes for one name; the rest is left for what is put beside it."""
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?")


def checked_name(kind: str, name: str) -> str:
    """``name`` if it can stand for a ``kind`` ("job", "journal"); LS0411 if not.

    >>> checked_name("journal", "logins.v2")
    'logins.v2'
    >>> checked_name("journal", "../logins")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.StoreError: LS0411 '../logins' cannot be the name of a journal
      why:  a name becomes a folder: letters, digits, dash and underscore, dots inside, at most 100 characters.
      try:  "logins" would do.
    """
    if len(name) <= NAME_CHARACTERS_MAX and _NAME.fullmatch(name):
        return name
    better = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-")[:NAME_CHARACTERS_MAX].strip(".")
    raise StoreError(
        "LS0411",
        f"{name!r} cannot be the name of a {kind}",
        why="a name becomes a folder: letters, digits, dash and underscore, dots inside, "
        f"at most {NAME_CHARACTERS_MAX} characters.",
        hint=f'"{better}" would do.' if better else "",
    )
