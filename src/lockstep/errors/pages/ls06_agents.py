"""Pages of the codes LS068x: the agent that has a job's processes."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0680": Page(
        "The agent does not answer",
        """\
The replicas of a job belong to a process of their own, its agent (`python -m lockstep.agent`), so that
they outlive `lockstep run`. It is there and has not answered in time: it is stopped (SIGSTOP, a
debugger), or the machine is very busy. Its replicas go on meanwhile, but nobody can be started or
ended; after a minute `lockstep run` gives up.

Look at .lockstep/jobs/JOB/agent.log and at the process in agent.pid beside it. If it does not come
back, end it: `kill -9 $(cat .lockstep/jobs/JOB/agent.pid)`. Its replicas finish their epoch and end,
and `lockstep run` starts another agent and the replicas anew.""",
    ),
    "LS0681": Page(
        "The agent is gone",
        """\
Nobody listens at the socket of the job's agent any more: it was killed, or its machine ended it for
lack of memory (`dmesg` names it). Its replicas see that within a second, finish their epoch and end;
`lockstep run` starts another agent and the replicas anew, from their checkpoints. Nothing is lost, but
output pauses until the first replica has booted, since spares end with their agent too.

The end of .lockstep/jobs/JOB/agent.log may say more.""",
    ),
    "LS0682": Page(
        "The agent is ending",
        """\
Nobody has supervised the job for orphan_timeout_s (30 s), or its agent was asked to end. Its replicas
are finishing their epoch; nothing is started there any more. `lockstep run` waits for that, then
starts another agent.

If it says that the agent does not end, a replica hangs: `kill -9 $(cat .lockstep/jobs/JOB/agent.pid)`,
then run the job again.""",
    ),
    "LS0683": Page(
        "The agent does not know this token",
        """\
Whoever commands an agent has to have its token. It is in .lockstep/jobs/JOB/agent.json, which only the
user who started the job can read, and is made anew for every agent.

Run the command as that user. If you did, agent.json was replaced while the agent ran: end the agent,
`kill $(cat .lockstep/jobs/JOB/agent.pid)`, which lets its replicas finish, and run the job again.""",
    ),
    "LS0684": Page(
        "A host did not take the job's code and tables",
        """\
Before a job runs on a host, its code and the copies of its tables are sent there, at most 2 GB. The
message says what went wrong: the host's disk may be full, or the connection broke. It is tried again
by itself; meanwhile the job runs on the other hosts.""",
    ),
    "LS0685": Page(
        "No host can take the job",
        """\
The store has hosts (`lockstep agent` announces them there), and none of them can be used: the message
says why for each. Lockstep, Python, Spark and packages have to be the same everywhere, since results
could differ otherwise; the token has to be the same (`lockstep token` says where it is); and each host
has to be reachable at the address of its --listen.""",
    ),
    "LS0686": Page(
        "The job keeps something on one host's disk",
        """\
Replicas of a job live on several hosts, so that one may die. Journals, SQLite files, and (without the
setting `journals`) loops and the boundaries between stages are files in the folder of one host: every
other host would see an empty one of its own. Read from and write to systems that all hosts reach
(Kafka, Postgres), and have the journals inside the job in topics:

    journals = "kafka://h1:9092,h2:9092/lockstep"    # in lockstep.toml, before the job's first start

Or run the job on one host: with a store in a folder, or with one agent.""",
    ),
    "LS0687": Page(
        "A path is not one place for all hosts",
        """\
A files or Delta sink, or a files source, has a path. When a job is started on several hosts, one of
them writes a small file there and the others look for it, and the message names those that do not see
it. Every replica would write an output of its own.

Put the path on a file system that all hosts have at the same place. A relative path is below the
folder of each agent (--folder).""",
    ),
    "LS0688": Page(
        "The job has not stopped yet",
        """\
`lockstep stop` has noted that the job is to stop, and whoever coordinates it sees that within a second,
lets the replicas finish their epoch and ends them. That it takes longer has a reason in `lockstep
status`: an epoch that takes long, or a store that does not answer. It will stop; or end the process
that the message names.""",
    ),
    "LS0689": Page(
        "A job can only be handed over to hosts",
        """\
`lockstep run --detach` sends a job to the hosts that share its store and ends; one of them coordinates
it from then on. On one host nobody would: let `lockstep run` run there, under a service manager if it
has to outlive a terminal.""",
    ),
}
