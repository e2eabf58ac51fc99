"""Leases in ZooKeeper: nodes that go with the session of their holder's process, so that no clocks are compared.

A lease that is not renewed in time is given back by its holder's own process, by its own clock. If that process is
gone, stopped or cut off, the ensemble ends its session, and with it the lease.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from lockstep.clock import US_PER_S, Clock
from lockstep.store.zookeeper.address import Address
from lockstep.store.zookeeper.client import Call, Operation, create_ephemeral, delete
from lockstep.store.zookeeper.nodes import node_name
from lockstep.store.zookeeper.part import Part


@dataclass(frozen=True)
class _Held:
    holder: str
    expires_us: int


class ZookeeperLeases(Part):
    """Implements :class:`lockstep.store.protocols.Leases`."""

    def __init__(self, address: Address, job: str, clock: Clock) -> None:
        super().__init__(address, job, clock)
        self._held: dict[str, _Held] = {}
        self._held_lock = threading.Lock()

    def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew ``name`` for ``holder``; False if someone else holds it and it has not expired."""
        call, path = self._call(), self._at("leases", node_name(name))
        self.give_back_expired(call)
        body = holder.encode()
        while True:
            found = call.look(path)
            if found is not None and found.value != body:
                return False
            ours = found is not None and found.session == call.client.session()
            # What an earlier session of the same holder left would go with that session.
            acts: list[Operation] = [delete(path, found.version)] if found is not None else []
            if ours or call.put(*acts, create_ephemeral(path, body)).done:
                with self._held_lock:
                    self._held[path] = _Held(holder, self._clock() + round(ttl_s * US_PER_S))
                return True
            call.again()

    def release(self, name: str, holder: str) -> None:
        """Give ``name`` back, if ``holder`` has it."""
        path = self._at("leases", node_name(name))
        self._give_back(self._call(), path, holder)
        with self._held_lock:
            if (held := self._held.get(path)) is not None and held.holder == holder:
                del self._held[path]

    def holder(self, name: str) -> str | None:
        """Who holds ``name`` now, None if nobody or expired."""
        call = self._call()
        self.give_back_expired(call)
        found = call.look(self._at("leases", node_name(name)))
        return found.value.decode() if found is not None else None

    def wait_until_free(self, name: str, timeout_s: float) -> None:
        """Block while somebody holds ``name``, at most ``timeout_s`` (and an answer's time). Woken by a watch."""
        self._wait(self._at("leases", node_name(name)), timeout_s, there=False)

    def expired(self) -> dict[str, str]:
        """The leases taken here that were not renewed in time, with their holders."""
        with self._held_lock:
            return {path: held.holder for path, held in self._held.items() if held.expires_us <= self._clock()}

    def give_back_expired(self, call: Call) -> None:
        """Let others have what was taken here and not renewed in time."""
        for path, holder in self.expired().items():
            self._give_back(call, path, holder)
            with self._held_lock:
                if self._held.get(path) is not None and self._held[path].expires_us <= self._clock():
                    del self._held[path]

    def _give_back(self, call: Call, path: str, holder: str) -> None:
        while (found := call.look(path)) is not None and found.value == holder.encode():
            call.put(delete(path, found.version))
            call.again()
