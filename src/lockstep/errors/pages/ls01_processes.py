"""Pages of the codes LS0150 to LS0159: process functions and connected streams."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0150": Page(
        "A key of a type that cannot be a key",
        """\
State is kept by key, and records of one key are brought together by a hash of it. Arrays, maps,
structs and variants have no one way to be compared and hashed that every replica and every release
agrees on, so they are refused as keys.

Key by a plain value made from it: a field of the struct (.key_by(id="customer.id")), an entry of the
map, or a text of the whole (F.concat_ws(",", "tags"), F.to_json("tags")). Null is a key like any
other.""",
    ),
    "LS0151": Page(
        "What was given to .process(...) is no process function",
        """\
.process takes an instance of a class that extends ls.Process:

    class Count(ls.Process):
        seen = ls.value_state("bigint")

        def on_record(self, record, ctx):
            self.seen.set(self.seen.get(0) + 1)
            ctx.emit(user=ctx.key.user, seen=self.seen.get())

    logins.key_by("user").process(Count(), schema="user string, seen bigint")

For two connected keyed streams the methods are on_left and on_right (or on_record and on_other), for
a stream connected with a broadcast on_record and on_broadcast. Each takes a record and a context, and
sends records on with ctx.emit(...); what it returns is not looked at, so it is neither async nor a
generator. Broadcast state needs a broadcast stream to write it, and a time to live is longer than
nothing.""",
    ),
    "LS0152": Page(
        "These streams cannot be connected",
        """\
Connected streams share the state of a key. So both are keyed, by keys of as many parts:

    orders.key_by("user").connect(visits.key_by("user")).process(...)

or the second is a broadcast, whose records reach all keys:

    events.key_by("user").connect(rules.broadcast()).process(...)

A stream without a key can be connected with a broadcast only.""",
    ),
    "LS0153": Page(
        "State for each key, but no key",
        """\
A stream without .key_by(...) stays spread over all parts of the job, so that it is fast; there is no
key whose state ls.value_state and the like could hold. Broadcast state works: every part sees all
broadcast records.

Put .key_by(...) before .connect(...), or use ls.broadcast_state and ls.broadcast_map alone.""",
    ),
}
