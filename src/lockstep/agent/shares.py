"""Shares of the processor: what comes back must not be felt by those who publish.

A process that comes back beside publishing replicas gets the idle class of the scheduler until it has caught up: it
runs in what time the others leave. It must not starve there, so where nothing is left it is given a gentle share, and
then its full one.
The decisions are pure functions; setting a share is for Linux, and does as much as the system allows elsewhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import psutil

if TYPE_CHECKING:
    from lockstep.config import BootShare

Share = Literal["full", "gentle", "last", "idle"]
STARVED_LOOK_S = 2.0
STARVED_SHARE = 0.25
"""Of a core. Gentle is niceness 5, a weight of 335 against 1024: beside one busy process on each core it is a quarter
of a core. Whoever gets less than that in the idle class is better off gentle; at a load of two on each core that shows
at the first look, so the idle class costs a boot two seconds at most where there is no idle time. There gentle takes
335 of 4 x 1024 + 335, a twelfth, from everybody."""
_SESSIONS = Path("/proc/sys/kernel/sched_autogroup_enabled")
_PASSES_MAX = 5
"""A thread that is begun while all are walked through has the share of the one that began it: look again."""
_THERE_AND_BACK = """
import os
if hasattr(os, "SCHED_IDLE"):
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
os.setpriority(os.PRIO_PROCESS, 0, 1)
os.setpriority(os.PRIO_PROCESS, 0, 0)
"""
_THERE_AND_BACK_S_MAX = 10.0
"""It takes milliseconds, and longer where there is no idle time: such a boot would soon be gentle anyway."""


@dataclass(frozen=True)
class Demand:
    """Processor time of a process and all below it: what it had, and how long its threads waited for more."""

    used_s: float = 0.0
    waited_s: float = 0.0

    def since(self, before: Demand) -> Demand:
        """What came since then."""
        return Demand(self.used_s - before.used_s, self.waited_s - before.waited_s)


@dataclass(frozen=True)
class _Setting:
    niceness: int
    idle: bool = False


_SETTINGS: dict[Share, _Setting] = {
    "full": _Setting(0),
    "gentle": _Setting(5),
    "last": _Setting(19),
    # The class counts within a session only, where Linux groups by session: the session's own share is set too.
    "idle": _Setting(19, idle=True),
}


def first_share(boot_share: BootShare, *, spare: bool, others_publish: bool) -> Share:
    """What a process begins with.

    >>> first_share("idle", spare=False, others_publish=True), first_share("idle", spare=False, others_publish=False)
    ('idle', 'full')
    >>> first_share("gentle", spare=True, others_publish=True), first_share("gentle", spare=False, others_publish=True)
    ('last', 'gentle')
    """
    if not others_publish:
        return "full"
    if boot_share == "gentle":
        return "last" if spare else "gentle"
    return "idle"


def next_share(share: Share, used: Demand, span_s: float, *, spare: bool) -> Share:
    """What a process on its way has from now on that has used and wanted so much processor time in so long.

    Until it has caught up: then it has its full share. Whoever starves gets the next larger share.

    >>> next_share("idle", Demand(used_s=1.5, waited_s=3.0), span_s=2.0, spare=False)
    'idle'
    >>> next_share("idle", Demand(used_s=0.1, waited_s=3.0), span_s=2.0, spare=False)
    'gentle'
    >>> next_share("gentle", Demand(used_s=0.1, waited_s=3.0), span_s=2.0, spare=False)
    'full'

    A spare too: on a machine that is never idle there would never be one, and a replica that dies would have to boot
    from nothing. But nobody waits for it, so gentle is the most that it gets.

    >>> next_share("gentle", Demand(used_s=0.1, waited_s=3.0), span_s=2.0, spare=True)
    'gentle'

    One that waits for something else than the processor does not starve.

    >>> next_share("idle", Demand(used_s=0.1, waited_s=0.05), span_s=2.0, spare=False)
    'idle'
    """
    if used.used_s >= STARVED_SHARE * span_s or used.waited_s <= used.used_s:
        return share
    larger: Share = "gentle" if share in ("idle", "last") else "full"
    return "gentle" if spare and larger == "full" else larger


def set_share(pid: int, share: Share) -> bool:
    """Set the share of a process, of all below it and of all their threads; whether it has it and can give it back.

    Where a user may not take it back (no right to raise a priority), threads are left as they are.
    """
    setting = _SETTINGS[share]
    session = _set_session(pid, setting.niceness)
    if not may_take_back():
        return session is True
    for _ in range(_PASSES_MAX):
        changed = [_set_thread(thread, setting) for thread in _threads(pid)]
        if None in changed:
            # The system has changed its mind. Whoever takes a share back tries again.
            return share != "full" and session is True
        if not any(changed):
            break
    return session is not False


@cache
def may_take_back() -> bool:
    """Whether a lower priority can be taken back later: not for ordinary users, unless the system allows it.

    Everybody may enter the idle class; to leave it takes a right that root in a container has not. A child tries.
    """
    command = [sys.executable, "-I", "-S", "-c", _THERE_AND_BACK]
    try:
        tried = subprocess.run(command, capture_output=True, timeout=_THERE_AND_BACK_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return tried.returncode == 0


def _set_session(pid: int, niceness: int) -> bool | None:
    """Set the share of a whole session; None if sessions have none here, False if it did not work now.

    Linux schedules session against session where automatic grouping is on: niceness and class then count only within
    one, and a replica, which has a session of its own, would not be gentle at all (measured).
    """
    try:
        if _SESSIONS.read_text(encoding="ascii").strip() != "1":
            return None
        Path(f"/proc/{pid}/autogroup").write_text(str(niceness), encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError:
        # Ordinary users may do this ten times a second. Whoever gives a share back tries again.
        return False
    return True


def _set_thread(thread: int, setting: _Setting) -> bool | None:
    """Give one thread its class and niceness; whether it had others before, None if that is not allowed."""
    changed = False
    try:
        if hasattr(os, "SCHED_IDLE"):
            wanted = os.SCHED_IDLE if setting.idle else os.SCHED_OTHER
            if os.sched_getscheduler(thread) != wanted:
                os.sched_setscheduler(thread, wanted, os.sched_param(0))
                changed = True
        # The idle class knows no niceness; what is set now would count once it is left.
        niceness = 0 if setting.idle else setting.niceness
        if os.getpriority(os.PRIO_PROCESS, thread) != niceness:
            os.setpriority(os.PRIO_PROCESS, thread, niceness)
            changed = True
    except ProcessLookupError:
        return False
    except PermissionError:
        return None
    return changed


def demand(pid: int) -> Demand:
    """What a process and all below it have used and wanted so far; nothing where the system does not tell."""
    used_ns = waited_ns = 0
    for thread in _threads(pid):
        with suppress(OSError):
            used, waited, _ = Path(f"/proc/{thread}/schedstat").read_text(encoding="ascii").split()
            used_ns, waited_ns = used_ns + int(used), waited_ns + int(waited)
    return Demand(used_ns / 1e9, waited_ns / 1e9)


def _threads(pid: int) -> Iterator[int]:
    """The threads of a process and of all below it; without ``/proc`` the processes themselves."""
    for one in family(pid):
        folder = Path(f"/proc/{one.pid}/task")
        try:
            found = [int(path.name) for path in folder.iterdir()]
        except OSError:
            found = [one.pid]
        yield from found


def family(pid: int) -> list[psutil.Process]:
    """A process and all below it; none if it is gone."""
    try:
        one = psutil.Process(pid)
        return [one, *one.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
