"""Names of jobs and journals, which become folders and are kept to what is safe in a path; and names of batches."""

from __future__ import annotations

import re

from lockstep.errors import StoreError

NAME_CHARACTERS_MAX = 100
"""File systems allow 255 bytes for one name; the rest is left for what is put beside it."""
BATCH_NAME_CHARACTERS_MAX = 200
"""A journal remembers a million names of batches: each stays short."""
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


def checked_batch_name(name: str) -> str:
    """``name`` if it can stand for a batch of records that is to be written once; LS0429 if not.

    >>> checked_batch_name("orders-2026-03-01.csv")
    'orders-2026-03-01.csv'
    >>> checked_batch_name("")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.StoreError: LS0429 '' cannot be the name of a batch
      why:  it is a text of 1 to 200 printable characters.
      try:  who sends, and the number of the batch: "importer-3/17"; or the name of the file that it is from.
    """
    if isinstance(name, str) and 1 <= len(name) <= BATCH_NAME_CHARACTERS_MAX and name.isprintable():
        return name
    shown = f"{name[:40]}..." if isinstance(name, str) and len(name) > BATCH_NAME_CHARACTERS_MAX else name
    raise StoreError(
        "LS0429",
        f"{shown!r} cannot be the name of a batch",
        why=f"it is a text of 1 to {BATCH_NAME_CHARACTERS_MAX} printable characters.",
        hint='who sends, and the number of the batch: "importer-3/17"; or the name of the file that it is from.',
    )
