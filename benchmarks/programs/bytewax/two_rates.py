"""Two inputs in one, with Bytewax; event time is kept by key, so neither input waits for the other."""

from datetime import timedelta

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from common import read, run, write_together
from windows import sums

flow = Dataflow("two_rates")
both = op.merge("both", read(flow, "fast"), read(flow, "slow"))
write_together(sums(both, timedelta(seconds=1), timedelta(milliseconds=500)))

if __name__ == "__main__":
    run(flow)
