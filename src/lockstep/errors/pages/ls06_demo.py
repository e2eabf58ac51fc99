"""Pages of the codes LS062x: the demo."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0620": Page(
        "A process of the demo ended by itself",
        """\
`lockstep demo` runs its job with `lockstep run`, and feeds it from a process of its own. One of the
two ended before it was told to; the message has the last lines that it wrote. `lockstep doctor`
looks at Java, memory and disk; `lockstep demo --keep` leaves the demo's folder behind, with the
replicas' logs in it.""",
    ),
    "LS0621": Page(
        "Something in the demo does not move any more",
        """\
The demo waits for something (replicas to start, a killed replica to be back, alerts to come out) for
as long as it takes: on a machine that is busy with other things, starting two JVMs can take minutes.
Here nothing moved for two minutes: no state, no epoch, no task, not a second of processor time.
Something is stuck, or the machine gives these processes nothing at all. The replicas' logs say more:
`lockstep demo --keep` leaves them behind.""",
    ),
    "LS0622": Page(
        "The demo's report cannot be written",
        """\
The demo looks before it starts whether it can write its report, because it would be a pity to find
out two minutes later. Give it another place: lockstep demo --report /tmp/demo-report.html""",
    ),
}
