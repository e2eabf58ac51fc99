"""A chain of pass-through steps, with Structured Streaming: each a Python function over Arrow batches."""

import os
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from common import read, run, session

RECORD = "seq bigint, sent_us bigint, value bigint, hops bigint"


def passed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One hop more."""
    for batch in batches:
        yield batch.set_column(3, "hops", pc.add(batch["hops"], 1))


stream = read(session("chain"), "events", RECORD)
for _ in range(int(os.environ["BENCH_WORKLOAD"].removeprefix("chain_"))):
    stream = stream.mapInArrow(passed, RECORD)
run(stream, "append")
