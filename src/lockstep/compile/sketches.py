"""What Spark's ``approx_count_distinct`` knows by heart, so that Lockstep's own gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pyspark.sql import SparkSession

from lockstep.keyed.sketches import PLAIN, PRECISION, Bias
from lockstep.plan.accumulated import Accumulated

_HELPER = "org.apache.spark.sql.catalyst.util.HyperLogLogPlusPlusHelper$"
_LOWEST_PRECISION = 4


def bias_for(values: Sequence[Accumulated]) -> Bias:
    """The table, if one of these aggregates needs it."""
    return _read_bias() if any(value.function == "approx_count_distinct" for value in values) else PLAIN


@cache
def _read_bias() -> Bias:
    """The table of biases for the precision that Lockstep uses, read from Spark, which keeps it to itself."""
    session = SparkSession.active()
    helper = session._jvm.java.lang.Class.forName(_HELPER)

    def table(name: str) -> Any:
        found = helper.getDeclaredField(name)
        found.setAccessible(True)
        return found.get(helper.getField("MODULE$").get(None))[PRECISION - _LOWEST_PRECISION]

    return Bias(tuple(table("RAW_ESTIMATE_DATA")), tuple(table("BIAS_DATA")), float(table("THRESHOLDS")))
