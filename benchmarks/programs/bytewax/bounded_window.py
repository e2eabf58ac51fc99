"""Windows over much input at once, with Bytewax."""

from datetime import timedelta

from bytewax.dataflow import Dataflow
from common import read, run, write_together
from windows import sums

flow = Dataflow("bounded_window")
write_together(sums(read(flow, "events"), timedelta(seconds=10), timedelta(seconds=2)))

if __name__ == "__main__":
    run(flow)
