"""The SaaS monitor with Bytewax: customers that made documents public, second by second."""

from datetime import timedelta

from bytewax import operators as op
from bytewax.dataflow import Dataflow
from bytewax.operators import windowing as win
from common import EPOCH, at, read, run, write_together


def row(kv: tuple[str, tuple[int, tuple[int, int]]]) -> dict:
    """An alert."""
    customer, (number, (documents, newest)) = kv
    return {
        "customer": int(customer),
        "window_start_ms": number * 1000,
        "documents": documents,
        "newest_ms": newest,
    }


flow = Dataflow("saas_monitor")
public = op.filter("public", read(flow, "shared"), lambda event: event["shared_with"] == "public")
found = win.fold_window(
    "alerts",
    op.key_on("customer", public, lambda event: str(event["customer"])),
    clock=win.EventClock(at, wait_for_system_duration=timedelta(milliseconds=500)),
    windower=win.TumblingWindower(length=timedelta(seconds=1), align_to=EPOCH),
    builder=lambda: (0, 0),
    folder=lambda tally, event: (tally[0] + 1, max(tally[1], event["at_ms"])),
    merger=lambda one, other: (one[0] + other[0], max(one[1], other[1])),
    ordered=False,
)
write_together(op.map("rows", found.down, row))

if __name__ == "__main__":
    run(flow)
