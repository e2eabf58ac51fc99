"""Pages of the codes LS072x and LS073x: savepoints, and state from outside."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0720": Page(
        "There is no state to take a savepoint of",
        """\
A savepoint is the state of a replica after an epoch. No replica of this job has computed one yet, or
none of them is on this host or on one whose agent answers.

`lockstep status JOB` shows where the replicas are. Once an epoch is published, take it again.

Of a job on several hosts, take a savepoint while it runs: hosts hand out the state of replicas that run, not
of those that have stopped. So `lockstep stop --savepoint` is refused there before anything is stopped.""",
    ),
    "LS0721": Page(
        "A savepoint of that name is there, or one is being taken",
        """\
A savepoint is never replaced: somebody may rely on it. And one at a time is taken or deleted for a
job on a host, since each reads the whole state.

Choose another name, delete the old one with `lockstep savepoints JOB --delete NAME`, or try again in
a moment.""",
    ),
    "LS0722": Page(
        "This is no savepoint",
        """\
A savepoint is a folder with a file savepoint.json, which is written last: a folder without it is not
whole. The name that was given is none of a savepoint here, or the folder was made by another release.

`lockstep savepoints JOB` lists those of a job. --from takes a name that only one job has, JOB/NAME, or
the path of a folder, which may be a copy from another host.""",
    ),
    "LS0723": Page(
        "A savepoint is not as it was taken",
        """\
Each file of a savepoint has a SHA-256 in its savepoint.json. A file is missing, was added or has other
content: the copy was cut short, or a disk failed. Nothing was started: damaged state could be silently
wrong.

Copy the folder again from where it was taken (`cp -a`, `rsync -a`), or use another savepoint.""",
    ),
    "LS0724": Page(
        "There is no room for a savepoint",
        """\
The disk was full before the savepoint was whole. What had been written was removed, and the job goes
on as before.

Make room, or delete savepoints that nobody needs: `lockstep savepoints JOB --delete NAME`.""",
    ),
    "LS0725": Page(
        "This job cannot have savepoints",
        """\
A savepoint holds all that is needed to go on. With order="derived" the ledger is computed by each
replica from Kafka and kept for itself. With journals in Kafka, what is on its way between stages is
in topics of the one job, and a folder cannot hold them.

The state of such a job is kept by its replicas; it goes on where it was when it is started again.""",
    ),
    "LS0726": Page(
        "A savepoint is of another plan",
        """\
State belongs to the steps that wrote it, in their order and with their schemas. The message says what
is different between the job that took the savepoint and the one that is to start from it.

Undo the change. What may change freely: everything without state (filters, columns, sinks), the name of
the job, its settings.""",
    ),
    "LS0727": Page(
        "A sink holds epochs already",
        """\
A job that starts from a savepoint goes on with the epoch after it. A sink that holds epochs would take
the new ones for published ones, and drop them.

Give the sinks of the new job other places (another folder, another table). What is there stays as it
is, and readers may read both.""",
    ),
    "LS0728": Page(
        "A source does not have what the savepoint goes on with",
        """\
The savepoint says up to which position each source was read. A journal is files of one host: here it
has not come so far, or has forgotten those records.

Start in the folder where that journal is; or copy `.lockstep/journals` along. A pinned savepoint keeps
the records after it; one taken with --unpinned can be started from only while they are still there.""",
    ),
    "LS0729": Page(
        "A job cannot go back",
        """\
A job that has begun has published epochs after the savepoint. Computed again from there, with other
code, they could say something else; readers have seen them already.

Start it as another job: give Job(...) another name and its sinks other places, and run that with
--from. Without --from this job goes on where it is.""",
    ),
    "LS0730": Page(
        "A savepoint cannot be put on the hosts",
        """\
On several hosts the state of a savepoint is sent to one of them, on which the first replica starts; the
others get it from there. No host took it: none is announced, their packages or tokens differ, or it is
larger than the 2 GB that are sent at once (then start on one host). Nothing has begun, so the same command
can be repeated.

A savepoint with journals inside the job (stages, loops) is started from on one host: on several hosts
those are topics.""",
    ),
    "LS0731": Page(
        "No step of this name keeps state",
        """\
`lockstep query` asks a step by its id: the name= that it was given, or what `lockstep plan` calls it.
Only steps with state can be asked: aggregations, windows, process functions, reduce, fold, distinct.
The message lists those of this job.""",
    ),
    "LS0732": Page(
        "The state of a step cannot be asked for",
        """\
Joins keep records that wait for others, and bolts the state of their tasks: neither has a result by
key. What such steps have found is in the sink. The message lists the steps that can be asked.""",
    ),
    "LS0733": Page(
        "This is no key of the step",
        """\
A key has as many parts as key_by(...) has columns, each of its own type. Give --key once for each part,
in that order: numbers as they are, dates and times in ISO 8601, true or false. --from and --to are about
the first part.""",
    ),
    "LS0734": Page(
        "There is no state of this job here",
        """\
State is read from the files of a replica on this host (or of a savepoint). None of the job's replicas
lives here, or none has computed an epoch yet. `lockstep status JOB` shows on which hosts they are: ask
there.""",
    ),
}
