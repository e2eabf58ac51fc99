"""How many tasks compute an epoch.

A replica with one core and one partition of state computes everything in one task at a time anyway. If Spark knows that
there is one partition from the source on, it needs no shuffle before a step with state: one stage instead of two or
more, and a quarter less time for a small epoch. The branches of several sinks stay apart: Spark cannot have two steps
with state side by side in one task.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def is_one_task(session: SparkSession, tasks_max: int) -> bool:
    """Whether nothing could be computed side by side here."""
    return tasks_max == 1 and session.conf.get("spark.sql.shuffle.partitions") == "1"


def together(frame: DataFrame, *, one_task: bool) -> DataFrame:
    """The same records, in one partition where more of them would bring nothing."""
    return frame.coalesce(1) if one_task else frame
