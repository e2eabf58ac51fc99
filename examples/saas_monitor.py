"""A SaaS security monitor: which customers share documents with the whole world, counted every second.

It reads the journal "documents" and publishes one alert per customer and second in which something was made public.
To try it, in an empty folder (the journal takes JSON lines, one document-shared event each):

    lockstep plan saas_monitor.py
    lockstep run saas_monitor.py --replicas 2
    echo '{"customer": 7, "document": "plan.pdf", "shared_with": "public", "at": "2025-01-01T12:00:00Z"}' |
        lockstep put documents
    lockstep tail out/alerts --follow

An alert comes when its second is over in event time: put a later event, or wait half a minute. `lockstep demo` runs
this job with 1,000 events a second and kills its replicas with -9.
"""

import lockstep as ls
from lockstep import F

job = ls.Job("saas-monitor")

shared = job.source(
    "shared",
    ls.journal("documents", schema="customer int, document string, shared_with string, at timestamp"),
)

(
    shared.event_time("at", out_of_order="500 ms")
    .filter(F.col("shared_with") == "public")  # the rule
    .key_by("customer")
    .window(ls.tumbling("1 second"))
    .agg(documents=F.count("*"), newest=F.max("at"))
    .to(ls.files("out/alerts"))
)
