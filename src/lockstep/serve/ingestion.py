"""Records that come over HTTP: JSON lines into a journal, acknowledged when they are on disk."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

from lockstep.connect.put_back import SOURCES
from lockstep.runtime.desired_run import wanted_run
from lockstep.serve import models
from lockstep.serve.limits import Budget, Limits, too_many
from lockstep.serve.service import Service
from lockstep.store.arrow import batch_from_json_lines
from lockstep.store.journal import SqliteJournal, open_journal

BACKLOG_LOOK_S = 1.0
"""How often the backlog of a journal is counted: appends in between are let through."""


class Ingestion:
    """The journals of a project, kept open, and how far jobs have read them. Safe to use from several threads."""

    def __init__(self, service: Service, limits: Limits, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._service, self._limits, self._elapsed_s = service, limits, elapsed_s
        self._bytes = Budget(limits.ingest_bytes_at_once, "bytes of records")
        self._journals: dict[str, SqliteJournal] = {}
        self._backlogs: dict[str, tuple[float, int]] = {}
        self._lock = threading.Lock()

    def append(self, journal: str, body: bytes, key: str = "") -> models.Ingested:
        """Append all of it, or nothing. LS0403 names the first line that is no record, LS0767 asks to wait.

        With a ``key``, which is the name of these records, they are not appended again; other records under it are
        refused (LS0428).
        """
        with self._bytes.using(len(body)):
            target = self._opened(journal)
            self._check_backlog(target)
            batch = batch_from_json_lines(body.split(b"\n"), target.schema)
            if not key:
                return _ingested(journal, batch.num_rows, target.append(batch))
            appended, repeated = target.append_named(batch, key)
            return _ingested(journal, 0 if repeated else batch.num_rows, appended, repeated=repeated)

    def close(self) -> None:
        """Give the journals back."""
        with self._lock:
            for journal in self._journals.values():
                journal.close()
            self._journals.clear()

    def _opened(self, name: str) -> SqliteJournal:
        with self._lock:
            if name not in self._journals:
                self._journals[name] = open_journal(self._service.home, name)
            return self._journals[name]

    def _check_backlog(self, journal: SqliteJournal) -> None:
        counted_s, backlog = self._backlogs.get(journal.name, (-BACKLOG_LOOK_S, 0))
        if self._elapsed_s() - counted_s >= BACKLOG_LOOK_S:
            backlog = self._backlog(journal)
            self._backlogs[journal.name] = (self._elapsed_s(), backlog)
        if backlog > self._limits.backlog_records:
            raise too_many(
                f'{backlog:,} records of journal "{journal.name}" wait to be read',
                f"more are taken when there are fewer than {self._limits.backlog_records:,}.",
            )

    def _backlog(self, journal: SqliteJournal) -> int:
        """How far the job that has read least is behind the journal's end; 0 if no job that is to run reads it."""
        ends, most = journal.ends(), 0
        for job in self._service.living_jobs():
            store = self._service.store(job)
            sources: dict[str, dict[str, object]] = json.loads(store.fact(SOURCES) or "{}")
            wanted = ("journal", journal.name)
            names = [name for name, spec in sources.items() if (spec.get("kind"), spec.get("name")) == wanted]
            if not names or wanted_run(store) is None:
                continue
            head = store.head()
            for name in names:
                cut = head.cut.get(name, {}) if head is not None else {}
                most = max(most, sum(end - cut.get(str(partition), 0) for partition, end in ends.items()))
        return most


def _ingested(
    journal: str, records: int, appended: dict[int, tuple[int, int]], *, repeated: bool = False
) -> models.Ingested:
    positions = {str(partition): span for partition, span in appended.items()}
    return models.Ingested(journal=journal, records=records, positions=positions, repeated=repeated)
