"""The windows of the programs for Bytewax: number and sum of amounts by key, once when a window is final.

Bytewax keeps event time for each key apart, and it goes on with the system's clock when a key is quiet.
"""

from datetime import timedelta

from bytewax import operators as op
from bytewax.dataflow import Stream
from bytewax.operators import windowing as win
from common import EPOCH, at


def sums(events: Stream, window: timedelta, out_of_order: timedelta) -> Stream:
    """Rows of key, window_start_ms, events and total."""
    keyed = op.key_on("key", events, lambda event: event["key"])
    found = win.fold_window(
        "sums",
        keyed,
        clock=win.EventClock(at, wait_for_system_duration=out_of_order),
        windower=win.TumblingWindower(length=window, align_to=EPOCH),
        builder=lambda: (0, 0),
        folder=lambda tally, event: (tally[0] + 1, tally[1] + event["amount"]),
        merger=lambda one, other: (one[0] + other[0], one[1] + other[1]),
        ordered=False,
    )
    length_ms = window // timedelta(milliseconds=1)

    def row(kv: tuple[str, tuple[int, tuple[int, int]]]) -> dict:
        key, (number, (events, total)) = kv
        return {"key": key, "window_start_ms": number * length_ms, "events": events, "total": total}

    return op.map("rows", found.down, row)
