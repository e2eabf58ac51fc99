"""The operations of a job, in one fact of its store: asked for once, changed by compare and swap, bounded."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.control.operations.model import Operation, Request
from lockstep.errors import ServiceError
from lockstep.store.protocols import Facts

OPERATIONS = "operations"
"""Fact: the newest operations of the job, those that are open among them."""
KEPT_MAX = 100
"""Operations that are kept. One that is over has no specs any more: about 2 kB each."""


class OperationBook:
    """What was asked of one job, and what became of it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from lockstep.store.opening import address_in, open_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(address_in(Path(folder)), "logins")
    ...     book = OperationBook(store, lambda: 7_000_000)
    ...     first = book.ask(Request("restart", asked_by="ann", key="k1"))
    ...     again = book.ask(Request("restart", asked_by="ann", key="k1"))
    ...     first.number, again.number, [one.kind for one in book.all()]
    ...     store.close()
    (1, 1, ['restart'])
    """

    def __init__(self, store: Facts, clock: Clock = wall_us) -> None:
        self._store = store
        self._clock = clock

    def all(self) -> list[Operation]:
        """All that are kept, oldest first."""
        return _parsed(self._store.fact(OPERATIONS))[1]

    def find(self, number: int) -> Operation | None:
        """One of them, None if it is not kept (any more)."""
        return next((one for one in self.all() if one.number == number), None)

    def open(self) -> Operation | None:
        """The one that is under way: there is one at most."""
        return next((one for one in self.all() if one.is_open), None)

    def ask(
        self,
        request: Request,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
    ) -> Operation:
        """Put an operation into the book, once for each key. LS0740 while another one is under way."""
        return self._added(request, lambda number: self._asked(number, request, before, after))

    def note(self, request: Request) -> Operation:
        """Write down what was done at once, also while another one is under way."""
        return self._added(
            request, lambda number: self._asked(number, request, None, None).ended("done", self._clock())
        )

    def _added(self, request: Request, made: Callable[[int], Operation]) -> Operation:
        """Add what is made with the next number, once for each key; one that is open only beside none that is."""
        while True:
            held = self._store.fact(OPERATIONS)
            number, operations = _parsed(held)
            if (same := _same(operations, request)) is not None:
                return same
            added, other = made(number), next((one for one in operations if one.is_open), None)
            if added.is_open and other is not None:
                raise _busy(other)
            if self._store.swap_fact(OPERATIONS, held, _text(number + 1, [*operations, added])):
                return added

    def update(self, number: int, change: Callable[[Operation], Operation]) -> Operation:
        """Change one of them; ``change`` may be called again if somebody else changed it meanwhile. LS0741: unknown."""
        while True:
            held = self._store.fact(OPERATIONS)
            next_number, operations = _parsed(held)
            before = next((one for one in operations if one.number == number), None)
            if before is None:
                raise unknown(number)
            after = change(before)
            changed = [after if one.number == number else one for one in operations]
            if after == before or self._store.swap_fact(OPERATIONS, held, _text(next_number, changed)):
                return after

    def _asked(
        self, number: int, request: Request, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> Operation:
        now = self._clock()
        return Operation(
            number=number,
            kind=request.kind,
            arguments=dict(request.arguments),
            asked_by=request.asked_by,
            asked_us=now,
            deadline_us=now + round(request.timeout_s * US_PER_S),
            at_deadline=request.at_deadline,
            key=request.key,
            before=before,
            after=after,
        )


def unknown(number: int) -> ServiceError:
    """No operation has this number."""
    return ServiceError(
        "LS0741",
        f"there is no operation {number}",
        why=f"the job never had one of that number, or it is older than the newest {KEPT_MAX}.",
        hint="`lockstep operations` lists those that are known.",
    )


def _same(operations: list[Operation], request: Request) -> Operation | None:
    """The operation that the same request has made before."""
    return next((one for one in operations if request.key and one.key == request.key), None)


def _busy(other: Operation) -> ServiceError:
    return ServiceError(
        "LS0740",
        f"operation {other.number} ({other.kind}) is under way",
        why="a job changes one step at a time, so that each change can be undone.",
        hint=f"wait for it (`lockstep operations --follow`), or take it back: `lockstep rollback --operation "
        f"{other.number}`.",
    )


def _parsed(text: str | None) -> tuple[int, list[Operation]]:
    """The number of the next operation, and those that are kept."""
    kept: dict[str, Any] = json.loads(text) if text else {"next": 1, "operations": []}
    return kept["next"], [Operation.from_json(one) for one in kept["operations"]]


def _text(number: int, operations: list[Operation]) -> str:
    # The one that is under way stays, however many were noted beside it.
    old = [one for one in operations[:-KEPT_MAX] if one.is_open]
    kept = [one.to_json() for one in [*old, *operations[-KEPT_MAX:]]]
    return json.dumps({"next": number, "operations": kept}, sort_keys=True)
