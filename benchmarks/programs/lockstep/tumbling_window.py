"""Keyed tumbling windows with Lockstep: each result once, when event time has passed its window."""

from common import source

import lockstep as ls
from lockstep import F

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"

job = ls.Job("tumbling-window")
events = job.source("events", source("events", EVENT))
windows = (
    events.with_columns(at="timestamp_millis(at_ms)")
    .event_time("at", out_of_order="500 ms")
    .key_by("key")
    .window(ls.tumbling("1 second"))
    .agg(events=F.count("*"), total=F.sum("amount"))
)
windows.select("key", "events", "total", window_start_ms="unix_millis(window_start)").to(
    ls.files("output", format="jsonl")
)
