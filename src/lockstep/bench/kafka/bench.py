"""`lockstep bench kafka`: a backlog from topic to topic, beside hand-written PySpark with Spark's own connector.

Both sides read the same topic in batches of the same size, with the same Spark settings and Java options on
``local[2]``, and write to topics of their own; the broker is on the same machine. The first half of the backlog is to
warm up; the clock runs from the end of its last batch until the last record's epoch is committed (by hand: its batch).
The sides take turns, each turn in fresh processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa

from lockstep import services
from lockstep.bench.children import Child, killed, running
from lockstep.bench.kafka.connector import JARS, connector_jars
from lockstep.bench.kafka.load import (
    BATCHES,
    ORDERS,
    SCHEMA,
    SELECTION,
    TOTALS,
    Query,
    committed,
    differing,
    fill,
)
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import JobRun, Run, usage
from lockstep.bench.statistics import Row, median, spread
from lockstep.bench.throughput import Batches, Step, split
from lockstep.bench.topics import make_topics
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S
from lockstep.runtime.process_environment import process_environment

MASTER = "local[2]"
RATIO_LIMIT = 0.9
TIMEOUT_S = 300.0
JOB = "bench-kafka"
OURS, BY_HAND = "lockstep, one replica", "by hand, Spark's connector"


@dataclass(frozen=True)
class Size:
    """How much there is to read, and how much of it at once."""

    records: int
    batch_records: int


@dataclass(frozen=True)
class Turn(Batches):
    """One query on one side, once."""

    query: Query
    side: str
    cpu_us_per_record: float
    """Of the driver, its JVM and its workers in the second half; not of the broker."""
    differing: int


@dataclass(frozen=True)
class Place:
    """Where a turn happens."""

    servers: str
    topic: str
    folder: Path


def run_kafka(folder: Path, say: Say, *, quick: bool) -> Report:
    """Take turns, compare the results with an independent computation."""
    size = Size(200_000, 25_000) if quick else Size(500_000, 50_000)
    jars = connector_jars(say)
    sides = [OURS] if jars is None else [OURS, BY_HAND] if quick else [OURS, BY_HAND, BY_HAND, OURS]
    turns: list[Turn] = []
    with services.running("kafka", folder=folder / "services") as there:
        servers = there["kafka"].address
        make_topics(servers, ORDERS)
        say(f"sending {size.records:,} records")
        fill(servers, size.records)
        for query in (SELECTION, TOTALS):
            wanted = query.expected(size.records)
            for side in sides:
                place = _place(servers, folder, len(turns))
                turn = _turn(query, side, place, size, jars or "", wanted)
                say(
                    f"{query.name}, {side}: {turn.records_per_s:,.0f} records/s warm, "
                    f"{turn.cold_records_per_s:,.0f} from cold, {turn.cpu_us_per_record:.1f} µs of CPU a record"
                )
                turns.append(turn)
    return _report(size, turns, quick=quick)


def _place(servers: str, folder: Path, number: int) -> Place:
    place = Place(servers, f"out-{number}", folder / f"turn-{number}")
    place.folder.mkdir()
    make_topics(servers, place.topic)
    return place


def _turn(query: Query, side: str, place: Place, size: Size, jars: str, wanted: pa.Table) -> Turn:
    runs = _ours(query, place, size) if side == OURS else _by_hand(query, place, size, jars)
    with runs as (child, steps):
        cpu_us = _watched(child, steps, size)
        warm_up, warm = split(steps(), size.records // 2)
    found = query.result(committed(place.servers, place.topic))
    return Turn(warm_up, warm, query, side, cpu_us, differing(found, wanted))


def _watched(child: Child, steps: Callable[[], list[Step]], size: Size) -> float:
    """Wait until all is read; the CPU time of a record in the second half, in microseconds."""

    def done() -> int:
        return sum(step.records for step in steps())

    child.wait_until(lambda: done() >= size.records // 2, TIMEOUT_S, "reading half of the backlog")
    read, used_s = done(), usage(child.pid).cpu_s
    child.wait_until(lambda: done() >= size.records, TIMEOUT_S, "reading all of the backlog")
    return (usage(child.pid).cpu_s - used_s) * US_PER_S / max(1, size.records - read)


def job_text(query: Query, servers: str, topic: str) -> str:
    """Our side: the job that a user would write."""
    key = f', key="{query.key}"' if query.key else ""
    return f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
orders = job.source("orders", ls.kafka("{ORDERS}", servers="{servers}", schema="{SCHEMA}"))
result = {query.text}
result.to(ls.kafka("{topic}", servers="{servers}"{key}), name="out")
"""


def _settings(size: Size) -> dict[str, str]:
    """Epochs as large as the other side's batches, so that the size of a batch decides nothing."""
    names = ("records_per_epoch_min", "records_per_epoch_start", "records_per_epoch_max")
    return {
        **dict.fromkeys(names, str(size.batch_records)),
        "epoch_interval_s": "0",
        "epoch_target_s": "30",
        "spares": "0",
    }


@contextmanager
def _ours(query: Query, place: Place, size: Size) -> Iterator[tuple[Child, Callable[[], list[Step]]]]:
    text = job_text(query, place.servers, place.topic)
    with running(JobRun(Run(JOB, text, master=MASTER, settings=_settings(size)), place.folder)) as job:
        yield job, lambda: _epochs(job)


def _epochs(job: JobRun) -> list[Step]:
    found = [one for one in job.store.published(0, 1_000_000) if one.records]
    if not found:
        return []
    sealed_s = {
        entry.epoch: entry.epoch_time_us / US_PER_S for entry in job.store.entries(found[0].epoch, found[-1].epoch)
    }
    return [Step(sealed_s[one.epoch], one.published_us / US_PER_S, one.records) for one in found]


@contextmanager
def _by_hand(query: Query, place: Place, size: Size, jars: str) -> Iterator[tuple[Child, Callable[[], list[Step]]]]:
    words = [place.servers, place.topic, query.name, str(size.batch_records), jars, str(place.folder)]
    arguments = ["-m", "lockstep.bench.kafka.by_hand", *words]
    environment = {**process_environment(), "BENCH_MASTER": MASTER}
    log = place.folder / "query.log"
    with killed(Child("the hand-written query", arguments, log, place.folder, environment)) as child:
        yield child, lambda: batches(place.folder / BATCHES)


def batches(notes: Path) -> list[Step]:
    """What the hand-written query noted of its batches so far, whole lines alone."""
    if not notes.exists():
        return []
    whole = notes.read_text(encoding="utf-8").rpartition("\n")[0]
    return [Step(**json.loads(line)) for line in whole.splitlines()]


def _report(size: Size, turns: Sequence[Turn], *, quick: bool) -> Report:
    verdicts = [Verdict("rows that differ from an independent computation", sum(one.differing for one in turns), 0)]
    tables = []
    for query in (SELECTION, TOTALS):
        ours, by_hand = ([one for one in turns if (one.query, one.side) == (query, side)] for side in (OURS, BY_HAND))
        tables.append(Figures(query.name, [_row(side) for side in (ours, by_hand) if side]))
        if by_hand:
            ratio = _rate(ours) / _rate(by_hand)
            verdicts.append(Verdict(f"{query.name}: records/s against by hand", ratio, RATIO_LIMIT, at_least=True))
    tables.append(Figures("each turn, in its order", [_turn_row(turn) for turn in turns]))
    return Report(
        bench="kafka",
        quick=quick,
        settings={
            **asdict(size),
            "master": MASTER,
            "set": _settings(size),
            "jobs": [job_text(query, "SERVERS", "out") for query in (SELECTION, TOTALS)],
            "connector": [":".join(jar) for jar in JARS],
            "cores": os.cpu_count(),
        },
        tables=tables,
        verdicts=verdicts,
        notes=_notes(turns),
    )


def _notes(turns: Sequence[Turn]) -> list[str]:
    notes = [
        "epochs and batches have the same number of records; our epochs are sealed back to back",
        "our side publishes exactly once: one transaction an epoch, with its fence; it has no spare, which would boot "
        "while it is measured",
    ]
    if not any(turn.side == BY_HAND for turn in turns):
        return [*notes, "Spark's own connector could not be had here, so there is nothing to compare with"]
    return [
        *notes,
        "Spark's connector writes at least once: without a transaction, and again after a failure",
        f"it is that of {JARS[0][2]} on PySpark 4.3.0, for which none is published",
    ]


def _rate(turns: Sequence[Turn]) -> float:
    return median([turn.records_per_s for turn in turns])


def _row(turns: Sequence[Turn]) -> Row:
    return {
        "side": turns[0].side,
        "records_per_s": _rate(turns),
        "spread": spread([turn.records_per_s for turn in turns]),
        "from_cold_per_s": median([turn.cold_records_per_s for turn in turns]),
        "cpu_us_per_record": median([turn.cpu_us_per_record for turn in turns]),
        "median_batch_s": median([step.ended_s - step.begun_s for turn in turns for step in turn.steps]),
    }


def _turn_row(turn: Turn) -> Row:
    return {
        "query": turn.query.name,
        "side": turn.side,
        "records_per_s": turn.records_per_s,
        "from_cold_per_s": turn.cold_records_per_s,
        "cpu_us_per_record": turn.cpu_us_per_record,
        "batches": len(turn.steps),
        "rows_differing": turn.differing,
    }
