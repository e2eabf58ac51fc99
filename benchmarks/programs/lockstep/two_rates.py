"""Two inputs in one, with Lockstep: event time is that of the input that is behind."""

from common import source

import lockstep as ls
from lockstep import F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

job = ls.Job("two-rates")
fast, slow = (
    job.source(name, source(name, EVENT))
    .with_columns(at="timestamp_millis(at_ms)")
    .event_time("at", out_of_order="500 ms", name=f"{name}_time")
    for name in ("fast", "slow")
)
windows = fast.union(slow).key_by("key").window(ls.tumbling("1 second")).agg(events=F.count("*"), total=F.sum("amount"))
windows.select("key", "events", "total", window_start_ms="unix_millis(window_start)").to(
    ls.files("output", format="jsonl")
)
