"""Merging old epochs of a job's files and Delta sinks by itself: a thread of the supervisor, nothing waits for it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from contextlib import suppress

import pyarrow as pa

from lockstep.config import RunSettings
from lockstep.connect.remote.paths import AnyPath
from lockstep.connect.sinks.compaction import compact
from lockstep.connect.sinks.delta_tidying import DeltaTidier
from lockstep.errors import LockstepError
from lockstep.store.protocols import Store

INTERVAL_S = 5.0
EPOCHS_MIN = 200
"""Epochs that must have grown old before they are merged: writing one small file after the other gains nothing."""
_NICENESS = 10
_NOT_A_SINK_YET = "LS0513"


class Compactor(threading.Thread):
    """Looks after the folders of the sinks every few seconds; what fails is said once and tried again."""

    def __init__(
        self, folders: Sequence[AnyPath], settings: RunSettings, store: Store, tables: Sequence[DeltaTidier] = ()
    ) -> None:
        super().__init__(name="compactor", daemon=True)
        self._folders = folders if settings.compact_sinks else []
        self._tables = tables if settings.compact_sinks else []
        self._keep = settings.compact_keep_epochs
        self._store = store
        self._ended = threading.Event()
        self._tidy = set(self._folders)
        self._said: set[str] = set()

    def run(self) -> None:
        """Merge until stopped."""
        with suppress(OSError):
            # Of this thread alone: those who publish come first.
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        while not self._ended.wait(INTERVAL_S):
            for folder in self._folders:
                self.compact(folder)
            for table in self._tables:
                self.tidy(table)

    def compact(self, folder: AnyPath) -> None:
        """Merge what has grown old in one sink."""
        try:
            compact(folder, self._keep, EPOCHS_MIN, tidy=folder in self._tidy)
            self._tidy.discard(folder)
        except LockstepError as error:
            if error.code != _NOT_A_SINK_YET:
                self._say(f"{folder}: {error}")
        except pa.ArrowException as error:
            # A torn data file: what reads it says so in Arrow's words. The other sinks are looked after all the same.
            self._say(f"{folder}: an epoch cannot be read: {error}")

    def tidy(self, table: DeltaTidier) -> None:
        """Merge what has come together in one Delta table; if a commit was in the way, the next look does it."""
        try:
            table.tidy()
        except LockstepError as error:
            self._say(f"{table.folder}: {error}")

    def stop(self) -> None:
        """Stop after the merge under way. Not waited for: one that is cut off harms nothing."""
        self._ended.set()

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            with suppress(LockstepError):
                self._store.add_event("compaction-waits", text)
