"""Pages of the codes LS074x: changes to a running job."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0740": Page(
        "Another operation is under way",
        """\
A running job is changed by operations: rescale, upgrade, restart, move. Each replaces replicas one at a
time and can be taken back until it is done, so there is one at a time.

`lockstep operations` shows which one, its steps and its deadline. Wait for it (`--follow`), or take it
back with `lockstep rollback`. Activating and deactivating a job is possible at any time.""",
    ),
    "LS0741": Page(
        "There is no such operation",
        """\
Operations of a job are numbered from 1; the newest 100 are kept. `lockstep operations JOB` lists them.""",
    ),
    "LS0742": Page(
        "There is no such replica",
        """\
Replicas are called r0, r1 and so on. `lockstep status` shows those that the job has, and where they live.""",
    ),
    "LS0743": Page(
        "The job is not running",
        """\
An operation changes a job while it runs, without a pause. A job that does not run is changed by starting
it with other settings or other code: `lockstep run JOB --set ...`. Its state is taken along: another
number of partitions is made when the replica starts, and changed code goes on after the last epoch.""",
    ),
    "LS0744": Page(
        "The cores of this master cannot be changed",
        """\
`lockstep rescale --cores` changes how many threads compute in a replica whose Spark is local. On a cluster
(`spark://`, YARN) Spark's own settings say what a replica gets: `spark.cores.max`,
`spark.executor.instances`. Change them in lockstep.toml and restart the job.""",
    ),
    "LS0745": Page(
        "This cannot be rescaled to",
        """\
A job has 1 to 16 replicas, 1 to 1,000 partitions of state, and for local masters 1 to 1,024 cores a
replica. More partitions than cores bring nothing.""",
    ),
    "LS0747": Page(
        "The running job cannot take this code over",
        """\
`lockstep upgrade` has new code compute beside the old, from the old one's state, and compares their results
before it lets the new one publish. That needs the same steps with state (Spark knows state by position), the
same sources, sinks, tables and event_time steps, and, where results change, a job of one stage with
order="agreed".

The message says which of these differs. Either keep it as it was, or stop the job and start it with the new
code, or run the new code as a job of its own.""",
    ),
    "LS0749": Page(
        "A job with derived order cannot be deactivated",
        """\
Deactivating means that nobody seals epochs. With order="derived" nobody does anyway: each replica finds the
ends of epochs in the log by itself. Stop the job instead; it goes on where it was when it is started again.""",
    ),
    "LS0748": Page(
        "There is no such environment",
        """\
`lockstep upgrade --environment` starts replicas with the Python of another virtual environment, in which
PySpark and Lockstep are installed, or with another Java. Both are named by absolute paths that exist on every
host of the job.""",
    ),
    "LS0746": Page(
        "The operation is over",
        """\
What is done or rolled back cannot be committed or rolled back again. To undo an operation that is done, ask
for the opposite: rescale to the old number, or upgrade to the old code.""",
    ),
}
