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
}
