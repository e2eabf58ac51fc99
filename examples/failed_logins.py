"""Users who fail to log in five times within a minute, looked at every ten seconds.

To try it, in an empty folder (each command in a terminal of its own):

    lockstep plan failed_logins.py
    lockstep run failed_logins.py --replicas 2
    python make_logins.py | lockstep put logins
    lockstep tail out/alerts --follow

Then kill either replica (`lockstep status --json` has their pids) and watch nothing happen.
"""

import lockstep as ls
from lockstep import F

job = ls.Job("failed-logins")

logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, at timestamp"))

(
    logins.event_time("at", out_of_order="5 seconds")
    .filter(~F.col("ok"))  # an expression, a SQL string, or lambda r: ~r.ok : all native
    .key_by("user")
    .window(ls.sliding("1 minute", every="10 seconds"))
    .agg(failures=F.count("*"))  # columns: user, window_start, window_end, failures
    .filter("failures >= 5")
    .to(ls.files("out/alerts", format="parquet"))
)
