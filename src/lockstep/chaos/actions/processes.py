"""Processes of one replica, killed with -9 or stopped for a while: its driver, its JVM, its Python workers, all."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from random import Random

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.chaos.vocabulary import Action, Deed, Member, Need, Part, RunningJob
from lockstep.store.protocols import Holder

PAUSE_SHORT_S = (2.0, 8.0)
PAUSE_LONG_S = (24.0, 30.0)
"""Longer than ``hang_timeout_s`` of a chaos run: the supervisor replaces it while it is stopped."""
PAUSE_LONG_SHARE = 0.25


def victim(running: RunningJob, draw: Random) -> Member:
    """A replica that can be lost now; every second time the one that sealed the newest epoch, whose loss hurts most."""
    spare = running.spare_replicas()
    head = running.store.head()
    sealer = Holder.replica_of(head.sealed_by) if head is not None else ""
    foremost = [one for one in spare if one.name == sealer]
    return draw.choice(foremost if foremost and draw.random() < 0.5 else spare)


def jvms(driver: int) -> list[psutil.Process]:
    """The JVMs below a driver."""
    return [one for one in _below(driver) if _name(one).startswith("java")]


def workers(driver: int) -> list[psutil.Process]:
    """The Python processes below a driver's JVM: they plan, read and run functions."""
    return [one for jvm in jvms(driver) for one in _below(jvm.pid) if _name(one).startswith("python")]


class KillReplica(Action):
    """The whole of it at once, as when its machine dies."""

    name = "kill-replica"
    title = "kill -9 everything of one replica at once, as when its machine dies"
    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill the tree."""
        one = victim(running, draw)
        kill_tree(one.pid)
        return Deed(f"kill -9 of all of {one.name} ({one.pid})", replica=one.name, data={"pid": one.pid})


class KillDriver(Action):
    """The driver alone: JVM and workers have to notice."""

    name = "kill-driver"
    title = "kill -9 the driver of one replica; its JVM and its workers have to notice by themselves"
    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill the driver's process only."""
        one = victim(running, draw)
        _kill(one.pid)
        return Deed(f"kill -9 of {one.name}'s driver ({one.pid})", replica=one.name, data={"pid": one.pid})


class _KillBelow(Action):
    """Some of the processes below a driver."""

    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})
    what: str
    find: staticmethod[[int], list[psutil.Process]]

    def missing(self, running: RunningJob) -> str | None:
        """It has to have some."""
        if (reason := super().missing(running)) is not None:
            return reason
        return None if any(self.find(one.pid) for one in running.spare_replicas()) else f"no replica has a {self.what}"

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Kill all of them."""
        one = victim(running, draw)
        pids = [process.pid for process in self.find(one.pid)]
        for pid in pids:
            _kill(pid)
        listed = ", ".join(map(str, pids))
        return Deed(f"kill -9 of {one.name}'s {self.what} ({listed})", replica=one.name, data={"pids": pids})


class KillJvm(_KillBelow):
    """Its JVM: the driver has to notice."""

    name = "kill-jvm"
    title = "kill -9 the JVM of one replica, below its driver"
    what = "JVM"
    find = staticmethod(jvms)


class KillWorkers(_KillBelow):
    """Its Python workers, which Spark may or may not replace."""

    name = "kill-workers"
    title = "kill -9 the Python workers of one replica, below its JVM"
    what = "Python workers"
    find = staticmethod(workers)


class PauseReplica(Action):
    """SIGSTOP, and SIGCONT later: a zombie that believes it is still now."""

    name = "pause-replica"
    title = "SIGSTOP one replica for seconds and let it continue as a zombie; sometimes for so long that it is replaced"
    requires = frozenset({Need.OTHER_REPLICA})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = PAUSE_LONG_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Stop the whole tree, the driver first: nobody of it must start a process meanwhile."""
        one = victim(running, draw)
        long = draw.random() < PAUSE_LONG_SHARE
        lasts_s = round(draw.uniform(*(PAUSE_LONG_S if long else PAUSE_SHORT_S)), 1)
        stopped = _each([psutil.Process(one.pid), *_below(one.pid)], psutil.Process.suspend)
        return Deed(
            f"SIGSTOP of all of {one.name} ({one.pid}) for {lasts_s} s",
            replica=one.name,
            data={"pid": one.pid, "pids": [process.pid for process in stopped]},
            lasts_s=lasts_s,
            # The driver last, and each by its own identity: a process id may belong to someone else by then.
            undo=lambda: continue_all(stopped[::-1]),
        )


def stopped_below(driver: int) -> list[psutil.Process]:
    """Those of a replica's processes that are stopped now, the driver first."""
    found = []
    for one in _tree(driver):
        try:
            found += [one] if one.status() == psutil.STATUS_STOPPED else []
        except psutil.NoSuchProcess:
            continue
    return found


def continue_all(processes: Sequence[psutil.Process]) -> None:
    """Let them go on."""
    _each(processes, psutil.Process.resume)


def _each(processes: Sequence[psutil.Process], act: Callable[[psutil.Process], None]) -> list[psutil.Process]:
    """Do it to all that are still there; those it was done to."""
    done = []
    for one in processes:
        try:
            act(one)
        except psutil.NoSuchProcess:
            continue
        done.append(one)
    return done


def _below(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []
    return found


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid), *_below(pid)]
    except psutil.NoSuchProcess:
        return []


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it was faster


ACTIONS: tuple[Action, ...] = (KillReplica(), KillDriver(), KillJvm(), KillWorkers(), PauseReplica())
