"""Pages of the codes LS065x: chaos."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
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
}
