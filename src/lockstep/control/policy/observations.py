"""What a policy sees of a job in one window, and how that is read from the job's store."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from lockstep.clock import US_PER_S
from lockstep.keyed.loads import StepLoad
from lockstep.runtime.measurements import Measured, measured_key
from lockstep.runtime.spec import EXIT_DRAINED, EXIT_FAILED, EXIT_JOB_ERROR, EXIT_RETIRED
from lockstep.store.protocols import COMPUTING, Cut, Progress, Published, Store

SAMPLES_MAX = 16
"""Epochs of a window that are looked at for their cost."""
EVENTS_MAX = 1000
EPOCHS_MAX = 2000
"""A window has 600 epochs at the shortest interval; of more only the newest are read."""


class Failure(NamedTuple):
    """A replica that ended, not because it was asked to."""

    at_us: int
    replica: str
    host: str
    cause: str
    """``process``, or ``host`` if its host was lost with it."""
    epoch: int = -1
    """The epoch that it was in, as its newest word tells."""
    error: str = ""
    """The error of the job itself that it ended with; empty if it ended by anything else."""


class Recovery(NamedTuple):
    """A replica that computes again after a failure."""

    replica: str
    seconds: float
    warm: bool
    """Whether a spare took its place."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One window of a job."""

    at_us: int
    window_s: float
    records: int
    """Published in the window."""
    backlog: int
    """Records that wait, as far as is known."""
    epochs: Sequence[tuple[float, float]]
    """(records, seconds) of some epochs."""
    partitions: int
    cores: int
    """For one replica, where it lives."""
    replicas: int
    spares: int = 0
    hosts: Sequence[str] = ("",)
    """Those that replicas may live on, those that have one first."""
    replicas_by_host: Mapping[str, int] = field(default_factory=dict)
    host_of: Mapping[str, str] = field(default_factory=dict)
    epoch_s: Mapping[str, float] = field(default_factory=dict)
    """By replica: how long an epoch takes it, of late."""
    loads: Mapping[str, int] = field(default_factory=dict)
    """By partition of a source: the records of the window."""
    step_loads: Sequence[StepLoad] = ()
    """Of keyed steps: how their records are divided among buckets and keys, as a replica counted of late."""
    failures: Sequence[Failure] = ()
    recoveries: Sequence[Recovery] = ()
    gaps_s: Sequence[float] = ()
    """Times between two publications that were longer than two heartbeats."""
    published_epoch: int = -1


@dataclass(frozen=True)
class Shape:
    """What a job looks like now, as whoever runs it knows."""

    partitions: int
    cores: int
    replicas: int
    spares: int = 0
    hosts: Sequence[str] = ("",)


class StoreWatch:
    """Reads one window after another from a store, each time only what is new."""

    def __init__(self, store: Store, now_us: int, heartbeat_s: float) -> None:
        self._store = store
        self._gap_s = 2 * heartbeat_s
        self._looked_us = now_us
        events = store.events(limit=10_000)
        self._event = events[-1][0] if events else 0
        head = store.head()
        self._epoch = head.epoch if head is not None else -1
        self._cut: Cut = head.cut if head is not None else {}
        self._published_us = 0
        self._ended_us: dict[str, int] = {}
        self._hosts: dict[str, str] = {}
        self._errors: dict[str, str] = {}
        self._spared: dict[str, bool] = {}

    def look(self, shape: Shape, now_us: int) -> Observation:
        """What happened since the last look."""
        window_s = max(1e-3, (now_us - self._looked_us) / US_PER_S)
        head = self._store.head()
        newest = head.epoch if head is not None else -1
        published = self._store.published(max(self._epoch + 1, newest - EPOCHS_MAX), newest)
        progress = [one for one in self._store.progress() if one.state in COMPUTING]
        working = {one.replica: one.epoch + 1 for one in self._store.progress()}
        for one in progress:
            self._hosts[one.replica] = one.host
        failures, recoveries = self._happened(working)
        cut = head.cut if head is not None else {}
        loads = loads_between(self._cut, cut)
        gaps = self._gaps(published)
        used = Counter(one.host for one in progress)
        reached = published[-1].epoch if published else self._epoch
        observation = Observation(
            at_us=now_us,
            window_s=window_s,
            records=sum(one.records for one in published),
            backlog=backlog_of(published, sum(loads.values()), window_s),
            epochs=sampled(published),
            partitions=shape.partitions,
            cores=shape.cores,
            replicas=shape.replicas,
            spares=shape.spares,
            hosts=sorted({*shape.hosts, *used}, key=lambda host: (-used[host], host)),
            replicas_by_host=dict(used),
            host_of={one.replica: one.host for one in progress},
            epoch_s={one.replica: one.epoch_s for one in progress if one.state == "running"},
            loads=loads,
            step_loads=self._step_loads(progress),
            failures=failures,
            recoveries=recoveries,
            gaps_s=gaps,
            published_epoch=reached,
        )
        self._looked_us, self._epoch, self._cut = now_us, reached, cut
        return observation

    def _step_loads(self, progress: Sequence[Progress]) -> tuple[StepLoad, ...]:
        """As one replica counted them: all have the same records."""
        texts = (self._store.fact(measured_key(one.replica)) for one in progress)
        return next((Measured.from_text(text).loads for text in texts if text is not None), ())

    def _gaps(self, published: Sequence[Published]) -> list[float]:
        times = [*([self._published_us] if self._published_us else []), *sorted(one.published_us for one in published)]
        self._published_us = times[-1] if times else 0
        return [gap_s for a, b in pairwise(times) if (gap_s := (b - a) / US_PER_S) > self._gap_s]

    def _happened(self, working: Mapping[str, int]) -> tuple[list[Failure], list[Recovery]]:
        failures: list[Failure] = []
        recoveries: list[Recovery] = []
        events = self._store.events(self._event, EVENTS_MAX)
        told = " ".join(text for *_, kind, _, text in events if kind == "agent-lost")
        lost = {host for host in self._hosts.values() if host and re.search(rf"\b{re.escape(host)}\b", told)}
        for number, at_us, kind, replica, text in events:
            self._event = number
            if kind == "replica-failed":
                self._errors[replica] = text.partition("\n")[0]
            elif kind == "replica-ended" and (failure := self._failure(at_us, replica, text, working, lost)):
                failures.append(failure)
                self._ended_us[replica] = at_us
            elif kind == "replica-phases" and replica in self._ended_us:
                seconds = (at_us - self._ended_us.pop(replica)) / US_PER_S
                recoveries.append(Recovery(replica, seconds, warm="spare" in text.partition(":")[0]))
        return failures, recoveries

    def _failure(
        self, at_us: int, replica: str, text: str, working: Mapping[str, int], lost: set[str]
    ) -> Failure | None:
        found = re.fullmatch(r"exit code (-?\d+)", text)
        code = int(found[1]) if found else EXIT_FAILED
        error = self._errors.pop(replica, "") or "an error of the job"
        if code in (EXIT_DRAINED, EXIT_RETIRED):
            return None
        host = self._hosts.get(replica, "")
        cause = "host" if host in lost else "process"
        return Failure(at_us, replica, host, cause, working.get(replica, -1), error if code == EXIT_JOB_ERROR else "")


def loads_between(before: Cut, after: Cut) -> dict[str, int]:
    """How many positions each partition of each source has moved on.

    >>> loads_between({"logins": {"0": 10, "1": 5}}, {"logins": {"0": 110, "1": 5}, "new": {"0": 7}})
    {'logins/0': 100, 'logins/1': 0}
    """
    return {
        f"{source}/{partition}": max(0, at - before[source][partition])
        for source, positions in after.items()
        for partition, at in positions.items()
        if partition in before.get(source, {})
    }


def sampled(published: Sequence[Published]) -> list[tuple[float, float]]:
    """Some epochs, evenly spread over the window, the first and the last among them."""
    step = max(1, len(published) // SAMPLES_MAX)
    return [(float(one.records), one.epoch_s) for one in published[::step]][:SAMPLES_MAX]


def backlog_of(published: Sequence[Published], sealed: int, window_s: float) -> int:
    """How many records wait: by Little's law, those that come in the time that the oldest one had waited.

    >>> waited = [Published(7, "r0", 20 * US_PER_S, 1000, 5 * US_PER_S, None, 1.0)]
    >>> backlog_of(waited, 1000, 10.0)
    1400

    The time of its own epoch is not waiting. Where nobody knows when records came in, what is sealed and not published
    is all that can be said.
    """
    records = sum(one.records for one in published)
    ages = [
        (one.published_us - one.ingested_oldest_us) / US_PER_S - one.epoch_s
        for one in published[-5:]
        if one.ingested_oldest_us is not None
    ]
    if not ages:
        return max(0, sealed - records)
    return round(max(0.0, min(ages)) * records / window_s)
