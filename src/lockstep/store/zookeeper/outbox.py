"""What may be written late is written by a thread of its own, so that no epoch waits for it.

The queue is bounded: while the ensemble is away the oldest of it is dropped, and counted. A word that replaces an older
one of the same kind takes its place in the queue. Whoever reads a kind here waits until what this process wrote of that
kind is there. That kind is written first then: an epoch may wait for it, and much queues in a pause of the ensemble.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from itertools import count

from lockstep.errors import StoreError
from lockstep.store.patience import patience, patience_s

QUEUE_MAX = 1_000
"""Words that wait. A replica writes a few an epoch and two a second besides: this is a minute of a busy job."""
WRITE_S = 5.0
"""What one word may take before its thread asks again."""
IDLE_S = 0.25
"""How often the thread sees to expired leases while there is nothing to write."""

Key = tuple[str, str]
"""The kind of a word, and which word of that kind it replaces."""


class Outbox:
    """A queue and the thread that empties it, begun with the first word; in a child after ``fork`` it begins anew."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._begin_anew()

    def put(self, kind: str, act: Callable[[], None], replaces: str = "") -> None:
        """Have ``act`` done soon, and in its turn; instead of one that has the same ``kind`` and ``replaces``."""
        self.begin()
        with self._changed:
            self._queue[(kind, replaces or f"#{next(self._numbers)}")] = act
            while len(self._queue) > QUEUE_MAX:
                self._queue.popitem(last=False)
                self.dropped += 1
            self._changed.notify_all()

    def begin(self) -> None:
        """Start the thread, unless it runs."""
        if self._pid != os.getpid():
            self._begin_anew()
        with self._changed:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="lockstep-telemetry", daemon=True)
                self._thread.start()

    def wait(self, kind: str = "") -> None:
        """Until nothing of ``kind`` (of any kind) is left to write, at most the caller's patience."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._awaited.append(kind)
            self._changed.wait_for(lambda: not self._has(kind), timeout=patience_s())
            self._awaited.remove(kind)

    def end(self) -> None:
        """Write what is left, at most the caller's patience, and end the thread."""
        if self._pid != os.getpid() or self._thread is None:
            return
        self.wait()
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(timeout=WRITE_S)

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        self._queue: OrderedDict[Key, Callable[[], None]] = OrderedDict()
        self._awaited: list[str] = []
        """Kinds that somebody waits for."""
        self._changed = threading.Condition()
        self._thread = None
        self._doing = ""
        self._ending = False
        self.dropped = 0
        """Words that nobody will ever read."""

    def _has(self, kind: str) -> bool:
        waiting = {one for one, _ in self._queue} | ({self._doing} if self._doing else set())
        return kind in waiting if kind else bool(waiting)

    def _next(self) -> Key:
        """The oldest of a kind that somebody waits for, or else the oldest."""
        awaited = (key for key in self._queue if key[0] in self._awaited)
        return next(awaited, None) or next(iter(self._queue), ("", ""))

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._queue) or self._ending, timeout=IDLE_S)
                if self._ending:
                    return
                key = self._next()
                act = self._queue.pop(key, self._on_idle)
                self._doing = key[0]
            done = _is_done(act)
            with self._changed:
                self._doing = ""
                if not done and key[0] and key not in self._queue:
                    self._queue[key] = act
                    self._queue.move_to_end(key, last=False)
                self._changed.notify_all()
            if not done:
                time.sleep(IDLE_S)


def _is_done(act: Callable[[], None]) -> bool:
    """Do it; False if it is to be tried again later."""
    try:
        with patience(WRITE_S):
            act()
    except StoreError as error:
        return error.code not in ("LS0413", "LS0421")  # locked, away; anything else would fail again
    return True
