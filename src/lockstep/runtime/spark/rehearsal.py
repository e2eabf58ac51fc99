"""A small stateful stream that touches what every job touches, run once to make the class archive.

``python -m lockstep.runtime.spark.rehearsal FILE`` ends when the JVM has written the archive to FILE.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from lockstep.config import SparkSettings
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.batches import collected, for_each_batch
from lockstep.runtime.spark.environment import open_session

EPOCHS = 4
_SCHEMA = "user string, ok boolean, at timestamp, amount double"


class RehearsalSource(DataSource):  # type: ignore[misc]
    """A few records per epoch."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "lockstep-rehearsal"

    def streamReader(self, schema: object) -> RehearsalReader:  # noqa: N802, ARG002
        """The only reader."""
        return RehearsalReader()


class RehearsalReader(DataSourceStreamReader):  # type: ignore[misc]
    """Answers one epoch after the other."""

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        """Before the first."""
        return {"epoch": -1}

    def latestOffset(self, start: dict[str, int], limit: object) -> dict[str, int]:  # noqa: N802, ARG002
        """The next one, at most EPOCHS."""
        return {"epoch": min(start["epoch"] + 1, EPOCHS)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """One task per epoch."""
        return [InputPartition(epoch) for epoch in range(start["epoch"] + 1, end["epoch"] + 1)]

    def read(self, partition: InputPartition) -> object:
        """Ten records, a minute apart from epoch to epoch."""
        second = 1_000_000
        yield pa.record_batch(
            {
                "user": pa.array([f"u{number}" for number in range(10)]),
                "ok": pa.array([number % 2 == 0 for number in range(10)]),
                "at": pa.array([partition.value * 60 * second + n for n in range(10)], pa.timestamp("us", "UTC")),
                "amount": pa.array([float(number) for number in range(10)]),
            }
        )


def main(target: str) -> None:
    """Run the rehearsal with a JVM that writes its archive when it ends."""
    os.environ.update(process_environment())
    with tempfile.TemporaryDirectory(prefix="lockstep-rehearsal-") as folder:
        conf = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={target}"}
        session = open_session("lockstep-rehearsal", SparkSettings(conf=conf), Path(folder))
        session.dataSource.register(RehearsalSource)
        frame = session.readStream.format("lockstep-rehearsal").schema(_SCHEMA).load()
        _stream(frame, Path(folder) / "checkpoint")
        gateway = session.sparkContext._gateway
        session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout=120)


def _stream(frame: DataFrame, checkpoint: Path) -> None:
    counts = (
        frame.withWatermark("at", "1 second")
        .filter("ok")
        .groupBy("user", sf.window("at", "10 seconds").alias("w"))
        .agg(sf.count("*").alias("n"), sf.sum(sf.col("amount").cast("decimal(38,18)")).alias("total"))
        .select(sf.lit(0).alias("sink"), sf.xxhash64("user", "n").alias("hash"), sf.struct("user", "n", "total"))
    )
    done: list[int] = []
    schema = to_arrow_schema(counts.schema, timezone="UTC")

    def epoch(batch: DataFrame, number: int) -> None:
        collected(batch, schema)
        done.append(number)

    query = for_each_batch(counts, epoch).option("checkpointLocation", str(checkpoint)).start()
    while len(done) < EPOCHS and query.isActive:
        time.sleep(0.05)
    if query.exception() is not None:
        raise query.exception()
    query.stop()


if __name__ == "__main__":
    main(sys.argv[1])
