"""Pages of the codes LS0321 to LS0325: bolts while they run."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0321": Page(
        "A bolt failed a tuple",
        """\
The bolt called collector.fail(tuple). The tuple is replayed after the other tuples that its task has in the same
epoch, retries= times (3), since these are what can have changed the bolt's state. If it still fails, it is a dead
letter with the reason that the bolt gave: lockstep dead-letters JOB shows it. What was emitted for a
tuple that failed is dropped; what was changed in self.state stays.

The job stops only where there is no tuple to set aside: if a program fails a tick, or a bolt a whole window.""",
    ),
    "LS0322": Page(
        "A bolt keeps something outside its state",
        """\
self.state is a dict of plain data, one for each task. It is there while execute and tick run, is part of every
snapshot, and is the same in every replica. An attribute that execute sets would be lost with the process and is
refused. What is no state (a connection, a compiled pattern) is set in __init__ or in prepare.""",
    ),
    "LS0323": Page(
        "The program of a bolt does not do as agreed",
        """\
A program reads one JSON object for each tuple from its standard input,
    {"id": 7, "component": "split", "source": "lines", "stream": "default", "fields": {"line": "a b"}, "time": null}
answers with any number of lines such as {"emit": ["a"]}, and ends with {"done": 7}. It flushes its output, says
nothing else there, and goes on until its input ends. It could not be started, ended, did not answer in time, or
wrote something else; its standard error is in the replica's log.""",
    ),
    "LS0324": Page(
        "The number of a task is missing, or wrong",
        """\
A stream that some bolt reads with .direct(...) is emitted with collector.emit_direct(task, values) only, any other
stream with collector.emit(values) only. Tasks have the numbers from 0; context.tasks_of("count") in prepare tells how
many the component "count" has.""",
    ),
    "LS0325": Page(
        "An acknowledgement, a failure or an anchor that has no meaning here",
        """\
collector.ack(tuple) and collector.fail(tuple) are about the tuple that execute was given, and one of the two: a tuple
that was acknowledged cannot fail any more. A tuple that has not failed is acknowledged when execute returns, so ack
may be left out. One that waits for others is kept in self.state, as plain data, and handled when these come.

emit(..., anchors=...) is refused. In Storm anchors bring a tuple back when one that was made of it fails somewhere
below. Here a tuple that fails is replayed in the bolt that failed it, and is then a dead letter of that bolt.""",
    ),
}
