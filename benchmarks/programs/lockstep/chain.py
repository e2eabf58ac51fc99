"""A chain of pass-through steps, with Lockstep: each a Python function."""

import os

from common import source

import lockstep as ls

RECORD = "seq bigint, sent_us bigint, value bigint, hops bigint"


def passed(record):
    """One hop more."""
    return {**record, "hops": record["hops"] + 1}


job = ls.Job("chain")
stream = job.source("events", source("events", RECORD))
for _ in range(int(os.environ["BENCH_WORKLOAD"].removeprefix("chain_"))):
    stream = stream.map(passed, schema=RECORD)
stream.to(ls.files("output", format="jsonl"))
