"""A Python function with state by key, with Lockstep."""

from common import source

import lockstep as ls

EVENT = "seq bigint, sent_us bigint, at_ms bigint, key string, amount bigint"


class HighestThree(ls.Process):
    """How many amounts a key had so far, and the sum of the three highest."""

    events = ls.value_state("bigint")
    best = ls.list_state("bigint")

    def on_record(self, record, ctx):
        """One more amount."""
        events = (self.events.get() or 0) + 1
        best = sorted([*self.best, record.amount])[-3:]
        self.events.set(events)
        self.best.set(best)
        ctx.emit(key=record.key, events=events, best=sum(best), seq=record.seq)


job = ls.Job("keyed-function")
events = job.source("events", source("events", EVENT))
found = events.key_by("key").process(HighestThree(), schema="key string, events bigint, best bigint, seq bigint")
found.to(ls.files("output", format="jsonl"))
