"""Nexmark: queries over an auction site, chosen by name; the site's events are made by the job itself.

    lockstep run benchmarks/nexmark/job.py --until-done         # all of q0 to q8, q11, q12, q17 to q20, a sink each
    NEXMARK=q5 lockstep run benchmarks/nexmark/job.py --until-done  # one of them
    NEXMARK=q3,q8 lockstep plan benchmarks/nexmark/job.py       # what becomes of them
    lockstep tail out/q5

What each query asks is said in `benchmarks.nexmark.queries`; how the events are made, in
`benchmarks.nexmark.generator`.
"""

import os

import lockstep as ls
from benchmarks.nexmark.generator import SCHEMA, Model, events
from benchmarks.nexmark.queries import QUERIES, site

EVENTS, PER_EPOCH = 2_000, 250

chosen = [name for name in os.environ.get("NEXMARK", "").split(",") if name] or list(QUERIES)
unknown = [name for name in chosen if name not in QUERIES]
if unknown:
    raise SystemExit(f"NEXMARK={','.join(unknown)}: there is {', '.join(QUERIES)}")

made = events(Model(events_per_s=20), 0, EVENTS)
epochs = [made[first : first + PER_EPOCH] for first in range(0, EVENTS, PER_EPOCH)]

job = ls.Job("nexmark")
streams = site(job, ls.collection(epochs=epochs, schema=SCHEMA))
for name in chosen:
    QUERIES[name](streams).to(ls.files(f"out/{name}"), name=name)
