"""The testing kit as these tests use it: trials, step by step; and what only tests of Lockstep itself look at."""

from __future__ import annotations

import time

from lockstep.runtime.state.checkpoint import standing
from lockstep.testing.replica import ReplicaHere
from lockstep.testing.trial import START_US, Trial

SECOND_US = 1_000_000


def optimized_plan(replica: ReplicaHere) -> str:
    """The optimized plan of the newest epoch, as text."""
    return str(replica.queries[0]._jsq.streamingQuery().lastExecution().optimizedPlan().toString())


def state_rows(replica: ReplicaHere) -> int:
    """How many rows Spark keeps in state after the newest batch; it says so a moment after it has committed."""
    at, query = standing(replica.checkpoint), replica.queries[0]
    assert at is not None
    while (said := query.lastProgress) is None or said.batchId < at.batch:
        time.sleep(0.01)
    return sum(operator.numRowsTotal for operator in said.stateOperators)


__all__ = ["SECOND_US", "START_US", "ReplicaHere", "Trial", "optimized_plan", "state_rows"]
