"""A Python function with state by key, with Bytewax."""

from heapq import nlargest

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from common import read, run, write

State = tuple[int, list[int]]


def highest_three(state: State | None, event: dict) -> tuple[State, dict]:
    """How many amounts a key had so far, and the sum of the three highest."""
    events, best = state or (0, [])
    events, best = events + 1, nlargest(3, [*best, event["amount"]])
    return (events, best), {"key": event["key"], "events": events, "best": sum(best), "seq": event["seq"]}


flow = Dataflow("keyed_function")
keyed = op.key_on("key", read(flow, "events"), lambda event: event["key"])
write(op.map("rows", op.stateful_map("highest", keyed, highest_three), lambda kv: kv[1]))

if __name__ == "__main__":
    run(flow)
