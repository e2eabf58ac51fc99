"""A micro-batch between Spark and this process, with as few calls into the JVM as it takes.

Every call wakes a thread there and this one again. PySpark makes thirty of them for each batch that it hands over and
that is brought back as Arrow: it builds a session object, asks for settings and for the schema, which are the same
every time, and says where it was called from. The last has a price of its own: afterwards Spark searches the stack for
each RDD that it makes. None of what is used here is part of PySpark's interface: its version is pinned, and a test
compares with the ordinary way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import pyarrow as pa
from py4j.java_gateway import java_import
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.serializers import NoOpSerializer
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.sql.streaming import DataStreamWriter
from pyspark.sql.utils import ForeachBatchFunction
from pyspark.util import _load_from_socket

_RESULT_SIZE = "spark.driver.maxResultSize"
"""Named by the error of a job whose results together are larger than this."""
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


def collected_up_to(batch: DataFrame, schema: pa.Schema, rows_max: int) -> pa.Table | None:
    """All rows of a batch, brought here, if there are at most ``rows_max``; None if there are more.

    Every task stops at one row more than that, so the memory that this takes is bounded. A task that stops early has
    not committed its state: after None the batch has to be run once more, as Spark does with a task that failed.
    """
    classes = _Classes.of(batch.sparkSession.sparkContext._gateway)
    plan = classes.limit(rows_max + 1, batch._jdf.queryExecution().executedPlan())
    try:
        port, secret, _ = classes.python_rdd.collectAndServe(batch._jdf.toArrowBatchRdd(plan))
    except (PySparkException, Py4JJavaError) as error:
        if _RESULT_SIZE not in str(error):
            raise
        return None
    batches: list[pa.RecordBatch] = []
    with _load_from_socket((port, secret), NoOpSerializer()) as stream:
        for body in stream:
            batches.append(pa.ipc.read_record_batch(pa.py_buffer(body), schema))
    if sum(one.num_rows for one in batches) > rows_max:
        return None
    return pa.Table.from_batches(batches, schema)


class _Classes:
    """Two classes of Spark's, looked up once: every name in a path is a call into the JVM."""

    _found: ClassVar[dict[int, _Classes]] = {}

    def __init__(self, gateway: Any) -> None:
        self.limit = gateway.jvm.org.apache.spark.sql.execution.LocalLimitExec
        self.python_rdd = gateway.jvm.org.apache.spark.api.python.PythonRDD

    @classmethod
    def of(cls, gateway: Any) -> _Classes:
        """Those of this JVM."""
        if id(gateway) not in cls._found:
            cls._found = {id(gateway): cls(gateway)}
        return cls._found[id(gateway)]
