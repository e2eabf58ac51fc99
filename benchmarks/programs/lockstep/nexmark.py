"""Nexmark with Lockstep: one of the queries of `benchmarks.nexmark.queries`, times as milliseconds."""

import os

from common import source

import lockstep as ls
from benchmarks.nexmark.generator import SCHEMA
from benchmarks.nexmark.queries import QUERIES, site
from lockstep import F

BID = {"at_ms": "unix_millis(at)"}
COLUMNS = {
    "q0": (("auction", "bidder", "price", "extra"), BID),
    "q1": (("auction", "bidder", "extra"), {**BID, "price": "cast(price as string)"}),
    "q2": (("auction", "price"), {}),
    "q3": ((F.col("name"), "city", "state", "id"), {}),
    "q4": (("category", "average"), {}),
    "q5": (("auction", "bids"), {"window_end_ms": "unix_millis(window_end)"}),
    "q6": (("seller", "auction", "average"), {}),
    "q7": (("auction", "bidder", "price", "extra"), BID),
    "q8": (("id", F.col("name")), {"window_start_ms": "unix_millis(window_start)"}),
}

query = os.environ["BENCH_WORKLOAD"].removeprefix("nexmark_")
job = ls.Job("nexmark")
schema = f"seq bigint, sent_us bigint, at_ms bigint, {SCHEMA}"
results = QUERIES[query](site(job, source("nexmark", schema)))
plain, made = COLUMNS[query]
results.select(*plain, **made).to(ls.files("output", format="jsonl"))
