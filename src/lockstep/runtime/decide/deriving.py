"""Epochs that follow from the input alone: which bound each of them has. Pure, and agreed on once for a job's life."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from lockstep.config import RunSettings
from lockstep.connect.kafka.order import TopicStart

INTERVAL_MS_MIN = 10
"""Brokers stamp in milliseconds, and an epoch takes longer than this anyway."""


@dataclass(frozen=True)
class DerivedOrder:
    """The grid of bounds, and where the sources began: the one thing that replicas agree on, before the first epoch.

    >>> order = DerivedOrder(1_000, 200, 500, {})
    >>> order.bound_ms(0), order.bound_ms(3), order.newest_due(1_650)
    (1000, 1600, 3)
    """

    start_ms: int
    """When the order was settled, and from the first replica on that is ready: when that was."""
    interval_ms: int
    partition_records_max: int
    """So many records of a partition are in an epoch at most: a backlog does not come in one."""
    topics: Mapping[str, TopicStart]

    def bound_ms(self, epoch: int) -> int:
        """The time before which the records of ``epoch`` were stamped; epoch 0 has none, it takes the topics up."""
        return self.start_ms + epoch * self.interval_ms

    def newest_due(self, now_ms: int) -> int:
        """The newest epoch whose bound has passed."""
        return (now_ms - self.start_ms) // self.interval_ms

    def to_text(self) -> str:
        """As the store keeps it."""
        return json.dumps(asdict(self), default=dict, sort_keys=True)

    @staticmethod
    def from_text(text: str) -> DerivedOrder:
        """What :meth:`to_text` gave."""
        data = json.loads(text)
        return DerivedOrder(**{**data, "topics": {name: TopicStart(**one) for name, one in data["topics"].items()}})


def begun(settings: RunSettings, topics: Mapping[str, TopicStart], now_us: int) -> DerivedOrder:
    """The order of a job that begins now.

    >>> settings = RunSettings(epoch_interval_s=0.25, records_per_epoch_max=90)
    >>> begun(settings, {"orders": TopicStart("id", {"0": 7, "1": 0})}, 5_000_000).partition_records_max
    45
    """
    partitions = sum(len(one.positions) for one in topics.values())
    return DerivedOrder(
        start_ms=now_us // 1000,
        interval_ms=max(INTERVAL_MS_MIN, round(settings.epoch_interval_s * 1000)),
        partition_records_max=max(1, settings.records_per_epoch_max // max(1, partitions)),
        topics=topics,
    )
