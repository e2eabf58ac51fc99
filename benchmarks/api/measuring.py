"""One side of a workload, measured: seconds for each epoch after the warm-up, and what came out."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import lockstep as ls
from benchmarks.api.events import SCHEMA, Size, hand_over
from benchmarks.api.workloads import RULES_SCHEMA, Workload
from lockstep.bench.throughput_by_hand import follow
from lockstep.errors import RunError
from lockstep.testing.trial import Trial

LOOK_S = 0.4
"""A watched folder is looked at this often: what is handed over has been seen by then."""
TIMEOUT_S = 600.0

Files = Mapping[str, list[Path]]


@dataclass(frozen=True)
class Measured:
    """How long the epochs that count took, and the rows of all epochs."""

    seconds: list[float]
    rows: pa.Table


def ours(session: SparkSession, folder: Path, workload: Workload, files: Files, size: Size) -> Measured:
    """The job as a replica runs it, an epoch for each file; from its seal until Spark has committed it."""
    job = ls.Job("bench-api")
    streams = {
        name: job.source(name, ls.files(f"in/{name}", schema=RULES_SCHEMA if name == "rules" else SCHEMA))
        for name in files
    }
    workload.ours(streams).to(ls.files("out"))
    trial = Trial(session, job, folder, {"rows_through_driver_max": 100_000})
    seconds = []
    try:
        trial.start("r0", partitions=2, tasks=2)
        for number in range(size.files):
            for name, paths in files.items():
                if number < len(paths):
                    hand_over(paths[number], folder / "in" / name)
            time.sleep(LOOK_S)
            began_s = time.monotonic()
            trial.wait(trial.seal(1).epoch)
            seconds.append(time.monotonic() - began_s)
        return Measured(seconds[size.warm_up :], trial.table())
    finally:
        trial.close()


def by_hand(session: SparkSession, folder: Path, workload: Workload, files: Files, size: Size) -> Measured:
    """The hand-written query over the same files, one of each source a batch, as Spark reports its batches."""
    assert workload.by_hand is not None
    own = session.newSession()
    own.conf.set("spark.sql.shuffle.partitions", "2")
    frames = {
        name: own.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(paths[0].parent))
        for name, paths in files.items()
    }
    query = (
        workload.by_hand(frames)
        .writeStream.outputMode(workload.output_mode)
        .foreachBatch(lambda rows, batch: rows.write.parquet(str(folder / f"out/{batch:03}")))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start()
    )
    batches = follow(query, size.files, TIMEOUT_S)
    failed = query.exception()
    query.stop()
    if failed is not None or not batches:
        raise RunError("LS0630", f"the hand-written query for {workload.name} failed", why=str(failed)[:500])
    seconds = [batch["ended_s"] - batch["begun_s"] for batch in batches]
    return Measured(seconds[size.warm_up :], pq.read_table(sorted(folder.glob("out/*/*.parquet"))))
