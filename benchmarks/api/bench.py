"""Runs the workloads, each side in turn, and puts the figures side by side."""

from __future__ import annotations

import statistics
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.api.events import Size, write_events, write_rules
from benchmarks.api.measuring import Files, Measured, by_hand, ours
from benchmarks.api.workloads import WORKLOADS, Workload
from lockstep.bench.report import Figures, Report, Verdict
from lockstep.bench.statistics import Row
from lockstep.bench.workspace import Say
from lockstep.testing.session import opened_session

CORES = 2
RULES = 10
_NOTES = (
    "an epoch of ours counts from its seal until Spark has committed it, a hand-written batch as Spark reports it; "
    "both read the same JSON lines, with the same Spark settings, and write Parquet.",
    "Spark has no broadcast state: the broadcast join stands alone.",
)


def run_api(folder: Path, say: Say, *, quick: bool) -> Report:
    """Measure every workload."""
    size = Size(50_000, 2, 2) if quick else Size(200_000, 2, 4)
    rows: list[Row] = []
    verdicts: list[Verdict] = []
    with opened_session(folder / "scratch", CORES, conf={}) as session:
        for number, workload in enumerate(WORKLOADS):
            say(f"{workload.name}: {size.files} epochs of {size.records:,} records")
            row = _measured(session, folder / f"{number:02}", workload, size)
            say(", ".join(f"{key} {value}" for key, value in row.items() if key != "operator"))
            rows.append(row)
            if workload.ratio_min is not None:
                ratio = float(row["ratio"])  # type: ignore[arg-type]
                verdicts.append(Verdict(f"{workload.name}, ours / by hand", ratio, workload.ratio_min, at_least=True))
    settings = {"records_per_epoch": size.records, "epochs": size.epochs, "warm_up": size.warm_up, "cores": CORES}
    return Report("api", quick, settings, [Figures("events per second", rows)], verdicts, _NOTES)


def _measured(session: SparkSession, folder: Path, workload: Workload, size: Size) -> Row:
    files: dict[str, list[Path]] = {
        name: write_events(folder / "files" / name, size, workload.keys, seed)
        for seed, name in enumerate(workload.streams)
    }
    if workload.rules:
        files["rules"] = write_rules(folder / "files" / "rules", RULES)
    mine = ours(session, folder / "ours", workload, files, size)
    theirs = by_hand(session, folder / "by-hand", workload, files, size) if workload.by_hand is not None else None
    return _row(workload, size, files, mine, theirs)


def _row(workload: Workload, size: Size, files: Files, mine: Measured, theirs: Measured | None) -> Row:
    records = size.records * len([name for name in files if name != "rules"])
    own = records / statistics.median(mine.seconds)
    hand = records / statistics.median(theirs.seconds) if theirs is not None else None
    return {
        "operator": workload.name,
        "lockstep": round(own),
        "by_hand": round(hand) if hand is not None else None,
        "ratio": own / hand if hand is not None else None,
        "rows_out": mine.rows.num_rows,
        "same_rows": same_rows(mine.rows, theirs.rows) if theirs is not None else None,
    }


def same_rows(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables have the same rows, in any order."""
    wanted = pa.schema([field.with_nullable(True) for field in left.schema])
    names = [(name, "ascending") for name in left.column_names]
    other = right.select(left.column_names).cast(wanted)
    return bool(left.cast(wanted).sort_by(names).equals(other.sort_by(names)))
