"""The registry of hosts."""

from __future__ import annotations

from lockstep.store.protocols import Hosts


def test_hosts_are_there_with_what_they_said_last(hosts: Hosts) -> None:
    assert hosts.hosts() == {}
    hosts.announce("h2", {"cores": 2})
    hosts.announce("h1.example", {"cores": 4})
    hosts.announce("h2", {"cores": 3, "slots": ["a"]})
    assert hosts.hosts() == {"h1.example": {"cores": 4}, "h2": {"cores": 3, "slots": ["a"]}}


def test_a_host_that_leaves_is_gone_and_may_come_back(hosts: Hosts) -> None:
    hosts.announce("h1", {})
    hosts.withdraw("h1")
    hosts.withdraw("h9")
    assert hosts.hosts() == {}
    hosts.announce("h1", {"again": True})
    assert hosts.hosts() == {"h1": {"again": True}}
