"""Pages of the codes LS062x to LS067x: the demo, the benches, the testing kit, chaos, and faults on order."""

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
    "LS0630": Page(
        "A benchmark could not be carried out",
        """\
`lockstep bench` runs jobs, feeders and observers as processes of their own. One of them ended before
it was told to, or something took far longer than it should (a replica that does not come back, a
first batch that does not appear); figures from such a run would mean nothing, so there are none.

The message has the last lines of the process's log. `lockstep bench NAME --keep` keeps the temporary
folder with the job, its store and all logs: look into run.log there, and into
.lockstep/jobs/JOB/replicas/REPLICA/log.txt. `lockstep doctor` looks at the machine. Nothing else
heavy should run beside a benchmark.""",
    ),
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
        "A sink is asked for that the job does not have",
        """\
A result knows a job's sinks by their names, in a test also by the place they write to (`out/alerts`), or
without any name if there is only one. Give a sink a name where it is made: .to(ls.files("out/alerts"),
name="alerts"). Then it is result.sink("alerts") in a test, and running.read("alerts") or
result.read("alerts") for a job that is run from Python.""",
    ),
    "LS0650": Page(
        "This job cannot be run under chaos",
        """\
`lockstep chaos run` drives a job by itself and compares every row that it publishes. It feeds journals, and lets
sources that bring their own records (rate, files, collection) run; and it needs at least one sink that holds each
epoch once and can be read: files, or a table in SQLite. All sinks, and all files and tables that the job reads,
have to lie inside the project folder, because chaos runs in a copy of it and must not write where the real job
writes.""",
    ),
    "LS0651": Page(
        "There is no such action",
        """\
`lockstep chaos list` shows the vocabulary: the name of each action, what it does, what it requires and what it takes
away. `--only NAME` chooses from it, and may be given several times.""",
    ),
    "LS0652": Page(
        "The job under chaos ended or did not get ready",
        """\
Before anything is done to it, the job has to run with all its replicas; on a machine that is busy with other things,
starting several JVMs can take minutes. Afterwards `lockstep run` is started again whenever it ends, but not for ever.
The message has the last lines that it wrote; `lockstep chaos run --keep` keeps the folder with all logs, and
`lockstep doctor` looks at the machine.""",
    ),
    "LS0653": Page(
        "The report of a chaos run cannot be written",
        """\
This is looked at before anything starts, because it would be a pity to find out ten minutes later. Give it another
place: lockstep chaos run --report /tmp/chaos-report.html""",
    ),
    "LS0654": Page(
        "The reference of a chaos run cannot be used",
        """\
`--reference FILE` names a Python file with a function `reference(inputs)`. It gets the records of each fed source, in
order, as {source: [record, ...]}, and answers with the rows that each sink has to hold at the end, in any order, as
{sink: [row, ...]}; records and rows are dicts. The last record of each source with event time lies an hour after all
others, so that every window but its own is closed.""",
    ),
    "LS0655": Page(
        "None of the actions can be done",
        """\
Each action says what it requires: another healthy replica (so a job with one replica cannot lose it), a journal that
chaos feeds, a permission of the machine. The message has the reason for each of those that were asked for;
`lockstep chaos list` shows them all.""",
    ),
    "LS0656": Page(
        "The epochs of a chaos run cannot be computed again",
        """\
Without a reference, chaos compares the output with an undisturbed run of one replica over the same sealed epochs, from
the first one on. The ledger has to hold them all, which it does with the settings of a chaos run; if the job sets
`retention_epochs_min` itself, take that out.""",
    ),
    "LS0670": Page(
        "LOCKSTEP_FAULTS does not name a folder",
        """\
With the environment variable LOCKSTEP_FAULTS set, the processes of a job obey orders to kill
themselves, to wait, and to fail operations of the store, at exactly the moments that hurt most.
`lockstep chaos` and the tests use it. It must never be on by accident, so a value that is not a
folder is refused instead of ignored.

Unset it. If you want the faults: make the folder first. While faults are on, every process says so
on its standard error, and every start of a replica says so in `lockstep events`.""",
    ),
    "LS0671": Page(
        "An order for a fault cannot be given or read",
        """\
Orders are small JSON files in the folder that LOCKSTEP_FAULTS names. Each has a name that is used
once: its file moves from `orders` to `claimed` when a process obeys it, and `obeyed` then says who
did. An order that cannot be read is moved to `refused`, and the job goes on as if it had not been
there.

Look at the file in `refused`: a misspelled field, a window or a deed that does not exist, or a name
that differs from the file's.""",
    ),
    "LS0675": Page(
        "What tracing epochs needs is not installed",
        """\
`traces` in `[run]` names an OpenTelemetry collector, to which every replica sends what it did with
each epoch and when. The libraries for that are an extra: pip install "lockstep[telemetry]", on every
host that runs replicas. A host that lacks them runs replicas all the same, and says so in
`lockstep events` (traces-off).""",
    ),
}
