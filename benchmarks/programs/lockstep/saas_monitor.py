"""The SaaS monitor with Lockstep: customers that made documents public, second by second."""

from common import source

import lockstep as ls
from lockstep import F

SHARED = "seq bigint, sent_us bigint, at_ms bigint, customer bigint, document string, shared_with string"

job = ls.Job("saas-monitor")
shared = job.source("shared", source("shared", SHARED))
alerts = (
    shared.with_columns(at="timestamp_millis(at_ms)")
    .event_time("at", out_of_order="500 ms")
    .filter(F.col("shared_with") == "public")
    .key_by("customer")
    .window(ls.tumbling("1 second"))
    .agg(documents=F.count("*"), newest_ms=F.max("at_ms"))
)
alerts.select("customer", "documents", "newest_ms", window_start_ms="unix_millis(window_start)").to(
    ls.files("output", format="jsonl")
)
