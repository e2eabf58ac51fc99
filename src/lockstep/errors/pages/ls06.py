"""Pages of the codes LS06xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0601": Page(
        "A replica failed",
        """\
Spark ended a replica's query, or its process raised something that nobody foresaw. The message has
the first line of the cause; all of it is at the end of the replica's log:

    .lockstep/jobs/JOB/replicas/REPLICA/log.txt

The supervisor starts the replica again, from its own checkpoint or from a peer's, while the others
go on: with two replicas nothing is missing from the output. Look at it when it comes again:
`lockstep status` counts restarts. Frequent causes are memory (OutOfMemoryError in the log: raise
driver_memory in the [spark] table of lockstep.toml), a full disk, and a master that cannot be
reached (spark://...). `lockstep doctor` looks at the machine.""",
    ),
    "LS0602": Page(
        "A replica failed too often",
        """\
The last replica that could run was started restarts_max times within restart_window_s and none of
the starts held, so the job was stopped instead of trying for ever. Nothing is lost: what was
published stays, and the next `lockstep run` goes on from there.

Find out why it ends: `lockstep status` shows what each replica said last, and the end of
.lockstep/jobs/JOB/replicas/REPLICA/log.txt has the cause ("exit code -9" without a cause in the
log: the system killed it, usually for memory; `dmesg` names it). Mend that, then run the job again.""",
    ),
    "LS0603": Page(
        "Replicas disagree about an epoch",
        """\
Every replica computes every epoch, and the fingerprints of the results are compared. For this epoch
they differ although the input was the same. The message has the sink, the first rows that differ
and the steps that run Python.

The usual cause is a Python function that is not deterministic: it reads the clock (use the
record's own time or ls.epoch_time()), draws random numbers or makes a uuid, asks a service, reads a
file that changes, keeps something between calls, or depends on the order of a set. Without Python
steps, suspect memory or disk of the machine.

With two replicas nobody can say who is right. on_divergence="stop" (the default) stops the job, and
the copy that was published first stays in the sink; on_divergence="continue" goes on with it and
seeds the other replica anew. With three or more the majority is right: the odd one out is seeded
anew and the job goes on, and if the published copy was the odd one the message says so.

The copy that was not published is kept under .lockstep/jobs/JOB/divergences/ as Parquet, named by
epoch, sink and replica. `lockstep ledger` marks the epochs whose digests differ.

If the message speaks of the state of a stage, no output differs yet: replicas compare their state too,
where one has joined and every state_digest_every_epochs epochs. It is judged in the same way, except
that of two replicas the one that has just joined is taken to be wrong, and seeded anew. If the job has
stopped, neither of two had just joined: remove replicas/NAME/checkpoint* of the one you trust less
(a machine with errors in its log, a disk that was full) under .lockstep/jobs/JOB, and start the job:
it is seeded from the other. on_divergence="continue" does that by itself, with the one that the
message names first.""",
    ),
    "LS0604": Page(
        "A checkpoint is damaged",
        """\
A replica's checkpoint holds its state and where it is. A file in it is missing, cut off, differs
from its checksum or contradicts the others: after a full disk, a crash of the machine, a failing
disk, or a deletion by hand. The message names the file, and for state Spark's operator, the store
(a join of two streams has four) and the partition.

A damaged checkpoint is never patched, since its state could be silently wrong. It is moved aside
(.lockstep/jobs/JOB/replicas/REPLICA/checkpoint.set-aside-N, the newest two are kept) and the
replica takes a snapshot of a healthy peer.

You need to do something only if there is no healthy peer: see LS0605.""",
    ),
    "LS0605": Page(
        "A replica has nothing to start from",
        """\
A replica starts from its own checkpoint, from a snapshot of a running peer, or from the first
epoch. Here its own checkpoint is missing, damaged or too old, no peer was running, and the first
epochs were forgotten already (the ledger keeps what somebody still needs). If another replica can
start, this one is tried again and seeded from it: wait for that first.

If all replicas say so, the state is gone. In this order:
1. Look for a usable checkpoint: a copy of the store's folder (.lockstep), or one that was set aside
   by mistake (replicas/REPLICA/checkpoint.set-aside-N).
2. Otherwise start over under another name, ls.Job("NAME-2"), with other places for its sinks. It
   reads its sources from the oldest record that is still kept. The old output stays as it is.""",
    ),
    "LS0606": Page(
        "No snapshot could be taken of a peer",
        """\
A replica that starts copies the checkpoint of a running peer. The peer goes on meanwhile and
deletes what it no longer needs, so a copy may have to begin again; here that happened too often, or
the peer had not finished its first epoch. The replica is tried again after a pause, and by then it
usually works.

If it keeps failing: is the disk very slow or full (`lockstep doctor`)? Is the peer itself in
trouble (`lockstep status`)?""",
    ),
    "LS0607": Page(
        "The environment is not the one the job began with",
        """\
Results may depend on the versions of Python, PySpark, Arrow, Java (and its time zones) and Lockstep, and
on pinned settings. A
fingerprint of them is kept with the job, and a replica with another one is refused: two replicas
with different versions could disagree about an epoch, and a restart could change what was published.

Run the job with the environment that it began with (the same virtual environment, the same pinned
requirements). While it runs, `lockstep upgrade --environment PYTHON` brings it to new versions: replicas of
both run side by side, and their results are compared before the old ones leave.""",
    ),
    "LS0608": Page(
        "A checkpoint has another format",
        """\
The note that Lockstep leaves in a checkpoint was written by another release, and this one does not
read its format. Nothing was changed.

Run the job with the release that wrote it (CHANGELOG.md says which formats a release reads), or
start it under another name with other places for its sinks.""",
    ),
    "LS0609": Page(
        "The job was changed in a way its checkpoint cannot follow",
        """\
State belongs to steps: counts, sums, open windows. Spark knows these steps by their position in the
query and would read the wrong state silently after some changes, so Lockstep compares the plan with
the one that wrote the checkpoint before anything runs. The message says what differs. Nothing was
changed, and the old job file still runs.

Changes that are followed: filters, selects, new columns and Python functions in front of or behind
steps with state, one more sink of rows that go to a sink already, settings, another number of
replicas. Changes that are not: another key, window, aggregate or event time, steps with state added,
removed or reordered, sources added or removed.

Sinks of the very same rows share the state of the steps before them; a sink with a filter or select
of its own has its own copy. So a filter that comes in front of one of two such sinks, and a new sink
behind a filter of its own, are not followed either: the new copy would have to begin empty.

To go ahead, run it as a new job: ls.Job("NAME-2"), its sinks in other places. Both can run side by
side until the new one has caught up. `lockstep check job.py` tells beforehand.""",
    ),
    "LS0610": Page(
        "The job runs already",
        """\
One `lockstep run` supervises a job in a project folder. The message has its process id, and
`lockstep status` shows how the job is.

Stop it with Ctrl-C in its terminal or with `kill PID` (both finish the epoch under way); then this
command works. If it does not answer (it is stopped, or its terminal is lost), or to supervise the job
from here without a pause, add --take-over: the replicas go on, and the other one ends with this very
code at its next step. It can start and end nothing any more: the agent that has the replicas obeys
the newest supervisor alone. To run the same job twice, use two project folders (--project) or two
names.""",
    ),
    "LS0611": Page(
        "A pinned Spark setting",
        """\
Some settings of Spark change results: the time zone, ANSI mode, how several watermarks are
combined, and a few more. Lockstep pins them so that all replicas, and every later start, compute
the same. The values that were given for them differ from the pinned ones.

Take them out of lockstep.toml ([spark] or [replica.*]) or off the command line. What you wanted to
reach with them is better written into the job: a time zone, for instance, with
F.from_utc_timestamp("at", "Europe/Berlin"). All other settings are passed on. `lockstep check`
lists the pinned ones.""",
    ),
    "LS0612": Page(
        "Spark did not start",
        """\
`lockstep check` starts one local Spark session to have the job's types checked, and Spark ended
before it could be used. The message has Spark's last words.

Usual causes: not enough memory for the JVM (driver_memory in the [spark] table of lockstep.toml),
a Java that Spark does not run on, a full disk under the folder for temporary files, a setting in
[spark] that Spark refuses. `lockstep doctor` looks at the machine.""",
    ),
    "LS0614": Page(
        "The job has been run to its end",
        """\
`lockstep run --until-done` reads all the input there is, brings event time to its end, so that every window
closes, and ends. Nothing can follow: a later record would be late for every window. To process more input, give
the job another name and its sinks other places; to do it all again, remove .lockstep and the output.""",
    ),
    "LS0615": Page(
        "A run until done over a source that never ends",
        """\
--until-done ends when every source has been read to its end: a journal or a folder to what is in it now, a
collection to its last record, a rate to its limit. A rate without a limit has no end: give it one.""",
    ),
    "LS0616": Page(
        "The order of a job cannot be changed",
        """\
order="agreed" and order="derived" cut the input into epochs in different ways, and a checkpoint stands at one of these
cuts. So the order is fixed by the first start of a job. Run it with the order that it has; for the other one give it
another name, and its sinks other places.""",
    ),
    "LS0623": Page(
        "An upgrade is half-way",
        """\
The job was stopped, or its coordinator was killed, while an upgrade replaced its replicas: some have the
state of the new code by now. Starting it with anything else than what it ran with when the upgrade began
would drop the upgrade, and leave states of two kinds.

Start it with that code and those settings. It goes on with the upgrade, which `lockstep operations` shows;
`lockstep commit` or `lockstep rollback` ends it. Then start what you wanted to start.""",
    ),
    "LS0619": Page(
        "State could not be brought to another number of partitions",
        """\
A replica that is to have another number of partitions than the checkpoint it starts from has Spark lay the
state out anew, in a copy, before it computes anything. Spark refused, and said why; nothing was changed.

Set "spark.sql.shuffle.partitions" back to the number that the message names: the job then goes on with its
state as it is. A rescale that is under way takes itself back.""",
    ),
    "LS0618": Page(
        "The place of a job's journals cannot be changed",
        """\
The journals inside a job (between stages, of loops) and its dead letters are in files of its host, or in topics
(`journals` in lockstep.toml). What is on its way there belongs to the job's state. So their place is fixed by the first
start of a job, but for the list of brokers and the client's settings. Put the setting back as it was; for another place
give the job another name, and its sinks other places.""",
    ),
    "LS0617": Page(
        "The epochs of a job cannot be derived",
        """\
With order="derived" the end of every epoch follows from the stamps that Kafka's brokers give to records. That needs
sources in Kafka only, a job that is one stage (`lockstep plan` shows the cuts: a journal between stages has no such
stamps), no loop, and no end: --until-done asks whether everything was read, which stamps do not tell.

The message says which of these it is. order="agreed", the default, has none of these limits.""",
    ),
    "LS0613": Page(
        "A sink is ahead of the ledger",
        "An epoch is sealed in the ledger before it is published, so a sink can never hold an epoch that the "
        "ledger does not know. If it does, the two do not belong together: usually .lockstep was removed to "
        "start afresh while the output folder stayed, or an older copy of .lockstep was put back. Going on "
        "would be silent loss: new epochs would be taken for those that are already there.\n\nTo start "
        "afresh, give the sink another place or remove its folder as well. To go on, put the .lockstep folder"
        " back that belongs to the output.",
    ),
}
