"""Keyed tumbling windows with Bytewax."""

from datetime import timedelta

from bytewax.dataflow import Dataflow
from common import read, run, write_together
from windows import sums

flow = Dataflow("tumbling_window")
write_together(sums(read(flow, "events"), timedelta(seconds=1), timedelta(milliseconds=500)))

if __name__ == "__main__":
    run(flow)
