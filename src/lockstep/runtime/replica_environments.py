"""Which environment each replica runs in, in words: kept in the job's store, for people who compare."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lockstep.store.protocols import Facts


def _fact(replica: str) -> str:
    return f"environment-of-{replica}"


def note_environment(store: Facts, replica: str, pid: int, versions: Mapping[str, str]) -> None:
    """The process of a replica says what it runs in: versions by name."""
    store.set_fact(_fact(replica), json.dumps({"pid": pid, "versions": dict(versions)}))


def environment_text(store: Facts, replica: str, pid: int) -> str:
    """What the process of a replica runs in, empty if it has not said so yet.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lockstep.store.opening import address_in, open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(address_in(Path(folder)), "logins")
    ...     note_environment(store, "r0", 41, {"Python": "3.11.7", "Spark": "4.1.0", "at": "/srv/next/bin/python"})
    ...     environment_text(store, "r0", 41), environment_text(store, "r0", 42)
    ...     store.close()
    ('Python 3.11.7, Spark 4.1.0, at /srv/next/bin/python', '')
    """
    said: dict[str, Any] | None = json.loads(store.fact(_fact(replica)) or "null")
    if said is None or said["pid"] != pid:
        return ""
    return ", ".join(f"{name} {version}" for name, version in said["versions"].items())
