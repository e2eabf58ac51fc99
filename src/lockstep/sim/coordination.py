"""The coordination service as a model: the store that hosts share, and sessions that end by the service's own clock.

A lease and the announcement of a host go with the session of the process that made them. Whoever is cut off, stands
still or is dead is not heard, and after :data:`SESSION_S` its session ends: no clock of a host has a say in that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lockstep.clock import US_PER_S, Clock
from lockstep.observe import promises
from lockstep.sim.memory_store import MemoryStore
from lockstep.sim.store_access import StoreAt
from lockstep.store.protocols import Holder

if TYPE_CHECKING:
    from lockstep.sim.history import History
    from lockstep.sim.hosts import SimHost
    from lockstep.sim.timeline import Timeline

SESSION_S = 2.0
"""Four seconds in production; as everything here it is shorter, and still longer than the lag timeout."""
TELEMETRY = ("report", "add_digests", "add_published", "add_event")
"""What is written beside the epochs (``store/zookeeper/outbox.py``): nobody waits for it."""


class Sessions:
    """Who was not heard since when."""

    def __init__(self, timeline: Timeline, on_end: Callable[[str], None]) -> None:
        self._timeline = timeline
        self._on_end = on_end
        self._silent_since_us: dict[str, int] = {}

    def fall_silent(self, who: str) -> None:
        """Nothing is heard of it from now on; its session ends if that lasts."""
        since_us = self._silent_since_us.setdefault(who, self._timeline.now_us)
        if since_us == self._timeline.now_us:
            self._timeline.after(SESSION_S, lambda: self._end(who, since_us))

    def hear(self, who: str) -> None:
        """It is heard again; if its session has ended, it has a new one, with nothing in it."""
        self._silent_since_us.pop(who, None)

    def silent_s(self, who: str) -> float:
        """For how long nothing was heard of it."""
        now_us = self._timeline.now_us
        return (now_us - self._silent_since_us.get(who, now_us)) / US_PER_S

    def _end(self, who: str, since_us: int) -> None:
        if self._silent_since_us.get(who) == since_us:
            self._on_end(who)


class SharedStore(MemoryStore):
    """The store of a job on several hosts, and the registry of the hosts."""

    def __init__(self, timeline: Timeline, on_retired: Callable[[str], None], clock_of: Callable[[str], Clock]) -> None:
        super().__init__(lambda: timeline.now_us)
        self.sessions = Sessions(timeline, self._end_session)
        self.history: History | None = None
        self.clock_of = clock_of
        """The wall clock of the host of whoever has a lease: the service does not look at it."""
        self._on_retired = on_retired
        self._held: dict[str, str] = {}
        self._taken: dict[str, str] = {}
        """Who had each lease last, until it is given back."""
        self._announced: dict[str, dict[str, Any]] = {}

    # Leases: whoever is heard keeps what it has.

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:  # noqa: ARG002
        """Take or renew a lease."""
        if self._held.get(name, holder) != holder:
            return False
        self.give(name, holder)
        return True

    def give(self, name: str, holder: str) -> None:
        """It has the lease from now on."""
        before = self._taken.get(name, holder)
        if before != holder and self.history is not None:
            silent_s = self.sessions.silent_s(before)
            self.history.check(promises.lease(name, before, holder, silent_s, SESSION_S))
        self._held[name] = self._taken[name] = holder

    def release(self, name: str, holder: str) -> None:
        """Give a lease back."""
        if self._held.get(name) == holder:
            del self._held[name]

    def give_back(self, name: str, holder: str) -> None:
        """As its holder does it, or whoever knows that its holder is dead."""
        self.release(name, holder)
        if self._taken.get(name) == holder:
            del self._taken[name]

    def holder(self, name: str) -> str | None:
        """Who has a lease."""
        return self._held.get(name)

    # Hosts.

    def announce(self, host: str, body: Mapping[str, Any]) -> None:
        """``host`` lives, and has this to say of itself."""
        self._announced[host] = dict(body)

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The living ones by name, with what they said last."""
        return {name: self._announced[name] for name in sorted(self._announced)}

    def _end_session(self, who: str) -> None:
        for name in [name for name, holder in self._held.items() if holder == who]:
            self.give_back(name, who)
        self._announced.pop(who, None)

    # Incarnations: the world is told who is a zombie from now on.

    def begin(self, replica: str, pid: int) -> Holder:
        """A new incarnation."""
        self._on_retired(replica)
        return super().begin(replica, pid)

    def retire(self, replica: str) -> None:
        """No incarnation so far may act."""
        super().retire(replica)
        self._on_retired(replica)


class StoreFrom(StoreAt):
    """The shared store as one process of a host has it: while the host is cut off, telemetry waits in its outbox."""

    def __init__(
        self,
        store: SharedStore,
        host: SimHost,
        before: Callable[[str], None],
        before_reads: Callable[[], None],
        is_alive: Callable[[], bool],
    ) -> None:
        super().__init__(store, before, before_reads)
        self._host = host
        self._is_alive = is_alive
        for name in TELEMETRY:
            setattr(self, name, self._in_time(getattr(self, name), getattr(store, name)))

    def _in_time(self, at_once: Callable[..., None], later: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: Any) -> None:
            if self._host.is_cut_off:
                self._host.when_back(lambda: later(*arguments) if self._is_alive() else None)
            else:
                at_once(*arguments)

        return call
