"""Pages of the codes LS0624, LS0625 and LS0695 to LS0699: jobs that are run from Python."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0624": Page(
        "Records cannot be put there",
        """\
running.put(NAME, records) appends to the journal that a source of the job reads: NAME is the source's name
in the job, or the journal's. Other sources read what others write (files, Kafka), or make their own
records (ls.rate, ls.collection): nothing can be put into them.""",
    ),
    "LS0625": Page(
        "A job that was made in a running Python stays on its host",
        """\
job.run() and job.start() pack the job as it is in memory, with the user's functions. That is read by
processes of the same host, Python and packages, and is never sent to other hosts. The store of this
project is shared by hosts. Put the job in a file: `lockstep run job.py` and `lockstep submit job.py` send
files, and a program watches and changes such a job with ls.Client.""",
    ),
    "LS0695": Page(
        "The job reads from its project folder, and has none",
        """\
Without project= a job lives in a temporary folder, which is new and empty: a journal there has no records,
and relative paths lead nowhere. Say where the job lives: job.run(project=".") is the current folder, as for
`lockstep run`. For a try-out give the records to the job, ls.collection([...], schema=...), or feed the
journal: with job.start() as running: running.put("logins", [...]).""",
    ),
    "LS0696": Page(
        "What this sink publishes cannot be read back",
        """\
read() reads files, Delta tables, SQLite and Postgres. A console prints, and a topic is read by its
consumers. A stream may go to several sinks: send it to ls.files("rows") as well, and read that.""",
    ),
    "LS0697": Page(
        "The job is over",
        """\
It has processed all its input (until_done, available_now), or somebody has stopped it: this program,
`lockstep stop`, or the end of the with block. What it has published can still be read. In a project folder
job.start() goes on where it was; in a temporary one it begins anew.""",
    ),
    "LS0698": Page(
        "The process that supervised the job is gone",
        """\
job.run() and job.start() run a supervisor in a process of its own, which holds the agent and the replicas.
It ended without a word: somebody killed it, or the machine had no memory left. Replicas of a temporary
folder were ended at once. Those of a project folder go on for orphan_timeout_s: whoever starts the job
within that time goes on with them as they are. Nothing that was published is lost.""",
    ),
    "LS0699": Page(
        "The records were not published in time",
        """\
running.catch_up() waits until all that was put into the job is published. A first epoch needs a JVM,
which takes 10 to 20 seconds to boot, longer on a busy machine. If the job stands still, running.status()
says why, and the replicas' logs say more. catch_up(timeout="30 minutes") waits longer.""",
    ),
}
