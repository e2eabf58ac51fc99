"""A Python function with state by key, with Structured Streaming."""

from collections.abc import Iterator
from heapq import nlargest

import pandas as pd
from common import read, run, session
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"
STATE = "events bigint, first bigint, second bigint, third bigint"


def highest_three(key: tuple[str], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """How many amounts a key had so far, and the sum of the three highest: one row for each batch."""
    events, *best = state.get if state.exists else (0, 0, 0, 0)
    newest = 0
    for frame in frames:
        events += len(frame)
        best = nlargest(3, [*best, *frame["amount"].tolist()])
        newest = max(newest, int(frame["seq"].max()))
    state.update((events, *best))
    yield pd.DataFrame({"key": [key[0]], "events": [events], "best": [sum(best)], "seq": [newest]})


spark = session("keyed_function")
found = (
    read(spark, "events", EVENT)
    .groupBy("key")
    .applyInPandasWithState(
        highest_three,
        "key string, events bigint, best bigint, seq bigint",
        STATE,
        "update",
        GroupStateTimeout.NoTimeout,
    )
)
run(found, "update")
