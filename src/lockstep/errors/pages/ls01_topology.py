"""Pages of the codes LS0190 to LS0196: topologies."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0190": Page(
        "A component of a topology is not there, or there twice",
        """\
Spouts and bolts have names of their own; groupings and sinks refer to them by these:
    t.spout("lines", ls.journal("lines", schema="line string"))
    t.bolt("split", Split(), fields="word string").shuffle("lines")
    t.sink("split", ls.files("out/words"))
They may be declared in any order.""",
    ),
    "LS0191": Page(
        "A bolt cannot be used as it was given",
        """\
A bolt is an object of a class that extends ls.Bolt and has execute(self, tuple, collector), or a program:
ls.program(["python3", "split.py"]), with the program and each argument as a text of its own. Either way the
fields that it emits are declared, with their types: fields="word string, n bigint".""",
    ),
    "LS0192": Page(
        "A bolt reads nothing",
        """\
t.bolt(...) says what a bolt is; the groupings after it say whose tuples it gets:
    t.bolt("count", Count(), fields="word string, n bigint").fields("split", "word")""",
    ),
    "LS0193": Page(
        "A topology goes in a circle",
        """\
A bolt reads, by way of others, what it emits itself. An epoch is computed from sources to sinks, so nothing can
come back within it. Records that are to come again in a later epoch are written as a loop in a job:
stream.iterate(body).""",
    ),
    "LS0194": Page(
        "A grouping does not fit",
        """\
The stream that a bolt reads is not declared by the component that should emit it (streams={"errors": "message
string"} in t.bolt), a fields grouping names no fields, or a spout is read with .direct(...), for which a bolt has
to say the number of a task with collector.emit_direct(task, values).""",
    ),
    "LS0195": Page(
        "A setting of a bolt is out of range",
        """\
tasks is how many parts the state of a bolt has: from 1 to 1024. It cannot be changed while there is state, since tuples
are spread by a hash modulo tasks. tick_every is longer than nothing. retries is from 0 to 100.

parallelism, Storm's number of executors of one bolt, is refused: all bolts of a stage are computed in the same
partitions. Their number is said for the job ("spark.sql.shuffle.partitions" under [spark] in lockstep.toml), and
changed while it runs with lockstep rescale JOB --partitions 8; --stage changes it for a single stage. tasks is the
most that can work side by side.""",
    ),
    "LS0196": Page(
        "A bolt with windows has something that does not go with them",
        """\
.window(100, every=10) or .window("1 minute", every="10 seconds") gives execute a window of tuples. Such a bolt is
a Python class that reads one stream and emits on one; it has no ticks and no self.state, since the window is its
state.""",
    ),
}
