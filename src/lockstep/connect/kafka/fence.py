"""The fence of an output topic: a topic beside it that says which epochs are published, by whom, with which digest.

An epoch's rows and its fence record are committed in one transaction. Whoever writes holds the topic's transactional
id; taking it shuts the holder before out, and ends what that one had begun. So: take it, read the fence to its end,
publish what is not there. Nothing else can have been published in between.

The topic is compacted. An epoch's key is its number modulo :data:`FENCES_KEPT`, so that there are never more keys.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from statistics import fmean
from typing import TYPE_CHECKING

from lockstep.connect.kafka.client import AWAY_S, CALL_S, away, consumer_settings, library, patiently
from lockstep.connect.kafka.specs import KafkaSink
from lockstep.connect.protocols import Publication
from lockstep.connect.sinks.order import Owner
from lockstep.store.protocols import Holder

if TYPE_CHECKING:
    from confluent_kafka import Consumer

FORMAT_VERSION = 1
FENCES_KEPT = 1024
"""Epochs that can be compared with; of those before it is only known that they are published."""
PATIENCE_S = 0.3
"""How long whoever does not hold the topic waits for an epoch to appear, while it has not seen how late its writer's
epochs are. It is a choice: a transaction takes 10 to 80 ms, and replicas end an epoch at different times."""
PATIENCE_MIN_S = 0.06
"""Never less: a writer that was never late so far is not gone if it is late by a transaction's time."""
LATENESS_EPOCHS = 40
"""So many epochs of one writer tell how late it is; some ten seconds. So replicas that live take the topic from each
other once in so many epochs at most, unless one is later than PATIENCE_S."""
LATENESS_SLACK = 1.5
"""A writer that is later than this many times its worst is gone, or in a pause: taking over is the shorter wait."""
ROW_PATIENCE_S = 20e-6
"""More for each row, for encoding and sending it: chosen with room, not measured."""
PATIENCE_MAX_S = 20.0
FENCE_CONFIG = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}

_OWNER_KEY = b"owner"
_END_OFFSET = "end_offset"
_END = -1


def fence_topic(topic: str) -> str:
    """The name of the fence of a topic.

    >>> fence_topic("alerts")
    'alerts.lockstep-fence'
    """
    return f"{topic}.lockstep-fence"


class Act(Enum):
    """What to do about an epoch that is to be published."""

    HELD = "it is published"
    PUBLISH = "publish it"
    WAIT = "whoever holds the topic may be about to publish it"
    TAKE_OVER = "take the topic"


class Fence:
    """What the fence says, as far as it has been read."""

    def __init__(self) -> None:
        self.owner: Owner | None = None
        self.last: Publication | None = None
        self._by_key: dict[bytes, Publication] = {}
        self._ends: dict[int, int] = {}

    def take(self, key: bytes, value: bytes) -> None:
        """Take a record of the fence; one that was taken before changes nothing."""
        if key == _OWNER_KEY:
            data = json.loads(value)
            self.owner = Owner(**{**data, "key": tuple(data["key"])})
            return
        said = json.loads(value)
        end = said.pop(_END_OFFSET, None)
        publication = Publication(**said)
        before = self._by_key.get(key)
        if before is not None:
            self._ends.pop(before.epoch, None)
        if end is not None:
            self._ends[publication.epoch] = end
        self._by_key[key] = publication
        if self.last is None or publication.epoch > self.last.epoch:
            self.last = publication

    def find(self, epoch: int) -> Publication | None:
        """What holds for an epoch, None if it is free. Of one long ago only that it is taken: its digest is empty."""
        if self.last is None or epoch > self.last.epoch:
            return None
        known = self._by_key.get(epoch_key(epoch))
        return known if known is not None and known.epoch == epoch else Publication(epoch, "", 0, "", "")

    def end_of(self, epoch: int) -> int | None:
        """One past the offset of the last record up to an epoch, None if its fence does not say so (any more)."""
        return self._ends.get(epoch)


def epoch_key(epoch: int) -> bytes:
    """The key of an epoch's record."""
    return str(epoch % FENCES_KEPT).encode()


def epoch_record(publication: Publication, end: int | None = None) -> tuple[bytes, bytes]:
    """The record that says that an epoch is published; ``end`` is for topics that are read by their fence.

    >>> fence = Fence()
    >>> fence.take(*epoch_record(Publication(7, "aa", 1, "r0.1", "v1")))
    >>> fence.find(7).digest, fence.find(8), fence.find(6).digest
    ('aa', None, '')
    """
    said = asdict(publication) if end is None else {**asdict(publication), _END_OFFSET: end}
    return epoch_key(publication.epoch), json.dumps(said).encode()


def owner_record(owner: Owner) -> tuple[bytes, bytes]:
    """The record that says whose topic it is."""
    return _OWNER_KEY, json.dumps(asdict(owner)).encode()


@dataclass(frozen=True)
class Lateness:
    """How late the epochs of one writer were of late: how long after this replica had computed them itself.

    It tells how long the next one is waited for. Of another writer nothing is known yet, so whoever lost the topic to
    another, or follows one that has just taken it, waits long at first: two that are equally fast do not take it from
    each other again and again.

    >>> seen = Lateness()
    >>> for _ in range(LATENESS_EPOCHS):
    ...     seen = seen.after("r0.1", 0.05)
    >>> Lateness().patience_s, round(seen.patience_s, 3), seen.after("r2.1", 0.05).patience_s
    (0.3, 0.075, 0.3)
    """

    by: str = ""
    recent_s: tuple[float, ...] = ()

    def after(self, by: str, late_s: float) -> Lateness:
        """With one more epoch."""
        kept = self.recent_s if by == self.by else ()
        return Lateness(by, (*kept, late_s)[-LATENESS_EPOCHS:])

    @property
    def patience_s(self) -> float:
        """How long to wait for the next epoch, however few rows it has."""
        if len(self.recent_s) < LATENESS_EPOCHS:
            return PATIENCE_S
        if fmean(self.recent_s) >= PATIENCE_MIN_S:
            # It is the slower one: every epoch would appear sooner if it were written here.
            return PATIENCE_MIN_S
        return min(PATIENCE_S, max(PATIENCE_MIN_S, LATENESS_SLACK * max(self.recent_s)))


def patience(rows: int, attempts: int, lateness: Lateness) -> float:
    """How long to wait for an epoch of so many rows, in seconds, after so many attempts to publish it.

    Twice as long each time: two replicas that shut each other out of a slow broker would otherwise never end. What was
    seen of the writer counts for the first attempt only: one that failed says that all is not as it was.

    >>> given = (10, 0), (100_000, 0), (10, 3), (10, 50)
    >>> [round(patience(rows, attempts, Lateness()), 1) for rows, attempts in given]
    [0.3, 2.3, 2.4, 20.0]
    """
    base_s = PATIENCE_S if attempts else lateness.patience_s
    return min(PATIENCE_MAX_S, (base_s + rows * ROW_PATIENCE_S) * (1 << min(attempts, 10)))


def next_act(fence: Fence, epoch: int, holder: Holder, *, is_over: bool, holds: bool, is_fenced: bool = False) -> Act:
    """What to do about ``epoch``, as far as the fence was read.

    ``is_over`` says whether patience is, ``holds`` whether the topic is ours to write, ``is_fenced`` whether another
    took it from us: whatever the fence said before that is old, and that one may be about to publish.

    >>> fence, mine = Fence(), Holder("r1", 4)
    >>> fence.take(*epoch_record(Publication(7, "aa", 1, "r0.1", "v1")))
    >>> [next_act(fence, 8, mine, is_over=is_over, holds=False).name for is_over in (False, True)]
    ['WAIT', 'TAKE_OVER']
    """
    if fence.find(epoch) is not None:
        return Act.HELD
    if holds:
        return Act.PUBLISH
    last = fence.last
    # It was ours before we started anew: nobody else is about to publish.
    was_ours = last is not None and last.epoch == epoch - 1 and Holder.replica_of(last.by) == holder.replica
    return Act.TAKE_OVER if is_over or (was_ours and not is_fenced) else Act.WAIT


class FenceReader:
    """Reads the fence, on from where it is."""

    def __init__(self, spec: KafkaSink, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self.fence = Fence()
        self._spec = spec
        self._elapsed_s = elapsed_s
        self._place = library().TopicPartition(fence_topic(spec.topic), 0, 0)
        self._consumer: Consumer = library().Consumer({**consumer_settings(spec), "fetch.wait.max.ms": 50})
        self._consumer.assign([self._place])
        # Not of the same client: a connection's requests are answered in turn, and a fetch waits for up to 50 ms.
        self._asking: Consumer = library().Consumer(consumer_settings(spec))
        self._position = 0

    def wait(self, epoch: int, seconds: float) -> None:
        """Read what comes, until the epoch is there or the time is over."""
        deadline_s = self._elapsed_s() + seconds
        while self.fence.find(epoch) is None and (left_s := deadline_s - self._elapsed_s()) > 0:
            self._some(left_s)

    def catch_up(self) -> Fence:
        """Read everything that is committed now."""
        deadline_s = self._elapsed_s() + AWAY_S
        end = patiently(self._spec, self._end, AWAY_S)
        while self._position < end:
            self._some(0.5)
            if self._elapsed_s() > deadline_s:
                raise away(self._spec, "its fence cannot be read to the end")
        return self.fence

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
        self._asking.close()

    def _end(self) -> int:
        asked = library().TopicPartition(self._place.topic, 0, _END)
        [end] = self._asking.offsets_for_times([asked], timeout=CALL_S)
        if end.error is not None:
            raise library().KafkaException(end.error)
        return int(end.offset)

    def _some(self, wait_s: float) -> None:
        for message in [*self._consumer.consume(1, wait_s), *self._consumer.consume(1000, 0)]:
            offset = message.offset()
            error = message.error()
            if error is None:
                self.fence.take(message.key() or b"", message.value() or b"{}")
                self._position = max(self._position, (offset or 0) + 1)
            elif error.code() == library().KafkaError._PARTITION_EOF:
                self._position = max(self._position, offset or 0)
            elif error.code() in (library().KafkaError._AUTO_OFFSET_RESET, library().KafkaError.OFFSET_OUT_OF_RANGE):
                # Nothing is ever removed at its beginning but what compaction replaced.
                self._consumer.assign([self._place])
