"""The network of one replica: its own namespace, and trouble on the loopback inside it.

Replicas of a job share a host and speak through files only. A replica in a namespace of its own, with nothing but its
own loopback, is cut off from all others for good, and must not mind; trouble on that loopback hits what its driver, its
JVM and its Python workers say to each other.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from random import Random

from lockstep.agent.processes import kill_tree
from lockstep.chaos.vocabulary import Action, Deed, Member, Need, Part, RunningJob
from lockstep.faults.switch import PREFIXES_FILE

TROUBLE_S = (2.0, 8.0)
CUT_S = (1.0, 6.0)
STARTED_S_MAX = 30.0
"""A replica has said a first word by then."""
DELAY_MS = (5, 60)
LOSS_PERCENT = (1, 10)
RATE_KBIT = (500, 4000)
LAUNCHER = [sys.executable, "-m", "lockstep.faults.namespace"]
PACKET_BYTES_MAX = 66_000
"""Loopback packets have up to 64 KiB: a bucket that holds less would never let one through."""
_PROBE_S_MAX = 10.0


@cache
def namespaces_impossible() -> str | None:
    """Why no process can be put into a network namespace here; None if it can."""
    if sys.platform != "linux":
        return "network namespaces are Linux's"
    missing = [tool for tool in ("ip", "tc", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed (iproute2, util-linux)"
    return _refused([*LAUNCHER, "ip", "link", "show", "lo"])


@cache
def queueing_impossible(*discipline: str) -> str | None:
    """Why this queueing discipline cannot be put on a loopback here; None if it can."""
    if (reason := namespaces_impossible()) is not None:
        return reason
    return _refused([*LAUNCHER, "tc", "qdisc", "add", "dev", "lo", "root", *discipline])


def _refused(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_PROBE_S_MAX)
    except subprocess.TimeoutExpired:
        return f"`{' '.join(command[len(LAUNCHER) :])}` takes too long"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return f"not permitted or not in this kernel: {said}"


def namespace(pid: int) -> int | None:
    """Which network namespace a process is in, None if it is gone."""
    try:
        return (Path("/proc") / str(pid) / "ns" / "net").stat().st_ino
    except OSError:
        return None


def apart(members: list[Member]) -> list[Member]:
    """Those that are in a namespace of their own."""
    own = namespace(os.getpid())
    return [one for one in members if namespace(one.pid) not in (own, None)]


class IsolateReplica(Action):
    """A partition: from its next start on it shares no network with anybody."""

    name = "isolate-replica"
    title = "kill -9 a replica and start it in a network namespace of its own, cut off from all others for good"
    requires = frozenset({Need.OTHER_REPLICA, Need.FAULTS})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = STARTED_S_MAX

    def impossible(self) -> str | None:
        """It needs the right to make namespaces."""
        return namespaces_impossible()

    def missing(self, running: RunningJob) -> str | None:
        """Once is enough for each."""
        if (reason := super().missing(running)) is not None:
            return reason
        return None if _together(running) else "every replica is in a namespace of its own"

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Have its command begin with the launcher from now on, and kill it."""
        one = draw.choice(_together(running))
        _set_prefix(running.orders / PREFIXES_FILE, one.name)
        kill_tree(one.pid)
        return Deed(
            f"kill -9 of all of {one.name} ({one.pid}), which comes back in a network namespace of its own",
            replica=one.name,
            data={"pid": one.pid},
            lasts_s=STARTED_S_MAX,
            happened=lambda: one.name in {member.name for member in apart(running.members())},
        )


class _OnLoopback(Action):
    """Trouble on the loopback of a replica that has one of its own."""

    requires = frozenset({Need.OTHER_REPLICA, Need.NAMESPACE})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = TROUBLE_S[1]
    probe: tuple[str, ...]

    def impossible(self) -> str | None:
        """It needs a queueing discipline that the kernel may lack."""
        return queueing_impossible(*self.probe)

    def missing(self, running: RunningJob) -> str | None:
        """One of those that can be lost has to have a namespace of its own."""
        if (reason := super().missing(running)) is not None:
            return reason
        return None if apart(running.spare_replicas()) else "no replica that can be lost has a namespace of its own"

    def on_loopback(self, running: RunningJob, draw: Random, discipline: list[str], what: str) -> Deed:
        """Put a queueing discipline on the loopback, and take it away at the end."""
        one = draw.choice(apart(running.spare_replicas()))
        lasts_s = round(draw.uniform(*TROUBLE_S), 1)
        inside(one.pid, ["tc", "qdisc", "add", "dev", "lo", "root", *discipline])
        return Deed(
            f"the loopback of {one.name} has {what} for {lasts_s} s",
            replica=one.name,
            data={"pid": one.pid, "discipline": discipline},
            lasts_s=lasts_s,
            undo=lambda: inside(one.pid, ["tc", "qdisc", "del", "dev", "lo", "root"]),
        )


class DelayNetwork(_OnLoopback):
    """Every packet takes longer."""

    name = "delay-network"
    title = "delay every packet between a replica's driver, JVM and Python workers"
    probe = ("netem", "delay", "1ms")

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """With netem."""
        delay_ms = draw.randint(*DELAY_MS)
        return self.on_loopback(running, draw, ["netem", "delay", f"{delay_ms}ms"], f"{delay_ms} ms of delay")


class LoseNetwork(_OnLoopback):
    """Some packets get lost, and TCP sends them again."""

    name = "lose-network"
    title = "lose some packets between a replica's driver, JVM and Python workers"
    probe = ("netem", "loss", "1%")

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """With netem."""
        loss = draw.randint(*LOSS_PERCENT)
        return self.on_loopback(running, draw, ["netem", "loss", f"{loss}%"], f"{loss} % of loss")


class NarrowNetwork(_OnLoopback):
    """Delay by queueing and loss by a full queue, where a kernel has no netem."""

    name = "narrow-network"
    title = "let little through between a replica's driver, JVM and Python workers: packets queue, and overflow"
    probe = ("tbf", "rate", "1mbit", "burst", str(PACKET_BYTES_MAX), "limit", str(2 * PACKET_BYTES_MAX))

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """With a token bucket and a short queue."""
        rate = draw.randint(*RATE_KBIT)
        limits = ["burst", str(PACKET_BYTES_MAX), "limit", str(2 * PACKET_BYTES_MAX)]
        return self.on_loopback(running, draw, ["tbf", "rate", f"{rate}kbit", *limits], f"{rate} kbit/s")


class CutNetwork(_OnLoopback):
    """Nothing goes through for a while; connections stay open and wait."""

    name = "cut-network"
    title = "take the loopback of one replica down for seconds: its driver, JVM and Python workers cannot speak"
    lasts_s_max = CUT_S[1]

    def impossible(self) -> str | None:
        """It needs no queueing discipline, only the namespace."""
        return namespaces_impossible()

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Down, and up at the end."""
        one = draw.choice(apart(running.spare_replicas()))
        lasts_s = round(draw.uniform(*CUT_S), 1)
        inside(one.pid, ["ip", "link", "set", "lo", "down"])
        return Deed(
            f"the loopback of {one.name} is down for {lasts_s} s",
            replica=one.name,
            data={"pid": one.pid},
            lasts_s=lasts_s,
            undo=lambda: inside(one.pid, ["ip", "link", "set", "lo", "up"]),
        )


def inside(pid: int, command: list[str]) -> None:
    """Run a command in the network namespace of a process; nothing, if that is gone: its namespace went with it."""
    if namespace(pid) is not None:
        subprocess.run(
            ["nsenter", "--net", "--target", str(pid), *command],  # noqa: S607
            check=False,
            capture_output=True,
            timeout=_PROBE_S_MAX,
        )


def _together(running: RunningJob) -> list[Member]:
    spare = running.spare_replicas()
    own = {one.name for one in apart(spare)}
    return [one for one in spare if one.name not in own]


def _set_prefix(path: Path, replica: str) -> None:
    prefixes = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({**prefixes, replica: LAUNCHER}), encoding="utf-8")
    temporary.replace(path)


ACTIONS: tuple[Action, ...] = (IsolateReplica(), DelayNetwork(), LoseNetwork(), NarrowNetwork(), CutNetwork())
