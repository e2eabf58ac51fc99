"""Nexmark with Bytewax: queries 0, 1 and 2."""

import os

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from common import read, run, write


def bid(event: dict) -> dict | None:
    """The bid that an event is, if it is one."""
    if event["event_type"] != 2:
        return None
    found = event["bid"]
    names = ("auction", "bidder", "price", "extra")
    return {**{name: found[name] for name in names}, "at_ms": event["at_ms"]}


def q1(found: dict) -> dict:
    """Currency conversion, exact."""
    thousandths = found["price"] * 908
    return {**found, "price": f"{thousandths // 1000}.{thousandths % 1000:03d}"}


def q2(found: dict) -> dict | None:
    """Selection."""
    return {"auction": found["auction"], "price": found["price"]} if found["auction"] % 123 == 0 else None


flow = Dataflow("nexmark")
bids = op.filter_map("bids", read(flow, "nexmark"), bid)
query = os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")
write({"q0": lambda: bids, "q1": lambda: op.map("q1", bids, q1), "q2": lambda: op.filter_map("q2", bids, q2)}[query]())

if __name__ == "__main__":
    run(flow)
