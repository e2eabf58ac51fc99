"""What a workload and an engine are to the one who measures.

One measurement has a folder:

    input/SOURCE/00000042.jsonl   what the feeder wrote: whole files, moved into place, never changed, never removed
    output/                       what the engine published, in whatever form is natural to it
    work/                         the engine's own: checkpoints, recovery stores, logs, its process ids

Every record has ``seq`` (counts up from 0 in its source), ``sent_us`` (when the feeder wrote it) and, where the
workload has event time, ``at_ms``. The one who measures

1. takes an engine and a workload from :mod:`benchmarks.engines.catalogue`;
2. makes the folder ready (:func:`benchmarks.engines.input.make_folders`) and starts :meth:`Engine.launch`, with the
   folder as working directory;
3. starts the feeder, ``python -m benchmarks.engines.feeder WORKLOAD FOLDER --seconds 30``: it feeds live at the
   workload's rates, ends by itself or on SIGTERM, and sends the closing records last; or puts everything there at once
   (:func:`benchmarks.engines.input.write_all`, for throughput);
4. polls :meth:`Reader.poll` every few milliseconds, notes the time of each row, and asks :meth:`Workload.visible` for
   the waits;
5. compares :meth:`Engine.rows` with :meth:`Workload.expected` of :func:`benchmarks.engines.input.read_input`, by
   :func:`benchmarks.engines.checking.compare`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

Row = dict[str, Any]
"""A record or a result as plain values: str, int, float, None. Times are whole milliseconds since 1970 (``..._ms``)."""

Records = Mapping[str, Sequence[Row]]
"""What was fed: source -> its records in order of ``seq``."""

CLOSING_MS = 4_102_444_800_000
"""2100-01-01: the event time of records that close all windows at the end of the input. Windows that begin there are
nobody's results and are not compared."""


class Results(Enum):
    """How results follow from records, and so what it means that a record is visible."""

    EACH = "each"
    """One row per record (or none, if it was filtered out), with its ``seq`` and ``source``."""
    UPDATES = "updates"
    """Rows of a key replace each other; a record is visible with the first row of its key whose ``seq`` is not lower.

    An engine may publish a row per record or one per batch: compared is the last row of each key, and no row may be
    one that the key never had."""
    REVISIONS = "revisions"
    """The same for values that may come back, such as averages: the same row twice says nothing."""
    FINAL = "final"
    """One row per key and window, once, when event time has passed the window's end plus what may be out of order."""


@dataclass(frozen=True)
class Input:
    """One source of a workload."""

    source: str
    rate_per_s: float
    columns: tuple[tuple[str, str], ...]
    """Name and type of each column, in the words of Spark's SQL: string, bigint, double."""
    quiet_s: tuple[float, float] | None = None
    """From when to when this source is quiet, in seconds at the full rate since the begin; None: never."""

    @property
    def schema(self) -> str:
        """As Lockstep and Spark take it.

        >>> Input("events", 1000, (("seq", "bigint"), ("key", "string"))).schema
        'seq bigint, key string'
        """
        return ", ".join(f"{name} {kind}" for name, kind in self.columns)


class Workload(Protocol):
    """What every engine is asked to compute."""

    @property
    def name(self) -> str:
        """As on the command line, and the name of the programs: ``word_count``."""

    @property
    def title(self) -> str:
        """For tables and plots."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The sources, with their rates."""

    @property
    def steps(self) -> str:
        """What is computed, in a sentence."""

    @property
    def results(self) -> Results:
        """How results follow from records."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a result, those that are compared; live rows of EACH and UPDATES also have ``seq``."""

    @property
    def key(self) -> tuple[str, ...]:
        """Those columns that name a result: there is one row (or one last row) for each value of them."""

    @property
    def out_of_order_ms(self) -> int:
        """How much later than a newer one a record may come by event time; 0 without event time."""

    @property
    def bounded_records(self) -> int | None:
        """For throughput alone: so many records in all, there at once; None for workloads that are fed live."""

    def records(self, source: str, first: int, count: int, sent_us: int) -> list[Row]:
        """The records of a source from number ``first`` on; a function of its arguments alone."""

    def closing(self, source: str, first: int, sent_us: int) -> list[Row]:
        """Records after the last: they move event time on, so that every window closes; empty without windows."""

    def expected(self, records: Records) -> list[Row]:
        """The right results, computed without any of the engines."""

    def visible(self, records: Records) -> Visibility:
        """How to tell, from rows as they appear, how long each record (or each window) waited."""


class Visibility(Protocol):
    """What turns rows as they were seen into waits; it knows what was fed."""

    def waits_ms(self, seen_rows: Sequence[SeenRow]) -> list[Wait]:
        """How long each record, or each final result, waited until a reader saw it; those never seen are not in it."""


@dataclass(frozen=True)
class SeenRow:
    """A row as a reader saw it."""

    seen_us: int
    row: Row


@dataclass(frozen=True)
class Wait:
    """How long one record, or one final result, waited."""

    source: str
    sent_us: int
    """When the record was sent; for a final result, when the record was sent that made it final."""
    seen_us: int

    @property
    def wait_ms(self) -> float:
        """From sending to seeing."""
        return (self.seen_us - self.sent_us) / 1000


@dataclass(frozen=True)
class Launch:
    """How to start an engine as a process (tree): its root process lives until it is told to end (SIGTERM)."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of the one who starts it."""


@dataclass(frozen=True)
class Options:
    """What may differ between two measurements of one engine on one workload."""

    master: str = "local[2]"
    """How many cores one process of Spark (or, by its number, any other engine) uses."""
    partitions: int = 2
    """Shuffle partitions, slots or workers: what the engine calls its parallelism."""
    bounded: bool = False
    """All input is there at once (throughput): batches may be large. Otherwise latency counts."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings for engines that take them as names and values (Lockstep's ``--set``)."""


class Reader(Protocol):
    """A live reader of the engine's results, as any consumer of its output would read."""

    def poll(self) -> list[Row]:
        """The rows that became visible since the last call; cheap enough to be asked every few milliseconds."""


class Engine(Protocol):
    """One of the systems that are compared, in one configuration."""

    @property
    def name(self) -> str:
        """As on the command line: ``lockstep-2``, ``spark``, ``flink``, ``bytewax``, ``pathway``."""

    @property
    def title(self) -> str:
        """For tables and plots."""

    @property
    def guarantee(self) -> str:
        """What it promises about its output as configured here: exactly-once or at-least-once, and why."""

    def missing(self) -> str | None:
        """Why it cannot run on this machine, with what to do about it; None if it can."""

    def version(self) -> str:
        """Of the engine itself; only asked if nothing is missing."""

    def supports(self, workload: Workload) -> str | None:
        """Why it does not do this workload; None if it does."""

    def launch(self, workload: Workload, folder: Path, options: Options) -> Launch:
        """How to start it in ``folder``; starting it there again makes it go on where it was (recovery).

        To be asked right before each start: it also forgets that an earlier one was ready.
        """

    def ready(self, folder: Path) -> bool:
        """Whether it has started and waits for input (or reads it already)."""

    def settled(self, folder: Path) -> bool:
        """Whether it is also done with what it does once after a start; what is measured begins then."""

    def victim(self, folder: Path) -> int | None:
        """The process to kill -9, with its tree, as if a machine had died; None if there is none yet.

        What was started by :meth:`launch` repairs it: Lockstep's supervisor, Flink's job manager, or a loop that
        starts the program again at once. Nobody else has to do anything.
        """

    def reader(self, workload: Workload, folder: Path) -> Reader:
        """A live reader, from the first result on."""

    def rows(self, workload: Workload, folder: Path) -> list[Row]:
        """All that is published, in the order of publishing, as a consumer sees it after the end."""
