"""What an engine costs: CPU time and memory of its whole process tree, sampled from outside.

Every quarter of a second all processes are looked through for descendants of the root. A process that was seen once is
followed until it ends, also if its parent dies and it is adopted by another. CPU time is

- what each process that was ever seen had used when it was last seen, and
- what children used that ended between two samples, as far as their parent says: the system adds the time of a child
  to its parent's account when the parent waits for it. What was counted for those children already is taken off.

So a child that ends without being waited for (its parent was killed with it) loses at most a quarter of a second.
Memory is the sum of the proportional set sizes (pages that several processes share are divided among them), where the
system tells them, else of the resident sizes; it is looked at once a second, because asking costs the asked one time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import TracebackType

import psutil

INTERVAL_S = 0.25
MEMORY_INTERVAL_S = 1.0

Identity = tuple[int, float]
"""Process id and time of birth: ids are used again."""


@dataclass(frozen=True)
class Seen:
    """One process when it was last seen."""

    identity: Identity
    parent: Identity | None
    own_cpu_s: float
    ended_children_cpu_s: float
    """What the system has added to its account for children that it waited for."""
    alive: bool = True


@dataclass(frozen=True)
class Cost:
    """What a tree has cost up to a moment."""

    at_s: float
    cpu_s: float
    memory_bytes: int
    processes: int


def total_cpu_s(processes: Iterable[Seen]) -> float:
    """The CPU time of all processes that were ever seen and, as far as it is known, of those never seen.

    A root that has used 1 s, a child that was last seen with 2 s and has ended with 2.5 s on its parent's account:

    >>> root, child = (1, 0.0), (2, 0.0)
    >>> total_cpu_s([Seen(root, None, 1.0, 2.5), Seen(child, root, 2.0, 0.0, alive=False)])
    3.5
    """
    known = list(processes)
    counted: dict[Identity, float] = {}
    for one in known:
        if not one.alive and one.parent is not None:
            counted[one.parent] = counted.get(one.parent, 0.0) + one.own_cpu_s + one.ended_children_cpu_s
    unseen_s = sum(max(0.0, one.ended_children_cpu_s - counted.get(one.identity, 0.0)) for one in known)
    return sum(one.own_cpu_s for one in known) + unseen_s


def between(costs: Sequence[Cost], from_s: float, until_s: float) -> tuple[float, int]:
    """CPU seconds used from one moment to another (from the samples nearest to them), and the peak memory in between.

    >>> costs = [Cost(0.0, 1.0, 10, 1), Cost(1.0, 2.5, 30, 2), Cost(2.0, 4.0, 20, 2), Cost(3.0, 9.0, 99, 2)]
    >>> between(costs, 0.9, 2.1)
    (1.5, 30)
    """
    if not costs:
        return 0.0, 0
    first = min(costs, key=lambda cost: abs(cost.at_s - from_s))
    last = min(costs, key=lambda cost: abs(cost.at_s - until_s))
    memory = [cost.memory_bytes for cost in costs if first.at_s <= cost.at_s <= last.at_s]
    return max(0.0, last.cpu_s - first.cpu_s), max(memory, default=0)


class TreeMeter:
    """Samples a tree in a thread, from entering to leaving."""

    def __init__(self, root_pid: int, interval_s: float = INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._seen: dict[Identity, Seen] = {}
        self._memory: dict[Identity, int] = {}
        self._memory_due_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tree-meter", daemon=True)
        self._lock = threading.Lock()
        self.costs: list[Cost] = []
        self._root_pid = root_pid

    def __enter__(self) -> TreeMeter:
        self.sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self.sample()

    def sample(self) -> Cost:
        """Look once."""
        with self._lock:
            self._look()
            cost = Cost(
                at_s=time.time(),
                cpu_s=total_cpu_s(self._seen.values()),
                memory_bytes=sum(self._memory.values()),
                processes=sum(one.alive for one in self._seen.values()),
            )
            self.costs.append(cost)
            return cost

    def living(self) -> list[psutil.Process]:
        """The processes of the tree that live now, those included that have lost their parent."""
        with self._lock:
            self._look()
            return [
                process
                for (pid, born_s), one in self._seen.items()
                if one.alive and (process := _process(pid, born_s)) is not None
            ]

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            self.sample()

    def _look(self) -> None:
        there = {process.pid: process for process in psutil.process_iter()}
        family = self._family(there)
        measure_memory = time.monotonic() >= self._memory_due_s
        if measure_memory:
            self._memory_due_s = time.monotonic() + MEMORY_INTERVAL_S
            self._memory = {}
        for identity, (process, parent) in family.items():
            self._take(identity, process, parent, memory=measure_memory)
        for identity, one in self._seen.items():
            if one.alive and identity not in family:
                self._seen[identity] = Seen(one.identity, one.parent, one.own_cpu_s, one.ended_children_cpu_s, False)

    def _family(self, there: dict[int, psutil.Process]) -> dict[Identity, tuple[psutil.Process, Identity | None]]:
        """All living processes that descend from the root or from anyone who ever did."""
        parents = {pid: parent for pid, process in there.items() if (parent := _parent_pid(process)) is not None}
        known = {pid: born_s for (pid, born_s), one in self._seen.items() if one.alive}
        members = {pid for pid, born_s in known.items() if pid in there and there[pid].create_time() == born_s}
        if self._root_pid in there and not self._seen:
            members.add(self._root_pid)
        found = -1
        while found != len(members):
            found = len(members)
            members |= {pid for pid, parent in parents.items() if parent in members}
        born = {pid: (pid, there[pid].create_time()) for pid in members}
        return {born[pid]: (there[pid], self._parent_of(born, pid, parents)) for pid in members}

    def _parent_of(self, born: dict[int, Identity], pid: int, parents: dict[int, int]) -> Identity | None:
        """Whose account its time will go to; one that was adopted by a stranger keeps the parent it had."""
        now = born.get(parents.get(pid, -1))
        before = self._seen.get(born[pid])
        return now or (before.parent if before is not None else None)

    def _take(self, identity: Identity, process: psutil.Process, parent: Identity | None, *, memory: bool) -> None:
        try:
            times = process.cpu_times()
            zombie = process.status() == psutil.STATUS_ZOMBIE
            if memory and not zombie:
                self._memory[identity] = _memory_bytes(process)
        except psutil.Error:
            return
        children_s = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
        self._seen[identity] = Seen(identity, parent, times.user + times.system, children_s)


def _memory_bytes(process: psutil.Process) -> int:
    try:
        full = process.memory_full_info()
        return int(getattr(full, "pss", 0) or full.rss)
    except psutil.AccessDenied:
        return int(process.memory_info().rss)


def _parent_pid(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.Error:
        return None


def _process(pid: int, born_s: float) -> psutil.Process | None:
    try:
        process = psutil.Process(pid)
        return process if process.create_time() == born_s else None
    except psutil.NoSuchProcess:
        return None
