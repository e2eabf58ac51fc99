"""Pages of the codes LS0321 to LS0324: bolts while they run."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0321": Page(
        "A bolt failed a tuple",
        """\
The bolt called collector.fail(tuple). In Storm the spout would send it again; here an epoch is repeated until it is
published, always with the same tuples, so a tuple that cannot be handled would stop the job for ever. It stops at
once and says so. With on_error="skip" such tuples go to the dead-letter journal, and what the bolt emitted for
them is dropped.""",
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
}
