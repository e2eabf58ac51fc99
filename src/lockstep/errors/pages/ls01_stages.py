"""LS014x: side outputs and loops."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES = {
    "LS0140": Page(
        "A side output that is not there",
        """\
.side("name") gives one of the further outputs of a step: "late" after .late_to_side(), or a name that was
declared with side_outputs={"name": "column type, ..."} in .process(...). The message lists those that the
step has.""",
    ),
    "LS0142": Page(
        "A loop that cannot begin like this",
        """\
.iterate(body, rounds=...) adds a column "round" to the records: 0 for those that come in for the first time,
one more each time they come back. So the stream must not have a column of that name, and at least one round
must be allowed. A record that is still going after so many rounds is set aside, and `lockstep run` says so.""",
    ),
    "LS0143": Page(
        "What a loop sends back does not fit its beginning",
        """\
The body of a loop returns two streams: what goes round again, and what leaves. The first one comes in at the
head of the loop in a later epoch, so it needs exactly the columns that the body was given, "round" included
(it counts on by itself). .select(...) them before returning.""",
    ),
}
