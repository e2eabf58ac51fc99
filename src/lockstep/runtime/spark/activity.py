"""What moves inside an epoch: how many tasks Spark has done, how many rows they have read and written so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Activity:
    """Spark's work at one moment, over the stages that run. Anything that differs from before is progress."""

    tasks: int = 0
    tasks_done: int = 0
    rows: int = 0
    """Read, shuffled and written. Of tasks that run they are known with the executors' heartbeats, every ten seconds;
    of those that are done, at once."""


_ROWS = ("inputRecords", "shuffleReadRecords", "shuffleWriteRecords", "outputRecords")


def spark_activity(session: SparkSession) -> Activity:
    """What Spark does now: some ten calls into the JVM, two or three milliseconds. Nothing, if that is gone."""
    try:
        stages = session.sparkContext._jsc.sc().statusStore().activeStages()
        running = [stages.apply(number) for number in range(stages.size())]
        return Activity(
            tasks=sum(stage.numTasks() for stage in running),
            tasks_done=sum(stage.numCompleteTasks() for stage in running),
            rows=sum(getattr(stage, counter)() for stage in running for counter in _ROWS),
        )
    except (Py4JError, OSError):
        return Activity()
