"""A SaaS security monitor: which documents became public, and how many per customer and second.

It has what chaos should hurt: event time, state in windows, and two sinks, one of which holds every single record that
matched, so that a lost or repeated record cannot hide in a count.
"""

import lockstep as ls
from lockstep import F

job = ls.Job("chaos-monitor")

public = (
    job.source(
        "shared",
        ls.journal("documents", schema="number bigint, customer int, shared_with string, at timestamp"),
    )
    .event_time("at", out_of_order="2 seconds")
    .filter(F.col("shared_with") == "public")  # the rule
)

public.to(ls.files("out/public"), name="public")

(
    public.key_by("customer")
    .window(ls.tumbling("1 second"))
    .agg(documents=F.count("*"), newest=F.max("number"))
    .to(ls.files("out/alerts"), name="alerts")
)
