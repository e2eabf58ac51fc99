"""Whether this process obeys orders, and for which replica it acts. Read once from the environment, when imported."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from lockstep.errors import RunError

FOLDER_VARIABLE = "LOCKSTEP_FAULTS"
REPLICA_VARIABLE = "LOCKSTEP_FAULTS_REPLICA"
"""Set by whoever starts a replica, so that Spark's Python processes know whose they are."""
PREFIXES_FILE = "prefixes.json"
"""Replica -> words that its command begins with, from its next start on."""
SUPERVISOR = "supervisor"
"""Who a process is that acts for no replica."""


class Switch:
    """On or off. ``folder`` is None while it is off, and that and ``harm_here`` are all that is ever asked then."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.folder: Path | None = None
        self.harm_here: Callable[[str, str, int], None] | None = None
        """What a test whose replicas run in its own process does at a crash window, to a replica, in an epoch."""
        self.who = environment.get(REPLICA_VARIABLE, SUPERVISOR)
        if named := environment.get(FOLDER_VARIABLE, ""):
            self.turn_on(Path(named))

    def turn_on(self, folder: Path) -> None:
        """Obey the orders in ``folder`` from now on, and say so."""
        if not folder.is_dir():
            raise RunError(
                "LS0670",
                f"{FOLDER_VARIABLE} names {folder}, which is not a folder",
                why="with this variable set, processes kill themselves and fail on order: it is for `lockstep chaos` "
                "and tests, and never on by accident.",
                hint=f"unset {FOLDER_VARIABLE}.",
            )
        self.folder = folder
        print(f"FAULTS ARE ON: {self.announcement()}", file=sys.stderr, flush=True)

    def announcement(self) -> str:
        """What people are told while it is on."""
        return f"this process ({os.getpid()}, {self.who}) obeys the orders in {self.folder} ({FOLDER_VARIABLE} is set)"


switch = Switch(os.environ)


def replica_environment(replica: str) -> dict[str, str]:
    """What the process of a replica is told in addition; nothing while faults are off."""
    return {} if switch.folder is None else {REPLICA_VARIABLE: replica}


def command_prefix(replica: str) -> list[str]:
    """What a replica's command begins with: nothing, unless it was ordered into a network namespace of its own.

    >>> command_prefix("r0")
    []
    """
    if switch.folder is None:
        return []
    try:
        prefixes: dict[str, list[str]] = json.loads((switch.folder / PREFIXES_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    return prefixes.get(replica, [])
