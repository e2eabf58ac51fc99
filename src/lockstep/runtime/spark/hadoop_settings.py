"""Hadoop's settings, made light to copy.

In every epoch Spark writes out a copy of them for each step with state: eleven hundred settings, half of them for YARN,
and with each the name of the file that it came from, compressed by itself. Nobody reads those names, and a local Spark
has no YARN; without both a copy takes less than half of its 15 ms.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from lockstep.config import is_local

_CLASS = "org.apache.hadoop.conf.Configuration"
_VALUES, _ORIGINS = "properties", "updatingResource"
_YARN = r"^yarn\."


def lighten(session: SparkSession) -> None:
    """From now on copies of this session's Hadoop settings hold what can be needed.

    It reaches into private fields. Where that fails, they are copied whole, as ever.
    """
    jvm: Any = session._jvm
    # Its first use reads all settings again.
    session._jsparkSession.sessionState()
    settings = session.sparkContext._jsc.hadoopConfiguration()
    try:
        if is_local(session.sparkContext.master):
            _field(jvm, _VALUES).get(settings).keySet().removeAll(settings.getValByRegex(_YARN).keySet())
        _field(jvm, _ORIGINS).set(settings, jvm.java.util.concurrent.ConcurrentHashMap())
    except (Py4JError, TypeError, AttributeError) as error:
        print(f"Hadoop's settings are copied whole: {error}", file=sys.stderr, flush=True)


def _field(jvm: Any, name: str) -> Any:
    field = jvm.java.lang.Class.forName(_CLASS).getDeclaredField(name)
    field.setAccessible(True)
    return field
