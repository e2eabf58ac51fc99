"""Nexmark with Pathway: queries 0 and 2."""

import os

import pathway as pw
from common import read, run


class Nexmark(pw.Schema):
    """An event of the site."""

    event_type: int
    at_ms: int
    bid: pw.Json | None


events = read("nexmark", Nexmark)
only = events.filter(events.event_type == 2).select(pw.this.at_ms, bid=pw.unwrap(pw.this.bid))
bids = only.select(
    auction=pw.this.bid["auction"].as_int(unwrap=True),
    bidder=pw.this.bid["bidder"].as_int(unwrap=True),
    price=pw.this.bid["price"].as_int(unwrap=True),
    at_ms=pw.this.at_ms,
    extra=pw.this.bid["extra"].as_str(unwrap=True),
)
if os.environ["BENCH_WORKLOAD"] == "nexmark_q0":
    run(bids)
else:
    run(bids.filter(bids.auction % 123 == 0).select(pw.this.auction, pw.this.price))
