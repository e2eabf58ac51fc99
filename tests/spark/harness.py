"""The testing kit as these tests use it: trials, step by step; and what only tests of Lockstep itself look at."""

from __future__ import annotations

from lockstep.testing.replica import ReplicaHere
from lockstep.testing.trial import START_US, Trial

SECOND_US = 1_000_000


def optimized_plan(replica: ReplicaHere) -> str:
    """The optimized plan of the newest epoch, as text."""
    return str(replica.queries[0]._jsq.streamingQuery().lastExecution().optimizedPlan().toString())


__all__ = ["SECOND_US", "START_US", "ReplicaHere", "Trial", "optimized_plan"]
