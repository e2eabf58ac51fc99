"""The queries as someone would write them in PySpark: what `lockstep bench kafka` compares with.

``python -m lockstep.bench.kafka.by_hand SERVERS TARGET QUERY BATCH_RECORDS JARS FOLDER``. The same Spark settings and
Java options as a replica's. Each batch with records is noted in ``FOLDER/batches``; it runs until it is ended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone writes it)
from pyspark.sql.streaming import StreamingQuery

from lockstep.bench.kafka.load import BATCHES, LEAST_AMOUNT, ORDERS, SCHEMA, TOTALS
from lockstep.bench.throughput_by_hand import times
from lockstep.config import SparkSettings
from lockstep.runtime.spark.environment import open_session

_POLL_S = 0.02


def main() -> None:
    """The process of a hand-written query."""
    servers, target, name, records, jars, folder = sys.argv[1:]
    spark = session(os.environ["BENCH_MASTER"], jars, Path(folder))
    orders = source(spark, servers, ORDERS, {"maxOffsetsPerTrigger": records})
    frame = totals(orders) if name == TOTALS.name else selection(orders)
    mode = "update" if name == TOTALS.name else "append"
    follow(written(frame, mode, servers, target, Path(folder, "checkpoint")), Path(folder))


def session(master: str, jars: str, folder: Path) -> SparkSession:
    """Spark as a replica has it, and the connector."""
    return open_session("by-hand", SparkSettings(master=master, conf={"spark.jars": jars}), folder)


def source(spark: SparkSession, servers: str, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """The orders, parsed."""
    read = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    values = read.option("startingOffsets", "earliest").options(**(options or {})).load()
    return values.select(F.from_json(F.col("value").cast("string"), SCHEMA).alias("order")).select("order.*")


def selection(orders: DataFrame) -> DataFrame:
    """Filter and select."""
    kept = orders.filter(f"amount >= {LEAST_AMOUNT}").selectExpr("seq", "user", "amount * 2 AS doubled")
    return kept.select(F.to_json(F.struct("*")).alias("value"))


def totals(orders: DataFrame) -> DataFrame:
    """Totals by user."""
    sums = orders.groupBy("user").agg(
        F.count("*").alias("n"), F.sum("amount").alias("total"), F.max("seq").alias("newest")
    )
    return sums.select(F.col("user").alias("key"), F.to_json(F.struct("*")).alias("value"))


def written(frame: DataFrame, mode: str, servers: str, topic: str, checkpoint: Path) -> StreamingQuery:
    """To a topic."""
    writer = frame.writeStream.outputMode(mode).format("kafka").option("kafka.bootstrap.servers", servers)
    return writer.option("topic", topic).option("checkpointLocation", str(checkpoint)).start()


def follow(query: StreamingQuery, folder: Path) -> None:
    """Note when each batch began and ended and how many records it had, a line each, for as long as it runs."""
    noted = -1
    with (folder / BATCHES).open("a", encoding="utf-8") as notes:
        while query.isActive:
            for one in query.recentProgress:
                report = json.loads(one.json)
                if report["batchId"] > noted and report["numInputRows"]:
                    noted = report["batchId"]
                    notes.write(json.dumps(times(report)) + "\n")
                    notes.flush()
            time.sleep(_POLL_S)
    raise SystemExit(str(query.exception() or "the query has ended"))


if __name__ == "__main__":
    main()
