"""The running totals as someone would write them in PySpark: the side that `lockstep bench change` compares with.

``python -m lockstep.bench.change.by_hand FOLDER PARTITIONS CODE REPARTITIONED``. Reads files of JSON lines from
``FOLDER/input`` and writes one Parquet file per batch into ``FOLDER/batches``. If its checkpoint is in another number
of partitions it has Spark lay it out anew before it starts. What it did when is in ``FOLDER/marks.log``. It ends when
its standard input does, after the batch under way.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone writes it)
from pyspark.sql.streaming import StreamingQuery

from lockstep.bench.change.marks import mark
from lockstep.bench.observer import epoch_file

FAST_FILES = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
POLL_S = 0.02


def main() -> None:
    """The process of the hand-written query."""
    folder, partitions, code, repartitioned = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    stop = threading.Event()
    threading.Thread(target=listen, args=(stop,), daemon=True).start()
    spark = session(partitions)
    mark(folder, "booted")
    checkpoint = folder / "checkpoint"
    if (held := newest_partitions(folder)) not in (None, partitions):
        finish_batch(spark, folder, code, repartitioned, held or 1)
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        spark._streamingCheckpointManager.repartition(str(checkpoint), partitions)
        repartitioned += 1
        mark(folder, "repartitioned")
    (folder / "partitions").write_text(f"{partitions} {repartitioned}", encoding="utf-8")
    mark(folder, "prepared")
    query = started(spark, folder, code, repartitioned)
    while query.isActive and not stop.wait(POLL_S):
        pass
    failed = not query.isActive
    query.stop()
    mark(folder, "stopped")
    sys.exit(1 if failed else 0)


def session(partitions: int) -> SparkSession:
    """As Spark's guide to tuning has it: the shuffle partitions that are wanted, state in RocksDB."""
    builder = SparkSession.builder.master("local[1]").appName("by-hand")
    settings = {
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.ui.enabled": "false",
        "spark.sql.streaming.checkpointFileManagerClass": FAST_FILES,
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def newest_partitions(folder: Path) -> int | None:
    """In how many partitions the checkpoint is, as the process before noted; None for a new one."""
    path = folder / "partitions"
    return int(path.read_text(encoding="utf-8").split()[0]) if path.exists() else None


def finish_batch(spark: SparkSession, folder: Path, code: str, repartitioned: int, partitions: int) -> None:
    """Spark lays out only the state of a batch that was committed: one that a stop cut off is run to its end."""
    newest = [
        max((int(one.name) for one in (folder / "checkpoint" / log).iterdir() if one.name.isdigit()), default=-1)
        for log in ("offsets", "commits")
    ]
    if newest[0] > newest[1]:
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        started(spark, folder, code, repartitioned, until_done=True).awaitTermination()
    mark(folder, "batch-finished")


def started(
    spark: SparkSession, folder: Path, code: str, repartitioned: int, *, until_done: bool = False
) -> StreamingQuery:
    """The query. Repartitioning adds a batch that writes nothing: files are numbered without those."""
    batches = folder / "batches"
    batches.mkdir(exist_ok=True)
    writer = (
        totals(spark, folder / "input", code)
        .writeStream.outputMode("update")
        .foreachBatch(lambda frame, batch: write(frame, batch - repartitioned, batches))
        .option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if until_done else writer).start()


def totals(spark: SparkSession, folder: Path, code: str) -> DataFrame:
    """Events and the sum of their numbers, per customer so far; the new code has a filter more."""
    events = spark.readStream.schema("seq bigint, customer string, at_us bigint").json(str(folder))
    if code == "new":
        events = events.filter("seq >= 0")
    return events.groupBy("customer").agg(F.count("*").alias("events"), F.sum("seq").alias("total"))


def write(frame: DataFrame, number: int, folder: Path) -> None:
    """One Parquet file per batch; renamed, so that a reader sees it whole and a batch that runs again replaces it."""
    temporary = folder / f".{number}.tmp"
    pq.write_table(frame.toArrow(), temporary)
    temporary.rename(epoch_file(folder, number, ".parquet"))


def listen(stop: threading.Event) -> None:
    """Stop when standard input ends."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main()
