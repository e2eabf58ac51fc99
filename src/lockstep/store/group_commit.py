"""Group commit: threads that ask at the same time share one transaction, and so one wait for the disk.

The first to come leads: it commits everything that is queued, its own request among it. Whoever comes meanwhile queues;
when the leader is done, the first of those leads the next group. No thread of its own, and no delay when alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from lockstep.errors import StoreError

REQUESTS_QUEUED_MAX = 1_024
"""More threads than this wait before they queue: what is queued is in memory and not yet on disk."""
REQUESTS_PER_GROUP_MAX = 256
"""Bounds a transaction; its wait for the disk is by then shared 256 ways."""

Request = TypeVar("Request")
Result = TypeVar("Result")


def _interrupted() -> StoreError:
    return StoreError(
        "LS0417",
        "the append was interrupted",
        why="the thread that wrote for several others was stopped; the records may be on disk, or not.",
        hint="look at the end of the journal before you append them again.",
    )


class _Ticket(Generic[Request, Result]):
    """One request on its way through the queue."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.called = threading.Event()
        """Set when it is done, or when its thread is to lead."""
        self.done = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class GroupCommit(Generic[Request, Result]):
    """Runs ``commit`` for groups of requests; it answers with one result for each, in order, or fails for all.

    >>> doubled = GroupCommit(lambda numbers: [2 * number for number in numbers])
    >>> doubled.submit(21)
    42
    """

    def __init__(self, commit: Callable[[list[Request]], list[Result]]) -> None:
        self._commit = commit
        self._begin_afresh()

    def _begin_afresh(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[_Ticket[Request, Result]] = deque()
        self._led = False

    def submit(self, request: Request) -> Result:
        """Wait until ``request`` was committed with some group, and answer with its result."""
        if self._process != os.getpid():  # in a child after fork: the threads that queued and led are not here
            self._begin_afresh()
        ticket: _Ticket[Request, Result] = _Ticket(request)
        if not self._enter(ticket):
            self._wait(ticket)
        if not ticket.done:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.done, "the leader's own request is in its group"
        return ticket.result  # type: ignore[return-value]  # None only if Result allows it

    def _enter(self, ticket: _Ticket[Request, Result]) -> bool:
        """Queue; True if this thread leads."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._queue) < REQUESTS_QUEUED_MAX)
            self._queue.append(ticket)
            leads, self._led = not self._led, True
            return leads

    def _wait(self, ticket: _Ticket[Request, Result]) -> None:
        try:
            ticket.called.wait()
        except BaseException:  # interrupted: leave the queue, and pass on the lead if it was just given
            with self._changed:
                if ticket in self._queue:
                    self._queue.remove(ticket)
                if ticket.called.is_set() and not ticket.done:
                    self._call_next()
            raise

    def _lead(self) -> None:
        """Commit one group, the one at the head of the queue, then call whoever leads the next."""
        with self._changed:
            group = [self._queue.popleft() for _ in range(min(len(self._queue), REQUESTS_PER_GROUP_MAX))]
            self._changed.notify_all()
        try:
            results = self._commit([ticket.request for ticket in group])
            for ticket, result in zip(group, results, strict=True):
                ticket.result = result
        except Exception as error:
            for ticket in group:
                ticket.error = error
        except BaseException:  # Ctrl-C in the leader: its own affair, but the others cannot know how far it came
            for ticket in group:
                ticket.error = _interrupted()
            raise
        finally:
            with self._changed:
                for ticket in group:
                    ticket.done = True
                    ticket.called.set()
                self._call_next()

    def _call_next(self) -> None:
        if self._queue:
            self._queue[0].called.set()
        else:
            self._led = False
