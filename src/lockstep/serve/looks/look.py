"""One look at a job, and whoever takes it: reads from the store only what is new since the look before."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.connect.letters import dead_letters
from lockstep.connect.put_back import SOURCES
from lockstep.control.operations.book import OPERATIONS, OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.policy.decisions import FACT as DECISIONS
from lockstep.control.start.drawing import DRAWING, drawing
from lockstep.control.status.health import Event
from lockstep.control.status.overview import Overview, Watcher, run_settings, spares
from lockstep.errors import StoreError
from lockstep.runtime.desired_run import DESIRED, RUN_BEGAN, DesiredRun, last_run
from lockstep.runtime.measurements import Measured, measured_key
from lockstep.runtime.steering import Steering, steering
from lockstep.serve.looks.agreement import EPOCHS_SHOWN, Agreement, Evidence, agreement
from lockstep.serve.looks.flow import SourceFlow, sink_rates, sources, watermark_us
from lockstep.serve.looks.lateness import WINDOW_S, Mark, Point, marks, points, recoveries_s
from lockstep.serve.looks.memory import Memory
from lockstep.store.dead_letters import DeadLetters
from lockstep.store.journal import JOURNAL_FILE, JOURNALS_FOLDER, SqliteJournal, open_journal
from lockstep.store.protocols import Digest, Divergence, Entry, Positions, Progress, Published, Store

EVENTS_KEPT = 500
PUBLISHED_KEPT = 10_000
"""A quarter of an hour at ten epochs a second, and some more."""
FLOW_EPOCHS = 50
LATE_EPOCHS = 20
"""Publications and digests are noted a moment after they happen, by different replicas: the newest are read again."""
_Parsed = TypeVar("_Parsed")
_NOISE = re.compile(r"epoch (\d+)")


@dataclass(frozen=True)
class Look:
    """What is known of a job at one time. Everything that a page of it shows is here, or is asked for by number."""

    job: str
    at_us: int
    overview: Overview
    settings: RunSettings
    order: DesiredRun | None
    steering: Steering
    progress: Mapping[str, Progress]
    head: Entry | None
    published: tuple[Published, ...]
    """Those of the last quarter of an hour, oldest first."""
    latency_ms: Mapping[str, float]
    """Over the whole life of the job."""
    points: tuple[Point, ...]
    marks: tuple[Mark, ...]
    events: tuple[Event, ...]
    """The newest of this run, oldest first."""
    operations: tuple[Operation, ...]
    decisions: tuple[Mapping[str, Any], ...]
    divergences: tuple[Divergence, ...]
    spares: tuple[Mapping[str, Any], ...]
    recoveries_s: Mapping[str, float]
    memory_bytes: Mapping[str, int]
    flows: tuple[SourceFlow, ...]
    sink_rates: Mapping[str, float]
    agreement: Agreement
    graph: Mapping[str, Any] | None
    measured: Measured | None
    """What Spark says, as the first replica that said something has it."""

    @property
    def publication_age_s(self) -> float | None:
        """How long ago something was published last; None if nothing ever was."""
        newest = max((one.published_us for one in self.published), default=None)
        return None if newest is None else max(0.0, (self.at_us - newest) / US_PER_S)

    @property
    def watermark_us(self) -> int | None:
        """How far event time has come."""
        return watermark_us(self.head)

    @property
    def unpublished_epochs(self) -> int:
        """Epochs that are sealed and not published yet."""
        return max(0, self.overview.head_epoch - self.overview.published_epoch)

    @property
    def waiting_records(self) -> int | None:
        """Records that are there and in no epoch yet, as far as that is known without asking brokers."""
        known = [one.waiting for one in self.flows if one.waiting is not None]
        return sum(known) if known else None

    @property
    def ready(self) -> int:
        """How many replicas are within the lead: one of them may be lost as long as there are two."""
        return sum(one.within_lead for one in self.overview.health.replicas)


class JobWatch:
    """Looks at one job again and again. Not safe for several threads at once: see ``shared.py``."""

    def __init__(self, store: Store, job: str, home: Path) -> None:
        self.store = store
        self._job = job
        self._home = home
        self._letters: DeadLetters = dead_letters(home, job, store)
        self._run: str | None = None
        self._watcher: Watcher | None = None
        self._events: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self._published: dict[int, Published] = {}
        self._digests: dict[int, list[Digest]] = {}
        self._epochs_seen: dict[str, int] = {}
        self._journals: dict[str, SqliteJournal] = {}
        self._memory = Memory()
        self._parsed: dict[str, tuple[str | None, Any]] = {}

    def look(self, now_us: int) -> Look:
        """The job as it is now."""
        overview = self._overview(now_us)
        progress = {one.replica: one for one in self.store.progress()}
        self._read_published(overview.head_epoch, now_us)
        self._read_digests(overview.head_epoch, progress)
        entries = self.store.entries(max(0, overview.head_epoch - FLOW_EPOCHS), overview.head_epoch)
        operations = self._kept(OPERATIONS, lambda: OperationBook(self.store).all())
        decided = self._kept(DECISIONS, lambda: json.loads(self.store.fact(DECISIONS) or "[]"))
        divergences = self.store.divergences()
        since_us = now_us - WINDOW_S * US_PER_S
        return Look(
            job=self._job,
            at_us=now_us,
            overview=overview,
            settings=run_settings(self.store),
            order=self._kept(DESIRED, lambda: last_run(self.store)),
            steering=steering(self.store),
            progress=progress,
            head=entries[-1] if entries else None,
            published=tuple(self._published.values()),
            latency_ms=self.store.latency_ms(),
            points=tuple(points(self._published.values())),
            marks=tuple(marks(self._events, operations, _times(decided), since_us)),
            events=tuple(self._events),
            operations=tuple(operations),
            decisions=tuple(decided),
            divergences=tuple(divergences),
            spares=tuple(spares(self.store)),
            recoveries_s=recoveries_s(self._events),
            memory_bytes=self._memory.of(progress.values(), now_us),
            flows=tuple(self._flows(entries)),
            sink_rates=sink_rates(entries, self._digests),
            agreement=self._agreement(overview, divergences),
            graph=self._kept(DRAWING, lambda: drawing(self.store).get("graph")),
            measured=self._measured(progress),
        )

    def close(self) -> None:
        """Give back what was opened here; the store is not."""
        self._letters.close()
        for journal in self._journals.values():
            journal.close()
        self._journals.clear()

    def _overview(self, now_us: int) -> Overview:
        """A watcher reads the settings of one run: another run needs another one."""
        run = self.store.fact(RUN_BEGAN)
        if self._watcher is None or run != self._run:
            self._run, self._watcher = run, Watcher(self.store, self._letters)
            self._events.clear()
        overview = self._watcher.look(now_us)
        self._events.extend(overview.events)
        return overview

    def _kept(self, fact: str, parse: Callable[[], _Parsed]) -> _Parsed:
        """What a fact says, parsed again only when it has changed."""
        text = self.store.fact(fact)
        if fact not in self._parsed or self._parsed[fact][0] != text:
            self._parsed[fact] = text, parse()
        found: _Parsed = self._parsed[fact][1]
        return found

    def _read_published(self, head_epoch: int, now_us: int) -> None:
        newest = max(self._published, default=-1)
        first = newest - LATE_EPOCHS if newest >= 0 else head_epoch - PUBLISHED_KEPT
        for one in self.store.published(max(0, first), head_epoch):
            self._published[one.epoch] = one
        oldest_us, newest = now_us - WINDOW_S * US_PER_S, max(self._published, default=-1)
        kept = {e: one for e, one in self._published.items() if one.published_us >= oldest_us or e > newest - 200}
        self._published = dict(sorted(kept.items())[-PUBLISHED_KEPT:])

    def _read_digests(self, head_epoch: int, progress: Mapping[str, Progress]) -> None:
        """Digests of the newest epochs, and of those that a replica has computed since the last look."""
        first = max(0, head_epoch - EPOCHS_SHOWN + 1)
        wanted = {e for e in range(first, head_epoch + 1) if e not in self._digests or e > head_epoch - LATE_EPOCHS}
        for one in progress.values():
            wanted |= set(range(max(first, self._epochs_seen.get(one.replica, -1)), one.epoch + 1))
            self._epochs_seen[one.replica] = one.epoch
        for epoch in wanted:
            self._digests[epoch] = self.store.digests(epoch)
        self._digests = {epoch: held for epoch, held in self._digests.items() if epoch >= first}

    def _agreement(self, overview: Overview, divergences: Sequence[Divergence]) -> Agreement:
        noise = [_NOISE.search(event[4]) for event in self._events if event[2] == "float-noise"]
        evidence = Evidence(
            publishers={epoch: one.replica for epoch, one in self._published.items()},
            digests=self._digests,
            differing={(one.epoch, one.replica) for one in divergences},
            noise={int(found[1]) for found in noise if found},
            floor=self.store.floor(),
        )
        return agreement(overview.health.replicas, evidence, overview.head_epoch)

    def _measured(self, progress: Mapping[str, Progress]) -> Measured | None:
        for replica in progress:
            if (text := self.store.fact(measured_key(replica))) is not None:
                return Measured.from_text(text)
        return None

    def _flows(self, entries: Sequence[Entry]) -> list[SourceFlow]:
        specs: Mapping[str, Mapping[str, Any]] = self._kept(
            SOURCES, lambda: json.loads(self.store.fact(SOURCES) or "{}")
        )
        kinds = {name: str(spec.get("kind", "")) for name, spec in specs.items()}
        # Where a journal ends is known here; brokers are not asked, since that may take long.
        ends: dict[str, Positions] = {}
        for source, kind in kinds.items():
            journal = self._journal(str(specs[source]["name"])) if kind == "journal" else None
            if journal is not None:
                ends[source] = {str(partition): end for partition, end in journal.ends().items()}
        return sources(entries, kinds, ends)

    def _journal(self, name: str) -> SqliteJournal | None:
        if name not in self._journals and (self._home / JOURNALS_FOLDER / name / JOURNAL_FILE).exists():
            try:
                self._journals[name] = open_journal(self._home, name)
            except StoreError:
                return None  # of another release, or being made: the page says nothing of what waits in it
        return self._journals.get(name)


def _times(decisions: Sequence[Mapping[str, Any]]) -> list[tuple[int, str]]:
    return [(int(one.get("at_us", 0)), str(one.get("what", ""))) for one in decisions]
