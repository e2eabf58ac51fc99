"""A micro-batch between Spark and this process, with as few calls into the JVM as it takes.

Every call wakes a thread there and this one again. PySpark makes thirty of them for each batch that it hands over and
that is brought back as Arrow: it builds a session object, asks for settings and for the schema, which are the same
every time, and says where it was called from. The last has a price of its own: afterwards Spark searches the stack for
each RDD that it makes. None of what is used here is part of PySpark's interface: its version is pinned, and a test
compares with the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from py4j.java_gateway import java_import
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.utils import ForeachBatchFunction
from pyspark.util import _load_from_socket

OnBatch = Callable[[DataFrame, int], None]


class _Handed(ForeachBatchFunction):  # type: ignore[misc]
    """Spark's own function for batches, except that the session is the one that there is."""

    def call(self, batch: Any, number: int) -> None:
        """Called by the JVM."""
        try:
            self.func(DataFrame(batch, self.session), number)
        except Exception as error:
            self.error = error
            raise


def for_each_batch(frame: DataFrame, on_batch: OnBatch) -> DataStreamWriter:
    """A writer that gives every micro-batch of a streaming frame to a function: ``foreachBatch``."""
    session = frame.sparkSession
    gateway = session.sparkContext._gateway
    writer = frame.writeStream
    java_import(gateway.jvm, "org.apache.spark.sql.execution.streaming.sources.*")
    gateway.jvm.PythonForeachBatchHelper.callForeachBatch(writer._jwrite, _Handed(session, on_batch))
    ensure_callback_server_started(gateway)
    return writer


def collected(batch: DataFrame, schema: pa.Schema) -> pa.Table:
    """All rows of a batch with this schema, brought here: ``toArrow``."""
    port, secret, server = batch._jdf.collectAsArrowToPython()
    try:
        with _load_from_socket((port, secret), ArrowCollectSerializer()) as stream:
            batches = list(stream)
    finally:
        with unwrap_spark_exception():
            server.getResult()
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()
