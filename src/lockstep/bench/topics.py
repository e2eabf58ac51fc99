"""Topics for benches that run a broker of their own."""

from __future__ import annotations

from collections.abc import Mapping

from lockstep.connect.kafka.client import library

PARTITIONS = 2
ONLY_SERIOUS = 2
"""The level of what a client writes to the terminal: lost connections are what some benches are about."""
_WAIT_S = 30.0


def make_topics(servers: str, *names: str, config: Mapping[str, str] | None = None) -> None:
    """Topics of two partitions; LS0523 if Kafka's client is not installed."""
    library()
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": servers, "log_level": ONLY_SERIOUS})
    wanted = [NewTopic(name, PARTITIONS, 1, config=dict(config or {})) for name in names]
    for asked in admin.create_topics(wanted).values():
        asked.result(_WAIT_S)
