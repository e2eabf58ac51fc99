"""Cuts that follow from a topic alone: where each partition first has a record that was stamped at or after a bound.

The broker stamps records as it appends them (``LogAppendTime``). Stamps hardly ever go back, but they may, after a
partition has got another leader. The *first* record that reaches the bound is the cut all the same: records behind it
belong to a later epoch, whatever their stamps. So a cut depends on the log alone, and never goes back.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.connect.kafka.client import AWAY
from lockstep.connect.kafka.heartbeats import Heartbeats
from lockstep.connect.kafka.reader import records_gone
from lockstep.connect.kafka.specs import KafkaSource
from lockstep.connect.kafka.watch import BEGIN, END, LOOK_S, TopicWatch
from lockstep.connect.protocols import Advance
from lockstep.connect.sources.kafka import made_anew
from lockstep.errors import ConnectError
from lockstep.store.protocols import Positions

LOG_APPEND_TIME = "LogAppendTime"
LED_S_MAX = 5.0
_LED_LOOK_S = 0.1


@dataclass(frozen=True)
class TopicStart:
    """A topic as it was when the job began: agreed once, since the log itself does not tell it for ever."""

    topic_id: str
    positions: Positions
    """Where each partition begins."""


def topic_start(spec: KafkaSource) -> TopicStart:
    """How the topic stands now; LS0526 or LS0527 if no cut could follow from it."""
    watch = TopicWatch(spec)
    try:
        check_stamps(spec, watch)
        topic_id, partitions = watch.described()
        ends = _when_led(lambda: watch.offsets(partitions, END))
        begins = ends if spec.start == "latest" else watch.offsets(partitions, BEGIN)
        # A record of the future that a producer stamped would hold back all that come after it.
        _check_first(spec, watch.first_records(_ranges(begins, ends)))
        return TopicStart(topic_id, begins)
    finally:
        watch.close()


def _when_led(act: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Ask again for some seconds: a topic that was just made has no leader for a moment, and a job begins with it."""
    deadline_s = time.monotonic() + LED_S_MAX
    while True:
        try:
            return act()
        except ConnectError as error:
            if error.code != AWAY or time.monotonic() > deadline_s:
                raise
            time.sleep(_LED_LOOK_S)


def check_topic(spec: KafkaSource) -> None:
    """Refuse a topic from which no cut could follow."""
    watch = TopicWatch(spec)
    try:
        check_stamps(spec, watch)
    finally:
        watch.close()


def check_stamps(spec: KafkaSource, watch: TopicWatch) -> None:
    """LS0526 if producers stamp the records, LS0527 if the broker takes some out of the middle."""
    config = watch.config("message.timestamp.type", "cleanup.policy")
    if config["message.timestamp.type"] != LOG_APPEND_TIME:
        raise _not_stamped(spec, config["message.timestamp.type"])
    if "compact" in config["cleanup.policy"]:
        raise ConnectError(
            "LS0527",
            f"topic {spec.topic} is compacted",
            why="the broker takes records out of it, so a cut that was derived from it would not be found again.",
            hint=f"{_configs(spec)} --add-config cleanup.policy=delete, or run the job with order=agreed.",
        )


class TopicOrder:
    """Derives one source's part of each cut, and writes heartbeats where it waits for one."""

    def __init__(self, spec: KafkaSource, start: TopicStart, grace_s: float, clock: Clock = wall_us) -> None:
        self._spec = spec
        self._start = start
        self._grace_us = round(grace_s * US_PER_S)
        self._watch: TopicWatch | None = None
        self._heartbeats = Heartbeats(spec, clock)
        self._checked_s = -LOOK_S

    def due_s(self, bound_ms: int) -> float:
        """How long until the broker's clock has passed the bound; not above 0 if it has."""
        return (bound_ms * 1000 - self._heartbeats.now_us()) / US_PER_S

    def advance(self, since: Positions, bound_ms: int, records_max: int) -> Advance | None:
        """The records from ``since`` on that were stamped before the bound, at most so many of each partition.

        None while some partition has no record that reaches the bound: until then more may come before it.
        """
        watch = self._opened()
        self._heartbeats.listen()
        partitions = [int(name) for name in since]
        reached = watch.offsets(partitions, bound_ms)
        missing = [name for name, offset in reached.items() if offset < 0]
        if missing:
            if self.due_s(bound_ms) * US_PER_S <= -self._grace_us:
                self._heartbeats.send(missing)
            return None
        # Asked last: whatever was there now was there when the cut was looked for.
        begins = watch.offsets(partitions, BEGIN)
        for name, begin in begins.items():
            if begin > since[name]:
                raise records_gone(self._spec, int(name), since[name], begin)
        positions = {name: max(at, min(reached[name], at + records_max)) for name, at in since.items()}
        return self._described(watch, since, positions)

    def close(self) -> None:
        """Close what was opened."""
        self._heartbeats.close()
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _described(self, watch: TopicWatch, since: Positions, positions: Positions) -> Advance:
        """Heartbeats alone are no records: they must not keep a quiet source from being idle."""
        moved = _ranges(since, positions)
        first = watch.first_records(moved)
        _check_first(self._spec, first)
        stamps = [stamp_ms * 1000 for _, stamp_ms in first.values()]
        if stamps:
            self._heartbeats.seen(max(stamps))
        records = sum(moved[name][1] - moved[name][0] for name in first)
        return Advance(positions, records, (), min(stamps, default=None), max(stamps, default=None))

    def _opened(self) -> TopicWatch:
        """The topic, looked at once a second for whether it still is the one."""
        if self._watch is None:
            self._watch = TopicWatch(self._spec)
        now_s = time.monotonic()
        if now_s - self._checked_s >= LOOK_S:
            topic_id, partitions = self._watch.described()
            if topic_id != self._start.topic_id:
                raise made_anew(self._spec, f"it had the id {self._start.topic_id} and has {topic_id} now")
            if len(partitions) != len(self._start.positions):
                raise _more_partitions(self._spec, len(self._start.positions), len(partitions))
            self._checked_s = now_s
            self._heartbeats.compare_clocks(next(iter(self._start.positions)))
        return self._watch


def _ranges(begins: Positions, ends: Positions) -> dict[str, tuple[int, int]]:
    return {name: (begins[name], end) for name, end in ends.items() if end > begins[name]}


def _check_first(spec: KafkaSource, records: Mapping[str, tuple[str, int]]) -> None:
    for name, (stamped_by, _) in records.items():
        if stamped_by != LOG_APPEND_TIME:
            raise _not_stamped(spec, f"{stamped_by} for records of partition {name} that are there")


def _configs(spec: KafkaSource) -> str:
    return f"kafka-configs.sh --bootstrap-server {spec.servers} --alter --topic {spec.topic}"


def _not_stamped(spec: KafkaSource, what: str) -> ConnectError:
    return ConnectError(
        "LS0526",
        f"the records of topic {spec.topic} are not stamped by the broker",
        why=f'message.timestamp.type is {what}; with order="derived" an epoch is what was stamped before its end, '
        "so the stamps have to be the broker's.",
        hint=f"{_configs(spec)} --add-config message.timestamp.type={LOG_APPEND_TIME}",
    )


def _more_partitions(spec: KafkaSource, had: int, has: int) -> ConnectError:
    return ConnectError(
        "LS0528",
        f"topic {spec.topic} has {has} partitions, and had {had} when the job began",
        why="with order=derived no replica can tell from the log alone in which epoch a partition was added.",
        hint="run the job under a new name, or with order=agreed, which takes new partitions up.",
    )
