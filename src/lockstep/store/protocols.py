"""What the rest of Lockstep asks of a store, in two halves; the words are the glossary's.

*Coordination* is what replicas have to agree on: little, exact, and on several disks or none when a call returns.
*Telemetry* is what they say about themselves: it may be late, some of it may be missing, and no epoch waits for it.
Which half something belongs to is decided by what rests on it (docs/decisions/0025-two-halves-of-a-store.md).

A call that changes something and fails may have been carried out all the same; every one of them can be repeated.

All times are microseconds since 1970. All methods are safe to call from several processes at once, and a process
may be killed at any instruction: what a method has returned is durable where it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

Positions = Mapping[str, int]
"""How far each partition of one source has been read: partition name -> first position *not* read."""

Cut = Mapping[str, Positions]
"""One position for every partition of every source, by source name."""


@dataclass(frozen=True)
class Holder:
    """Who acts: a replica and which start of it. ``incarnation`` grows with every start and is never reused."""

    replica: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.replica}.{self.incarnation}"

    @staticmethod
    def replica_of(text: str) -> str:
        """The replica of a holder that was written down.

        >>> Holder.replica_of(str(Holder("r0", 12)))
        'r0'
        """
        return text.rpartition(".")[0]


@dataclass(frozen=True)
class Entry:
    """One epoch as it was sealed: the only thing replicas have to agree on.

    ``cut`` is where the epoch ends; it starts where the previous entry's cut ends. ``marks`` holds, per ``event_time``
    step, the highest event time seen *before* this epoch (None: none yet). ``ingested_*`` are the ingestion times of
    its oldest and newest record, None for an epoch without records (or a source that does not know).
    """

    epoch: int
    epoch_time_us: int
    cut: Cut
    marks: Mapping[str, int | None] = field(default_factory=dict)
    records: int = 0
    ingested_oldest_us: int | None = None
    ingested_newest_us: int | None = None
    active_us: Mapping[str, int] = field(default_factory=dict)
    """Per source, the epoch time of the last epoch that had records of it: tells who is idle."""
    sealed_by: str = ""
    ending: int = 0
    """In a run until done: how many epochs in a row, this one included, had no records after the input's end."""
    caught_up: Mapping[str, int] = field(default_factory=dict)
    """Of a run that takes what is there (by when it began): how many epochs in a row, this one included, had no
    records after that. Another run begins anew."""
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The sources that were held back: of which other one each is ahead, and by how many microseconds."""
    partitions: Mapping[str, Mapping[str, Sequence[int | None]]] = field(default_factory=dict)
    """Per ``event_time`` step that goes by partition, and partition: by how much the highest event time seen *before*
    this epoch is ahead of the step's mark (None: none was seen yet), and how long before this epoch's time the last
    epoch with a record of it was. Differences, because they are short: a topic may have a thousand partitions."""
    generation: int = 1
    """Which generation of the job publishes this epoch; replicas of another one compute it in the shadow."""
    turn: int = 0
    """How often that was changed, back or forth, up to this epoch."""


@dataclass(frozen=True)
class Item:
    """Something a source sealed together with a cut: for the files source, the chunk at a list position.

    Positions alone do not say which file they mean; the item does, and it is put in the same transaction as the entry.
    """

    source: str
    position: int
    body: Mapping[str, Any]


class Ledger(Protocol):
    """epoch -> entry, put-if-absent, without gaps. Durable when ``seal`` returns."""

    def head(self) -> Entry | None:
        """The newest entry, or None if nothing was sealed yet."""

    def entry(self, epoch: int) -> Entry | None:
        """The entry of ``epoch``, or None if it is not sealed (or was trimmed)."""

    def entries(self, first: int, last: int) -> list[Entry]:
        """The entries from ``first`` to ``last`` inclusive, in order."""

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        """Put ``proposal`` (and its items) unless its epoch is taken; return whatever holds now.

        Refused with StoreError LS0405 if ``holder`` is not the live incarnation of its replica, and LS0406 if the epoch
        before it is not sealed (a gap).
        """

    def begin_at(self, entries: Sequence[Entry], items: Sequence[Item]) -> None:
        """Begin an empty ledger with these entries, which follow each other, and the items of the epochs so far.

        All of it or nothing; LS0408 if something was sealed already.
        """

    def wait(self, epoch: int, timeout_s: float) -> Entry | None:
        """Block until ``epoch`` is sealed, at most ``timeout_s``."""

    def items(self, source: str, first: int, last: int) -> list[Item]:
        """The items of ``source`` at positions ``first <= p < last``, in order."""

    def last_item(self, source: str) -> Item | None:
        """The newest item of ``source``."""

    def item_bodies(self, source: str) -> Iterator[Mapping[str, Any]]:
        """All bodies of ``source``'s items still kept, in order."""

    def floor(self) -> int:
        """The lowest epoch that is still kept (0 if nothing was trimmed)."""

    def trim(self, floor: int) -> None:
        """Forget entries, observations and digests below ``floor``; of very many, some at the next call.

        Items are dropped by ``drop_items``: their source knows which.
        """

    def drop_items(self, source: str, positions: Sequence[int]) -> None:
        """Forget these items: their source no longer needs them to recognise what it has read."""


class Leases(Protocol):
    """Named leases with expiry. A lease that expired may be taken by anyone; a live one only by its holder.

    A holder that does not renew in time loses its lease by the clock of the host it is on. No clocks of two hosts are
    compared: where holders are on several hosts, a holder that is gone or cut off loses it when the coordination
    service has heard nothing from its process for the time of a session, which may be longer or shorter than the lease.
    """

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew ``name`` for ``holder``; False if someone else holds it and it has not expired."""

    def release(self, name: str, holder: str) -> None:
        """Give ``name`` back, if ``holder`` has it."""

    def holder(self, name: str) -> str | None:
        """Who holds ``name`` now, None if nobody or expired."""

    def wait_until_free(self, name: str, timeout_s: float) -> None:
        """Block while somebody holds ``name``, at most ``timeout_s``; who takes it then is not decided by this."""


COMPUTING = frozenset({"running", "catching-up"})
"""States of a replica that has computed an epoch."""
BOOTING = frozenset({"starting", "seeding"})
"""States of a replica that has not."""


NO_EXECUTORS = -1


@dataclass(frozen=True)
class Progress:
    """What one replica last said of itself. ``epoch`` is the newest epoch it has committed (-1: none).

    ``state`` is one of: starting, seeding, catching-up, running, diverged, draining, stopped, failed.
    """

    replica: str
    incarnation: int
    pid: int
    state: str
    epoch: int = -1
    epoch_s: float = 0.0
    """Recent time per epoch: an average that forgets with a half-life of a few epochs."""
    working_on: int = -1
    """The epoch under way, -1 if it waits for the next to be sealed."""
    begun_us: int = 0
    """When the epoch under way was begun; 0 if none is."""
    tasks: int = 0
    """Spark's tasks for the epoch under way, those of the stages that run now, and how many of them are done."""
    tasks_done: int = 0
    active_us: int = 0
    """When something inside the epoch under way last moved (a task was done, rows were read); 0 if none is."""
    records: int = 0
    """Records this incarnation has read, in all."""
    updated_us: int = 0
    moved_us: int = 0
    """When ``epoch`` last changed."""
    note: str = ""
    host: str = ""
    """The host that it lives on; empty if the job lives on one host alone."""
    process: str = ""
    """The handle of its process. A pid would not do: two hosts may have the same one, and so may two starts."""
    executors: int = NO_EXECUTORS
    """How many executors Spark has for it; :data:`NO_EXECUTORS` where the master is local and needs none."""
    executors_lost: int = 0
    """How many of them died since the replica started."""
    generation: int = 1
    """Which generation of the job's spec it is of."""
    results_of: int = 1
    """The generation with which its results last changed."""


class Incarnations(Protocol):
    """Which replicas there are, and which start of each may act for it."""

    def begin(self, replica: str, pid: int) -> Holder:
        """Register a new start of ``replica``: a fresh incarnation, which alone may act for it from now on."""

    def is_live(self, holder: Holder) -> bool:
        """Whether ``holder`` is the newest incarnation of its replica and was not retired."""

    def retire(self, replica: str) -> None:
        """No incarnation of ``replica`` so far may act any more (before it is replaced or stopped)."""

    def remove(self, replica: str) -> None:
        """Forget ``replica``: it left the job for good and no longer holds retention back."""


class Reports(Protocol):
    """How far replicas are, in their own words: the newest of each."""

    def report(self, progress: Progress) -> None:
        """Replace what ``progress.replica`` said last. Ignored if it is not the newest incarnation."""

    def progress(self) -> list[Progress]:
        """The newest word of every replica, by name."""


_STATE = re.compile(r"state of stage (\d+), operator \d+ .*")


def state_subject(stage: int, operator: str) -> str:
    """What stands in the place of a sink where a digest is one of state, by Spark's number and name of the operator.

    >>> state_subject(1, "0 stateStoreSave")
    'state of stage 1, operator 0 stateStoreSave'
    """
    return f"state of stage {stage}, operator {operator}"


def state_stage(sink: str) -> int | None:
    """The stage whose state a digest is about; None for a digest of output.

    >>> state_stage(state_subject(2, "0 stateStoreSave")), state_stage("alerts")
    (2, None)
    """
    found = _STATE.fullmatch(sink)
    return int(found[1]) if found else None


def subject_text(sink: str) -> str:
    """What a digest is about, for people.

    >>> subject_text("alerts"), subject_text(state_subject(1, "0 stateStoreSave"))
    ('sink "alerts"', 'the state of stage 1, operator 0 stateStoreSave')
    """
    return f'sink "{sink}"' if state_stage(sink) is None else f"the {sink}"


@dataclass(frozen=True)
class Digest:
    """One replica's fingerprint of one epoch's output to one sink, or of its state after it (:func:`state_subject`)."""

    epoch: int
    sink: str
    replica: str
    incarnation: int
    digest: str
    rows: int
    version: str
    """The version of the job's code that computed it: digests of different versions are not compared."""


@dataclass(frozen=True)
class Published:
    """An epoch became visible in every sink: when, and how long its records had waited."""

    epoch: int
    replica: str
    published_us: int
    records: int
    ingested_oldest_us: int | None
    ingested_newest_us: int | None
    epoch_s: float


@dataclass(frozen=True)
class Divergence:
    """Two replicas disagreed about an epoch: about its output, which ``published_by`` published, or about the state
    after it, of which ``published_by`` has another. ``detail`` is what a person should read."""

    epoch: int
    sink: str
    replica: str
    incarnation: int
    published_by: str
    digest: str
    published_digest: str
    detail: str
    at_us: int
    verdict: str = ""
    """Empty until the supervisor has judged: go-on, reseed or stop."""


class Divergences(Protocol):
    """What replicas disagreed about, and what was decided. Bounded; durable when a call returns."""

    def add_divergence(self, divergence: Divergence) -> None:
        """Keep it once per epoch, sink and incarnation; on disk at once."""

    def divergences(self) -> list[Divergence]:
        """All that are kept, oldest first."""

    def judge(self, epoch: int, sink: str, replica: str, verdict: str) -> None:
        """Note what was decided about a divergence."""


class Observations(Protocol):
    """The highest event times of epochs: what the marks of the next epoch are made from, by whoever seals it."""

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        """Keep the highest event time that an epoch's records had, per ``event_time`` step; the first wins.

        For a step that goes by partition there is ``STEP/PARTITION`` too, for each that had records.
        """

    def observed(self, epoch: int) -> dict[str, int | None]:
        """What was kept for ``epoch``; empty if nothing was."""


class Record(Protocol):
    """What happened: digests, publications, events. Bounded; durable soon, not at once."""

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Keep these digests, all at once."""

    def digests(self, epoch: int) -> list[Digest]:
        """Everything reported for ``epoch``."""

    def digest_mismatches(self) -> list[tuple[int, str]]:
        """(epoch, sink) for which kept digests of one version differ."""

    def add_published(self, published: Published) -> None:
        """Keep it once per epoch (the first wins) and add its latency to the job's histogram."""

    def published(self, first: int, last: int) -> list[Published]:
        """The publications of the epochs from ``first`` to ``last`` inclusive, in order."""

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        """A line for people: replica died, was seeded, records set aside. The newest 10,000 are kept."""

    def events(self, after_id: int = 0, limit: int = 1000) -> list[tuple[int, int, str, str, str]]:
        """(id, at_us, kind, replica, text), oldest first."""

    def newest_event(self) -> int:
        """The id of the newest event, 0 if there is none: cheap enough to be asked ten times a second."""

    def latency_ms(self) -> dict[str, float]:
        """p50, p90, p99, max and count of the job's histogram: age of an epoch's oldest record at its publishing."""


class Facts(Protocol):
    """Small durable facts of a job: its plan's fingerprint, its environment's hash, when it began."""

    def put_fact_if_absent(self, key: str, value: str) -> str:
        """Return the value that holds now."""

    def set_fact(self, key: str, value: str) -> None:
        """Put ``value``, whatever was there."""

    def swap_fact(self, key: str, before: str | None, after: str) -> bool:
        """Put ``after`` if the value is still ``before`` (None: absent); whether it was. On disk when this returns."""

    def fact(self, key: str) -> str | None:
        """The value of ``key``, or None."""


class Coordination(Ledger, Leases, Incarnations, Observations, Divergences, Facts, Protocol):
    """What replicas have to agree on. Every call ends within the caller's patience (:mod:`lockstep.store.patience`)."""


class Telemetry(Reports, Record, Protocol):
    """What replicas say about themselves. A process reads what it wrote itself; others may see it later."""


class Store(Coordination, Telemetry, Protocol):
    """All of it, for one job."""

    def close(self) -> None:
        """Give it back, after what is still to be written, if that is possible at once."""


class Hosts(Protocol):
    """Which hosts there are, for all jobs of a store's address."""

    def announce(self, host: str, body: Mapping[str, Any]) -> None:
        """``host`` lives, and has this to say of itself.

        To be called again every few seconds: a host that was silent for :data:`ANNOUNCED_S` is gone.
        """

    def withdraw(self, host: str) -> None:
        """``host`` leaves."""

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The living ones by name, with what they said last."""

    def close(self) -> None:
        """Give it back; hosts that were announced here are gone, at once or after :data:`ANNOUNCED_S`."""


ANNOUNCED_S = 10.0
"""For how long a host counts as living after it was announced."""


class Journal(Protocol):
    """A named, partitioned, durable log of Arrow batches, in files of its own."""

    @property
    def schema(self) -> pa.Schema:
        """What every record in it has."""

    @property
    def partitions(self) -> int:
        """How many partitions it has; they are numbered from 0."""

    def append(self, batch: pa.RecordBatch | pa.Table, partition: int | None = None) -> dict[int, tuple[int, int]]:
        """Append all of it or nothing; on disk when this returns. partition -> (first position, one past the last).

        Without a partition, whole batches go round-robin.
        """

    def append_named(self, batch: pa.RecordBatch | pa.Table, name: str) -> tuple[dict[int, tuple[int, int]], bool]:
        """Append unless records of this name are there: where they are, and whether they were there before.

        The name is kept in the transaction of its records. LS0428 if it stands for other records.
        """

    def ends(self) -> dict[int, int]:
        """For each partition the position after its newest record."""

    def begins(self) -> dict[int, int]:
        """For each partition the oldest position still kept."""

    def ingested(self, partition: int, start: int, end: int) -> tuple[int, int] | None:
        """Oldest and newest ingestion time (us) in the range, None if it is empty."""

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The records at positions ``start <= p < end``, a stored batch at a time. LS0408 if some were trimmed."""

    def trim(self, keep_from: Mapping[int, int]) -> int:
        """Forget whole batches below these positions; returns how many records went."""

    def close(self) -> None:
        """Give the file back."""
