"""Nexmark with Bytewax: queries 0 to 3; the join of query 3 has no bound in time, for Bytewax has none for joins."""

import os

from bytewax import operators as op
from bytewax.dataflow import Dataflow, Stream
from common import read, run, write

State = tuple[dict | None, list[int]]
"""A seller, once known, and the auctions that came before."""


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


def local(event: dict) -> tuple[str, dict | int] | None:
    """Sellers of three states, and auctions of one category, by seller."""
    person, auction = event["person"], event["auction"]
    if person and person["state"] in ("OR", "ID", "CA"):
        return str(person["id"]), {name: person[name] for name in ("name", "city", "state")}
    if auction and auction["category"] == 10:
        return str(auction["seller"]), auction["id"]
    return None


def q3(state: State | None, found: dict | int) -> tuple[State, list[dict]]:
    """Local items: an auction waits for its seller."""
    seller, waiting = state or (None, [])
    if isinstance(found, dict):
        seller = found
    else:
        waiting = [*waiting, found]
    if seller is None:
        return (None, waiting), []
    return (seller, []), [{**seller, "id": auction} for auction in waiting]


flow = Dataflow("nexmark")
events = read(flow, "nexmark")


def bids() -> Stream:
    """Who would pay what."""
    return op.filter_map("bids", events, bid)


def joined() -> Stream:
    """Who sells what."""
    found = op.stateful_flat_map("q3", op.filter_map("local", events, local), q3)
    return op.map("rows", found, lambda kv: kv[1])


QUERIES = {
    "q0": bids,
    "q1": lambda: op.map("q1", bids(), q1),
    "q2": lambda: op.filter_map("q2", bids(), q2),
    "q3": joined,
}
write(QUERIES[os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")]())

if __name__ == "__main__":
    run(flow)
