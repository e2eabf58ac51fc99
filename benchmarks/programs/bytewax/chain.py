"""A chain of pass-through steps, with Bytewax."""

import os

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from common import read, run, write


def passed(record: dict) -> dict:
    """One hop more."""
    return {**record, "hops": record["hops"] + 1}


flow = Dataflow("chain")
stream = read(flow, "events")
for number in range(int(os.environ["BENCH_WORKLOAD"].removeprefix("chain_"))):
    stream = op.map(f"step_{number}", stream, passed)
write(stream)

if __name__ == "__main__":
    run(flow)
