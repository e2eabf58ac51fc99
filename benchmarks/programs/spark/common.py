"""What the programs for Spark share: the session as someone who knows Spark would set it up, and the publishing.

Results of a batch go into one file (live), or one folder written by the executors (much input at once), named by the
batch and renamed into place: a batch that runs again after a crash replaces its own result, so output is exactly-once.
"""

import json
import os
import shutil
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

OUTPUT = Path("output")
BOUNDED = os.environ.get("BENCH_BOUNDED") == "1"
FILES_PER_BATCH_BOUNDED = 25


def session(name: str) -> SparkSession:
    """A local session: as many shuffle partitions as cores, no web pages, no `chmod` process for every small file."""
    # The workers' Python is this one, not whichever is first on the path; and nothing listens beyond this machine.
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    builder = SparkSession.builder.appName(name).master(os.environ["BENCH_MASTER"])
    settings = {
        "spark.sql.shuffle.partitions": os.environ["BENCH_PARTITIONS"],
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        ),
        "spark.sql.streaming.metricsEnabled": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def read(spark: SparkSession, source: str, schema: str) -> DataFrame:
    """A source of the benchmark as a stream."""
    reader = spark.readStream.schema(schema)
    if BOUNDED:
        reader = reader.option("maxFilesPerTrigger", FILES_PER_BATCH_BOUNDED)
    return reader.json(f"input/{source}")


def run(frame: DataFrame, mode: str) -> None:
    """Run the query until the process is ended."""
    query = (
        frame.writeStream.outputMode(mode)
        .foreachBatch(publish_in_parallel if BOUNDED else publish)
        .option("checkpointLocation", "work/checkpoint")
        .start()
    )
    Path("work/ready").touch()
    query.awaitTermination()


def publish(frame: DataFrame, batch: int) -> None:
    """The rows of a batch in one file of JSON lines; small results are quickest through the driver."""
    rows = frame.toArrow().to_pylist()
    if rows:
        staged = Path("work", f"{batch:08d}.jsonl")
        staged.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        staged.replace(OUTPUT / staged.name)


def publish_in_parallel(frame: DataFrame, batch: int) -> None:
    """The rows of a batch in a folder of files, written by the executors."""
    staged, target = Path("work", f"{batch:08d}.out"), OUTPUT / f"{batch:08d}"
    frame.write.mode("overwrite").json(str(staged))
    shutil.rmtree(target, ignore_errors=True)
    staged.rename(target)
