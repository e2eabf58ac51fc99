"""What a job needs on every host that it may use: places that all hosts see, or systems that all of them reach."""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping

from lockstep.agent.client import AgentClient
from lockstep.errors import RunError
from lockstep.plan.graph import Graph
from lockstep.plan.specs import SinkSpec, SourceSpec

_ONE_HOST_ONLY = ("journal", "sqlite")
"""Kinds that cannot be shared by hosts, whatever file system they are on."""
_PLACES = ("files", "delta")
"""Kinds that have a path, which may be on a file system that all hosts have."""


def check_places(graph: Graph, hosts: Collection[str], journals: str = "") -> None:
    """Refuse what is on one host's disk if replicas may live on several (LS0686).

    With ``journals`` those inside the job are topics, which all hosts reach.
    """
    if len(hosts) < 2:
        return
    found = [f'"{name}" ({spec.describe()})' for name, spec in _ends(graph) if spec.kind in _ONE_HOST_ONLY]
    inside = [f'the boundary "{boundary.name}" between two stages' for boundary in graph.boundaries]
    inside += [f'the loop at "{head}"' for head in graph.loops]
    hints = ["read from and write to what all hosts reach (ls.kafka, ls.postgres)"] if found else []
    if inside and not journals:
        found += inside
        hints.append(
            'have the journals inside the job in Kafka (journals = "kafka://HOST:PORT/lockstep" in lockstep.toml)'
        )
    if found:
        raise RunError(
            "LS0686",
            "the job keeps something on the disk of one host, and its replicas would live on several",
            why=f"{', '.join(found)}: each host would have its own.",
            hint=f"{', and '.join(hints)}; or run it on one host.",
        )


def probe_places(graph: Graph, clients: Mapping[str, AgentClient]) -> None:
    """Refuse a place that is not the same one for all hosts, if there are several."""
    try:
        if len(clients) > 1:
            _probe(graph, clients)
    finally:
        for client in clients.values():
            client.close()


def _probe(graph: Graph, clients: Mapping[str, AgentClient]) -> None:
    """Have one host write a file into every place of the job, and all others look for it (LS0687 if one cannot)."""
    places = {str(spec.to_json()["path"]) for _, spec in _ends(graph) if spec.kind in _PLACES}
    first, *others = sorted(clients)
    for place in sorted(places):
        name = f".lockstep-probe-{secrets.token_hex(8)}"
        try:
            clients[first].probe(place, name, "write")
            blind = [host for host in others if not clients[host].probe(place, name, "look")]
        finally:
            clients[first].probe(place, name, "remove")
        if blind:
            raise RunError(
                "LS0687",
                f"{place} is not one place for all hosts",
                why=f"{first} wrote a file there, and {', '.join(blind)} cannot see it.",
                hint="put it on a file system that all hosts have at the same path (NFS), or use ls.kafka or "
                "ls.postgres; a job that runs on one host may have it on that host's disk.",
            )


def _ends(graph: Graph) -> list[tuple[str, SourceSpec | SinkSpec]]:
    sources: list[tuple[str, SourceSpec | SinkSpec]] = [(step.id, step.spec) for step in graph.sources]
    return sources + [(step.id, step.spec) for step in graph.sinks]
