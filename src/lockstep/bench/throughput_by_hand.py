"""The windowed count and sum as someone would write it in PySpark: what `lockstep bench throughput` compares with.

``python -m lockstep.bench.throughput_by_hand INPUT OUT FILES_PER_BATCH BATCHES COLUMN SCRATCH``. The same Spark
settings and Java options as a replica's; ends by itself after so many batches and leaves ``OUT/result.json``.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone writes it)
from pyspark.sql.streaming import StreamingQuery

from lockstep.bench.sales import OUT_OF_ORDER_S, SCHEMA, WINDOW_S
from lockstep.config import SparkSettings
from lockstep.runtime.spark.environment import open_session

_POLL_S = 0.02


def main() -> None:
    """The process of the hand-written query."""
    source, out, files, batches, column, scratch = sys.argv[1:]
    spark = open_session("by-hand", SparkSettings(master=os.environ["BENCH_MASTER"]), Path(scratch))
    frame = windows(spark, source, int(files), column)
    started_s = time.time()
    query = (
        frame.writeStream.outputMode("append")
        .foreachBatch(lambda rows, batch: rows.write.parquet(f"{out}/batch-{batch:06d}"))
        .option("checkpointLocation", f"{scratch}/checkpoint")
        .start()
    )
    reports = follow(query, int(batches))
    if reports:
        # Our first epoch is sealed when the query starts, so this one's first batch begins there too.
        reports[0]["begun_s"] = started_s
    Path(out, "result.json").write_text(json.dumps({"reports": reports}), encoding="utf-8")
    # The folder is thrown away, and so can the query be.
    os._exit(0 if reports else 1)


def windows(spark: SparkSession, source: str, files: int, column: str) -> DataFrame:
    """The query: sales per key and minute."""
    sales = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", files).json(source)
    return (
        sales.withWatermark("ts", f"{OUT_OF_ORDER_S} seconds")
        .groupBy("key", F.window("ts", f"{WINDOW_S} seconds"))
        .agg(F.count("*").alias("events"), F.sum(column).alias("total"))
        .select("key", F.col("window.start").alias("window_start"), "events", "total")
    )


def follow(query: StreamingQuery, batches: int, timeout_s: float = math.inf) -> list[dict[str, Any]]:
    """When each batch began and ended, in seconds since 1970, and how many records it had; empty if one is missing."""
    kept: dict[int, dict[str, Any]] = {}
    deadline_s = time.monotonic() + timeout_s
    while query.isActive and len(kept) < batches and time.monotonic() < deadline_s:
        for one in query.recentProgress:
            report = json.loads(one.json)
            if report["numInputRows"]:
                kept.setdefault(report["batchId"], times(report))
        time.sleep(_POLL_S)
    return [kept[batch] for batch in sorted(kept)] if len(kept) >= batches else []


def times(report: dict[str, Any]) -> dict[str, Any]:
    """When the batch of a progress report began and ended, and how many records it had."""
    begun_s = datetime.fromisoformat(report["timestamp"]).timestamp()
    took_s = report["durationMs"]["triggerExecution"] / 1000
    return {"begun_s": begun_s, "ended_s": begun_s + took_s, "records": report["numInputRows"]}


if __name__ == "__main__":
    main()
