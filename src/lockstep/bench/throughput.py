"""`lockstep bench throughput`: windowed count and sum over JSON lines in files, beside hand-written PySpark.

Both sides read the same files, two per batch, with the same Spark settings and Java options on ``local[2]``, and write
Parquet. Each first reads some files to warm up; the clock runs from the end of the last batch of those until the last
record's epoch is published (by hand: its batch committed). The sides take turns, each turn in fresh processes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lockstep.bench import sales
from lockstep.bench.children import Child, killed, running
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.sales import Sales, differing, expected, in_order, write_sales
from lockstep.bench.statistics import Row, median, spread
from lockstep.bench.workspace import Say
from lockstep.clock import US_PER_S
from lockstep.connect.reading import Reader, read
from lockstep.runtime.process_environment import process_environment

MASTER = "local[2]"
FILES_PER_BATCH = 2
RATIO_LIMIT = 0.9
TIMEOUT_S = 600.0
JOB = "bench-throughput"
OURS, BY_HAND = "lockstep, one replica", "by hand, same settings"


@dataclass(frozen=True)
class Step:
    """One batch or epoch with records: when it began (was sealed), when it ended (was published)."""

    begun_s: float
    ended_s: float
    records: int


@dataclass(frozen=True)
class Batches:
    """What one side did in one turn, the first batches to warm up."""

    warm_up: Sequence[Step]
    steps: Sequence[Step]

    @property
    def records_per_s(self) -> float:
        """Warm: from the end of the warm-up on."""
        return rate(self.steps, self.warm_up[-1].ended_s)

    @property
    def cold_records_per_s(self) -> float:
        """The whole input, from the beginning of the first batch."""
        return rate([*self.warm_up, *self.steps], self.warm_up[0].begun_s)


@dataclass(frozen=True)
class Turn(Batches):
    """One side, once: its batches and what came out."""

    side: str
    rows: pa.Table | None


@dataclass(frozen=True)
class Variant:
    """Which column is added up, and how."""

    column: str = "amount"
    exact_floats: bool = True


def rate(steps: Sequence[Step], since_s: float) -> float:
    """Records per second from ``since_s`` to the last step's end.

    >>> rate([Step(1.0, 2.0, 100), Step(2.5, 4.0, 100)], since_s=0.0)
    50.0
    """
    return sum(step.records for step in steps) / (steps[-1].ended_s - since_s)


def split(steps: Sequence[Step], warm_up_records: int) -> tuple[list[Step], list[Step]]:
    """The steps of the warm-up and those that count, without the ones of the closing records.

    >>> steps = [Step(0, 1, 60), Step(1, 2, 60), Step(2, 3, 60), Step(3, 4, 2)]
    >>> [len(part) for part in split(steps, warm_up_records=100)]
    [2, 1]
    """
    of_sales = [step for step in steps if step.records > sales.CLOSING_FILES]
    read, cold = 0, 0
    while read < warm_up_records:
        read += of_sales[cold].records
        cold += 1
    return of_sales[:cold], of_sales[cold:]


def run_throughput(folder: Path, say: Say, *, quick: bool) -> Report:
    """Take turns, compare the results with each other and with an independent computation."""
    size = Sales(50_000, 2, 6) if quick else Sales(100_000, 4, 20)
    source = folder / "sales"
    say(f"writing {size.records:,} JSON lines into {size.files} files")
    write_sales(source, size)
    wanted = expected(source)
    order = (OURS, BY_HAND) if quick else (OURS, BY_HAND, BY_HAND, OURS)
    turns = []
    for number, side in enumerate(order):
        turn = _turn(side, source, folder / f"turn-{number}", size, Variant())
        say(f"{side}: {turn.records_per_s:,.0f} records/s warm, {turn.cold_records_per_s:,.0f} from cold")
        turns.append(turn)
    floats = [] if quick else _floats(source, folder, size, say)
    return _report(size, turns, wanted, floats, quick=quick)


def _floats(source: Path, folder: Path, size: Sales, say: Say) -> list[Row]:
    """The same with a sum of doubles: exact (the default: the same in any order of adding) and not."""
    rows: list[Row] = []
    for number, (side, exact) in enumerate(((OURS, True), (OURS, False), (BY_HAND, False))):
        turn = _turn(side, source, folder / f"floats-{number}", size, Variant("price", exact))
        say(f"{side}, sum of doubles, exact {exact}: {turn.records_per_s:,.0f} records/s")
        rows.append({"side": side, "exact": exact, "records_per_s": turn.records_per_s})
    return rows


def _turn(side: str, source: Path, place: Path, size: Sales, variant: Variant) -> Turn:
    place.mkdir()
    return _ours(source, place, size, variant) if side == OURS else _by_hand(source, place, size, variant)


def job_text(source: Path, variant: Variant) -> str:
    """Our side: the job that a user would write."""
    return f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("sales", ls.files("{source}", schema="{sales.SCHEMA}"))
    .event_time("ts", out_of_order="{sales.OUT_OF_ORDER_S} seconds")
    .key_by("key")
    .window(ls.tumbling("{sales.WINDOW_S} seconds"))
    .agg(events=F.count("*"), total=F.sum("{variant.column}"), exact_floats={variant.exact_floats})
    .to(ls.files("{SINK_FOLDER}")))
"""


def _settings(size: Sales) -> dict[str, str]:
    """Epochs as large as the other side's batches, so that the size of a batch decides nothing."""
    records = str(size.records_per_file * FILES_PER_BATCH)
    names = ("records_per_epoch_min", "records_per_epoch_start", "records_per_epoch_max")
    return {**dict.fromkeys(names, records), "epoch_interval_s": "0", "epoch_target_s": "30"}


def _ours(source: Path, place: Path, size: Sales, variant: Variant) -> Turn:
    run = Run(JOB, job_text(source, variant), master=MASTER, settings=_settings(size))
    everything = size.records + sales.CLOSING_FILES
    with running(JobRun(run, place)) as job:
        job.wait_until(lambda: _published(job) >= everything, TIMEOUT_S, "reading all files")
        # The closing records are read; the windows they close come with one of the next heartbeats.
        wanted = _window_count(source)
        job.wait_until(lambda: read(place / SINK_FOLDER).num_rows >= wanted, TIMEOUT_S, "closing all windows")
        publications = job.store.published(0, 1_000_000)
    reader = Reader(place / SINK_FOLDER)
    sealed_s = {one.epoch: one.epoch_time_us / US_PER_S for one in reader.publications()}
    steps = [Step(sealed_s[one.epoch], one.published_us / US_PER_S, one.records) for one in publications if one.records]
    return Turn(*split(steps, size.warm_up_records), OURS, _compared(read(place / SINK_FOLDER), variant))


def _published(job: JobRun) -> int:
    return sum(one.records for one in job.store.published(0, 1_000_000))


def _by_hand(source: Path, place: Path, size: Sales, variant: Variant) -> Turn:
    out, scratch = place / "out", place / "scratch"
    batches = -(-size.files // FILES_PER_BATCH) + sales.CLOSING_FILES // FILES_PER_BATCH
    counts = [str(FILES_PER_BATCH), str(batches)]
    arguments = [
        "-m",
        "lockstep.bench.throughput_by_hand",
        str(source),
        str(out),
        *counts,
        variant.column,
        str(scratch),
    ]
    environment = {**process_environment(), "BENCH_MASTER": MASTER}
    for folder in (out, scratch):
        folder.mkdir()
    with killed(Child("the hand-written query", arguments, place / "query.log", place, environment)) as query:
        query.wait_end(TIMEOUT_S)
    reports = json.loads((out / "result.json").read_text(encoding="utf-8"))["reports"]
    rows = pa.concat_tables([pq.read_table(path) for path in sorted(out.glob("batch-*"))])
    steps = [Step(**report) for report in reports]
    return Turn(*split(steps, size.warm_up_records), BY_HAND, _compared(rows, variant))


def _window_count(source: Path) -> int:
    return int(expected(source).num_rows)


def _compared(rows: pa.Table, variant: Variant) -> pa.Table | None:
    """The rows ready to be compared; sums of doubles are not, since by hand they depend on the order of adding."""
    return in_order(rows) if variant.column == "amount" else None


def _report(size: Sales, turns: Sequence[Turn], wanted: pa.Table, floats: Sequence[Row], *, quick: bool) -> Report:
    ours, by_hand = ([turn for turn in turns if turn.side == side] for side in (OURS, BY_HAND))
    ratio = median([turn.records_per_s for turn in ours]) / median([turn.records_per_s for turn in by_hand])
    different = sum(differing(turn.rows, wanted) for turn in turns if turn.rows is not None)
    tables = [
        Figures("records per second", [_row(OURS, ours), _row(BY_HAND, by_hand)]),
        Figures("each turn, in its order", [_turn_row(turn) for turn in turns]),
    ]
    if floats:
        tables.append(Figures("the same with a sum of doubles", floats))
    return Report(
        bench="throughput",
        quick=quick,
        settings={
            **asdict(size),
            "files_per_batch": FILES_PER_BATCH,
            "master": MASTER,
            "set": _settings(size),
            "job": job_text(Path("sales"), Variant()),
            "cores": os.cpu_count(),
        },
        tables=tables,
        verdicts=[
            Verdict("records/s against by hand", ratio, RATIO_LIMIT, at_least=True),
            Verdict(f"rows that differ from an independent computation ({wanted.num_rows:,} windows)", different, 0),
        ],
        notes=[
            "epochs and batches have the same number of records; our epochs are sealed back to back",
            "from cold counts everything from the first epoch sealed (by hand: from the start of the query) on",
            "our side also fixes the order of files, hashes what it reads and fingerprints what it writes",
        ],
    )


def _row(side: str, turns: Sequence[Turn]) -> Row:
    rates = [turn.records_per_s for turn in turns]
    return {
        "side": side,
        "records_per_s": median(rates),
        "spread": spread(rates),
        "from_cold_per_s": median([turn.cold_records_per_s for turn in turns]),
        "batches": len(turns[0].steps),
        "median_batch_s": median([step.ended_s - step.begun_s for turn in turns for step in turn.steps]),
    }


def _turn_row(turn: Turn) -> Row:
    return {
        "side": turn.side,
        "first_batch_s": turn.warm_up[0].ended_s - turn.warm_up[0].begun_s,
        "seconds": turn.steps[-1].ended_s - turn.warm_up[-1].ended_s,
        "records_per_s": turn.records_per_s,
        "from_cold_per_s": turn.cold_records_per_s,
        "rows": turn.rows.num_rows if turn.rows is not None else None,
    }
