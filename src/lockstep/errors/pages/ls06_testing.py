"""Pages of the codes LS064x: the testing kit."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0640": Page(
        "The input of a test is not understood",
        """\
`lockstep.testing.run` takes, for each source by its name, a list of epochs: a list of records for
each epoch, or HEARTBEAT for one without records. Between them there may be CRASH (after an epoch),
at("2026-01-01T00:00:05Z") or wait("5 seconds") (before one). Epoch time only goes forward.
The guide page docs/guide/testing.md has examples.""",
    ),
    "LS0641": Page(
        "Replicas of a test disagree",
        """\
`lockstep.testing.run` runs a job as several replicas with different numbers of partitions and
compares what they compute, epoch by epoch. They differ: something in the job depends on the order in
which records arrive, on a clock, on randomness, or on something outside the job. The message
names the epoch, the sink and the Python functions to suspect: Lockstep's own steps agree.""",
    ),
    "LS0643": Page(
        "A test's job does not come to its end",
        """\
With until_done=True `lockstep.testing.run` goes on after the last epoch until nothing is on its way any
more. This job still had something on its way after hundreds of epochs: a loop (`iterate`) that sends records
round without end? Give it fewer rounds=, or leave out until_done and say how many HEARTBEATs there are.""",
    ),
    "LS0642": Page(
        "A test asks for a sink that the job does not have",
        """\
A result knows a job's sinks by their ids, by the place they write to (`out/alerts`), or without any
name if there is only one. Give a sink a name where it is made: .to(ls.files("out/alerts"),
name="alerts"), then result.sink("alerts").""",
    ),
}
