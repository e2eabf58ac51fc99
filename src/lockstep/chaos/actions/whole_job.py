"""The whole job: its supervisor killed, and stopped and started by an operator."""

from __future__ import annotations

import os
import signal
from random import Random

from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob

NOTICED_S = (0.5, 4.0)
"""Until a service manager starts the job again."""
STOPPED_S = (1.0, 5.0)


class KillSupervisor(Action):
    """`lockstep run` itself; the replicas have to end, and a new one has to go on where they were."""

    name = "kill-supervisor"
    title = "kill -9 `lockstep run`; its replicas have to end by themselves, and the job is started again"
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


ACTIONS: tuple[Action, ...] = (KillSupervisor(), StopAndStart())
