"""The executors of a replica whose master is not local: who is there, who was lost, and running something on each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError
from pyspark import RDD
from pyspark.serializers import CPickleSerializer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DRIVER = "driver"
T = TypeVar("T")


@dataclass(frozen=True)
class Executor:
    """One of them, as Spark tells of it. ``removed`` is why it is gone; empty while it is there.

    One that is there without a host is about to be able to compute.
    """

    id: str
    host: str
    removed: str = ""


def executors(session: SparkSession) -> list[Executor]:
    """All that this session has had (Spark remembers a hundred of those that are gone); none if the JVM is gone."""
    try:
        found = session.sparkContext._jsc.sc().statusStore().executorList(False)
        listed = [found.apply(number) for number in range(found.size())]
        return [_executor(one) for one in listed if one.id() != _DRIVER]
    except (Py4JError, OSError):
        return []


def _executor(summary: Any) -> Executor:
    host = str(summary.hostPort()).rpartition(":")[0]
    if summary.isActive():
        return Executor(str(summary.id()), host)
    reason = summary.removeReason()
    first = str(reason.get()).splitlines()[0].strip() if reason.isDefined() and str(reason.get()).strip() else ""
    return Executor(str(summary.id()), host, first or "it was removed")


def on_each(session: SparkSession, targets: Sequence[Executor], function: Callable[[str], T]) -> list[T]:
    """What ``function``, given an executor's id, answers on each of them.

    Spark has no call for that, but it keeps to the places that a task prefers, an executor among them, as long as there
    is room within its patience (`spark.locality.wait`, 3 s).
    """
    serializer = CPickleSerializer()
    ids = [(one, bytearray(serializer.dumps(one.id))) for one in targets]
    rdd: RDD[str] = RDD(placed(session, ids), session.sparkContext, serializer)
    answers: list[T] = rdd.map(function).collect()
    return answers


def placed(session: SparkSession, values: Sequence[tuple[Executor, object]]) -> Any:
    """Values as an RDD of the JVM, each in a task for its executor."""
    context = session.sparkContext
    jvm: Any = context._jvm
    pairs = jvm.java.util.ArrayList()
    for one, value in values:
        preferred = jvm.PythonUtils.toSeq(_java_list(jvm, [f"executor_{one.host}_{one.id}"]))
        pairs.add(jvm.scala.Tuple2(value, preferred))
    tag = getattr(getattr(jvm.scala.reflect, "ClassTag$"), "MODULE$").apply(jvm.java.lang.Object._java_lang_class)
    made = context._jsc.sc().makeRDD(jvm.PythonUtils.toSeq(pairs), tag)
    return jvm.org.apache.spark.api.java.JavaRDD(made, tag)


def _java_list(jvm: Any, values: Sequence[str]) -> Any:
    made = jvm.java.util.ArrayList()
    for value in values:
        made.add(value)
    return made
