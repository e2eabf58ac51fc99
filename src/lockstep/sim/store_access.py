"""The store as one process has it: its calls may fail, take long, or never return."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.sim.process import SimProcess

WRITES = (
    "seal",
    "trim",
    "acquire",
    "release",
    "begin",
    "retire",
    "remove",
    "report",
    "add_digests",
    "add_published",
    "add_divergence",
    "judge",
    "add_observed",
    "add_event",
    "put_fact_if_absent",
    "set_fact",
    "swap_fact",
)
READS = (
    *("head", "entry", "floor", "holder", "is_live", "progress"),
    *("digests", "digest_mismatches", "published", "divergences", "observed", "fact"),
)


class Blocked(BaseException):
    """Raised inside a call that would have to wait for the store's write lock: it has done nothing yet."""


class WriteLock:
    """The store's write lock: a process that is stopped inside a transaction has it until it moves again or ends."""

    def __init__(self) -> None:
        self.holder: SimProcess | None = None
        self._waiting: list[Callable[[], None]] = []

    def take(self, process: SimProcess) -> None:
        """Everybody else has to wait."""
        self.holder = process

    def release(self, process: SimProcess) -> None:
        """If it is the one that has it."""
        if self.holder is process:
            self.holder, waiting, self._waiting = None, self._waiting, []
            for go_on in waiting:
                go_on()

    def when_free(self, go_on: Callable[[], None]) -> None:
        """Call back when it is released."""
        self._waiting.append(go_on)


class StoreAt:
    """The same methods, each after what the world does to this process at that moment.

    >>> from lockstep.sim.memory_store import MemoryStore
    >>> asked = []
    >>> store = StoreAt(MemoryStore(lambda: 0), before=asked.append)
    >>> store.head(), store.begin("r0", 1), asked
    (None, Holder(replica='r0', incarnation=1), ['begin'])
    """

    def __init__(self, store: Any, before: Callable[[str], None], before_reads: Callable[[], None] | None = None):
        for name in WRITES:
            setattr(self, name, _after(before, name, getattr(store, name)))
        for name in READS:
            method = getattr(store, name)
            setattr(self, name, method if before_reads is None else _after_all(before_reads, method))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the simulated store does not know {name}")


def _after(before: Callable[[str], None], name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        before(name)
        return method(*arguments)

    return call


def _after_all(before: Callable[[], None], method: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        before()
        return method(*arguments)

    return call
