"""The count by key as someone would write it in PySpark: the side that `lockstep bench latency` compares with.

``python -m lockstep.bench.latency_by_hand PORT OUT SHUFFLE_PARTITIONS`` (0: Spark's default of 200). Reads JSON lines
from a socket, the source of Spark's own guide and the quickest it has without Kafka; writes one Parquet file per batch,
renamed into place; and appends Spark's report about each batch to ``OUT/progress.jsonl``. It ends when its standard
input does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone writes it)
from pyspark.sql.streaming import StreamingQuery

from lockstep.bench.observer import epoch_file

REPORT_INTERVAL_S = 1.0
"""Spark keeps its newest 100 reports: at 50 ms per batch those are 5 s."""


def main() -> None:
    """The process of the hand-written query."""
    port, out, partitions = int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    builder = SparkSession.builder.master("local[1]").appName("by-hand")
    if partitions:
        builder = builder.config("spark.sql.shuffle.partitions", str(partitions))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    batches = out / "batches"
    batches.mkdir(parents=True)
    query = (
        counts(spark, port)
        .writeStream.outputMode("update")
        .foreachBatch(lambda frame, batch: write(frame, batch, batches))
        .option("checkpointLocation", str(out / "checkpoint"))
        .start()
    )
    stop = threading.Event()
    threading.Thread(target=listen, args=(stop,), daemon=True).start()
    follow(query, out / "progress.jsonl", stop)
    # Stopping inside a batch makes noise and gains nothing: the folder is thrown away.
    os._exit(0 if query.isActive else 1)


def listen(stop: threading.Event) -> None:
    """Stop when standard input ends: whoever started this process is gone or done with it."""
    sys.stdin.read()
    stop.set()


def counts(spark: SparkSession, port: int) -> DataFrame:
    """The query: events per customer so far."""
    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port).load()
    record = F.from_json("value", "seq bigint, customer string, at_us bigint")
    events = lines.select(record.alias("event")).select("event.*")
    return events.groupBy("customer").agg(F.count("*").alias("events"), F.max("seq").alias("last_seq"))


def write(frame: DataFrame, batch: int, folder: Path) -> None:
    """One Parquet file per batch; renamed, so that a reader sees it whole."""
    temporary = folder / f".{batch}.tmp"
    pq.write_table(frame.toArrow(), temporary)
    temporary.rename(epoch_file(folder, batch, ".parquet"))


def follow(query: StreamingQuery, path: Path, stop: threading.Event) -> None:
    """Keep Spark's report about every batch, until told to stop."""
    written = -1
    with path.open("w", encoding="utf-8", buffering=1) as log:
        while query.isActive and not stop.wait(REPORT_INTERVAL_S):
            for one in query.recentProgress:
                report: dict[str, Any] = json.loads(one.json)
                if report["batchId"] > written and report["numInputRows"]:
                    written = report["batchId"]
                    log.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
