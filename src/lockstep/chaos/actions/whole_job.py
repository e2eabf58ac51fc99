"""The whole job: its supervisor or its agent killed, and stopped and started by an operator."""

from __future__ import annotations

import os
import signal
from random import Random

import psutil

from lockstep.agent.description import PID_FILE
from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob
from lockstep.store.home import job_folder

NOTICED_S = (0.5, 4.0)
"""Until a service manager starts the job again."""
STOPPED_S = (1.0, 5.0)


class KillSupervisor(Action):
    """`lockstep run` itself; the replicas have to go on, and a new one has to adopt them."""

    name = "kill-supervisor"
    title = "kill -9 `lockstep run`; its replicas have to go on, and the next run has to adopt them"
    requires = frozenset({Need.ALL_REPLICAS})
    takes = frozenset({Part.JOB})
    lasts_s_max = NOTICED_S[1]
    weight = 0.7

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill it, and start it again at the end."""
        pid = running.supervisor_pid()
        assert pid is not None, "all replicas are healthy, so somebody supervises them"
        lasts_s = round(draw.uniform(*NOTICED_S), 1)
        os.kill(pid, signal.SIGKILL)
        return Deed(
            f"kill -9 of `lockstep run` ({pid}); started again after {lasts_s} s",
            data={"pid": pid},
            lasts_s=lasts_s,
            undo=running.start_job,
        )


class KillAgent(Action):
    """The process that has the replicas; they have to end, and the supervisor has to start all anew."""

    name = "kill-agent"
    title = "kill -9 the agent that has the replicas; they have to end by themselves, and `lockstep run` goes on anew"
    requires = frozenset({Need.ALL_REPLICAS})
    takes = frozenset({Part.JOB})
    weight = 0.4

    def missing(self, running: RunningJob) -> str | None:
        """There has to be one."""
        return super().missing(running) or (None if _agent_pid(running) is not None else "no agent runs")

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill it alone."""
        del draw
        pid = _agent_pid(running)
        assert pid is not None, "it was there a moment ago"
        os.kill(pid, signal.SIGKILL)
        return Deed(f"kill -9 of the agent ({pid})", data={"pid": pid})


def _agent_pid(running: RunningJob) -> int | None:
    """Told by what it was started with: the file may be of one that is gone."""
    folder = job_folder(running.store_folder, running.job)
    try:
        pid = int((folder / PID_FILE).read_text(encoding="ascii"))
        return pid if str(folder) in psutil.Process(pid).cmdline() else None
    except (OSError, ValueError, psutil.Error):
        return None


class StopAndStart(Action):
    """A graceful stop and another start, as for maintenance."""

    name = "stop-and-start"
    title = "stop the whole job gracefully (SIGTERM) and start it again"
    requires = frozenset({Need.ALL_REPLICAS})
    takes = frozenset({Part.JOB})
    lasts_s_max = STOPPED_S[1]
    weight = 0.7

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Ask it to stop, and start it again at the end."""
        lasts_s = round(draw.uniform(*STOPPED_S), 1)
        running.stop_job()
        return Deed(
            f"SIGTERM to `lockstep run`; started again after {lasts_s} s", lasts_s=lasts_s, undo=running.start_job
        )


ACTIONS: tuple[Action, ...] = (KillSupervisor(), KillAgent(), StopAndStart())
