"""Two inputs of which one goes quiet, with Lockstep: after two seconds nobody waits for it any more."""

from common import source

import lockstep as ls
from lockstep import F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

job = ls.Job("quiet-input")
steady, moody = (
    job.source(name, source(name, EVENT))
    .with_columns(at="timestamp_millis(at_ms)")
    .event_time("at", out_of_order="500 ms", idle_after="2 seconds", name=f"{name}_time")
    for name in ("steady", "moody")
)
windows = (
    steady.union(moody).key_by("key").window(ls.tumbling("1 second")).agg(events=F.count("*"), total=F.sum("amount"))
)
windows.select("key", "events", "total", window_start_ms="unix_millis(window_start)").to(
    ls.files("output", format="jsonl")
)
