"""A chain of pass-through steps, with Pathway."""

import os

import pathway as pw
from common import read, run


class Record(pw.Schema):
    """A record on its way."""

    seq: int
    sent_us: int
    value: int
    hops: int


@pw.udf
def one_more(hops: int) -> int:
    """One hop more."""
    return hops + 1


stream = read("events", Record)
for _ in range(int(os.environ["BENCH_WORKLOAD"].removeprefix("chain_"))):
    stream = stream.with_columns(hops=one_more(pw.this.hops))
run(stream)
