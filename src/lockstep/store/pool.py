"""Connections to one SQLite file, lent to one thread at a time, and let go before the process forks.

SQLite keeps its locks per process and does not notice a fork: a child that uses, or merely inherits, an open connection
believes in locks it does not hold, and another process may then delete the log under it. So every idle connection is
closed just before a fork; one that stays in use for too long makes the pool unusable in the child, which is told so.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockstep.errors import StoreError

IDLE_MAX = 8
"""Connections kept for the next borrower; more threads than this open and close their own."""
FORK_WAIT_S = 2.0
"""How long a fork waits for transactions under way; they take milliseconds."""


class Pool:
    """Lends connections; as many as threads ask for at once."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._changed = threading.Condition(threading.Lock())
        self._idle: list[sqlite3.Connection] = []
        self._lent: list[sqlite3.Connection] = []
        self._closed = False
        self._inherited: list[sqlite3.Connection] = []
        """In a child: what was in use when it was forked. Kept, since even closing it here would do harm."""
        with _fork_lock:
            # Not while a fork goes through them.
            _pools.add(self)

    @contextmanager
    def borrow(self) -> Iterator[sqlite3.Connection]:
        """A connection for the time of the ``with`` block; one that had trouble is not lent again."""
        connection = self._take()
        sound = False
        try:
            yield connection
            sound = True
        except StoreError:
            sound = True
            raise
        finally:
            self._give_back(connection, sound=sound)

    def close(self) -> None:
        """Close what is idle now, and the rest as it comes back."""
        with self._changed:
            self._closed = True
            self._close_idle()

    def _take(self) -> sqlite3.Connection:
        with self._changed:
            assert not self._closed, "the store was closed"
            if self._inherited:
                raise StoreError(
                    "LS0416",
                    "the process was forked while the store was in use",
                    why="SQLite's locks do not survive a fork: going on could damage the file.",
                    hint='start processes with multiprocessing.get_context("spawn"), or open the store after the fork.',
                )
            connection = self._idle.pop() if self._idle else self._connect()
            self._lent.append(connection)
            return connection

    def _give_back(self, connection: sqlite3.Connection, *, sound: bool) -> None:
        with self._changed:
            if connection not in self._lent:  # a child that was forked inside the block: the connection is its parent's
                return
            self._lent.remove(connection)
            if sound and not self._closed and len(self._idle) < IDLE_MAX:
                self._idle.append(connection)
            else:
                connection.close()
            self._changed.notify_all()

    def _close_idle(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def before_fork(self) -> None:
        """Wait for what is lent, close what is idle, and let nobody borrow until the fork is done."""
        self._changed.acquire()
        self._changed.wait_for(lambda: not self._lent, timeout=FORK_WAIT_S)
        self._close_idle()

    def after_fork_in_parent(self) -> None:
        """Lend again."""
        self._changed.release()

    def after_fork_in_child(self) -> None:
        """Begin afresh: the threads that held something do not exist here."""
        self._inherited, self._lent = self._lent, []
        self._changed = threading.Condition(threading.Lock())


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()
_fork_lock = threading.Lock()
_forking: list[Pool] = []


def _before_fork() -> None:
    _fork_lock.acquire()
    _forking[:] = list(_pools)
    for pool in _forking:
        pool.before_fork()


def _after_fork_in_parent() -> None:
    while _forking:
        _forking.pop().after_fork_in_parent()
    _fork_lock.release()


def _after_fork_in_child() -> None:
    while _forking:
        _forking.pop().after_fork_in_child()
    _fork_lock.release()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
