"""On which host a process is started: apart from its peers, then where its state is, then where there is most room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """A host that lives, as far as it matters for one more process."""

    host: str
    replicas: frozenset[str]
    """Those of this job that live there."""
    processes: int
    """All of this job that run there, spares too."""
    cores: int = 1


def choose_host(rooms: Sequence[Room], replica: str, state_at: str = "") -> str | None:
    """The host for a replica; None if there is no host.

    Two replicas of a job live on one host only if there is no host without one: it would end both.

    >>> h1, h2 = Room("h1", frozenset({"r0"}), 1), Room("h2", frozenset(), 0)
    >>> choose_host([h1, h2], "r1"), choose_host([h1, h2], "r1", state_at="h1")
    ('h2', 'h2')
    >>> h3 = Room("h3", frozenset(), 3)
    >>> choose_host([h1, h2, h3], "r1", state_at="h3"), choose_host([h1], "r1")
    ('h3', 'h1')
    """
    if not rooms:
        return None
    return min(rooms, key=lambda one: (_company(one, replica), one.host != state_at, _crowding(one), one.host)).host


def may_live(rooms: Sequence[Room], host: str, replica: str) -> bool:
    """Whether a replica may live on a host: not beside another one while some host has none.

    >>> h1, h2 = Room("h1", frozenset({"r0"}), 1), Room("h2", frozenset(), 0)
    >>> may_live([h1, h2], "h1", "r1"), may_live([h1, h2], "h2", "r1"), may_live([h1], "h1", "r1")
    (False, True, True)
    """
    company = {one.host: _company(one, replica) for one in rooms}
    return host in company and company[host] == min(company.values())


def crowded(rooms: Sequence[Room]) -> str | None:
    """A replica that shares its host although some host has none: that host came later, or came back.

    >>> h1, h2 = Room("h1", frozenset({"r0", "r1"}), 2), Room("h2", frozenset(), 1)
    >>> crowded([h1, h2]), crowded([h1]), crowded([Room("h1", frozenset({"r0"}), 1), h2])
    ('r1', None, None)
    """
    if all(one.replicas for one in rooms):
        return None
    return max((max(one.replicas) for one in rooms if len(one.replicas) > 1), default=None)


def _company(room: Room, replica: str) -> int:
    """How many of its peers a replica would meet there."""
    return len(room.replicas - {replica})


def _crowding(room: Room) -> float:
    return room.processes / max(1, room.cores)
