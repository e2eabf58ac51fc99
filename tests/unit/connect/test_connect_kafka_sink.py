"""What of the Kafka sink needs no broker: what the fence says, and what follows from it."""

from __future__ import annotations

import pytest

from lockstep.connect.kafka.fence import (
    FENCES_KEPT,
    Act,
    Fence,
    epoch_record,
    next_act,
    owner_record,
)
from lockstep.connect.protocols import Publication
from lockstep.connect.sinks.order import Owner
from lockstep.store.protocols import Holder

MINE = Holder("r1", 4)


def fence_of(*epochs: int, by: str = "r0.1") -> Fence:
    fence = Fence()
    for epoch in epochs:
        fence.take(*epoch_record(Publication(epoch, f"d{epoch}", 1, by, "v1")))
    return fence


@pytest.mark.parametrize(
    ("fence", "epoch", "is_over", "holds", "act"),
    [
        (fence_of(), 0, False, False, Act.WAIT),
        (fence_of(), 0, True, False, Act.TAKE_OVER),
        (fence_of(), 0, False, True, Act.PUBLISH),
        (fence_of(6, 7), 7, True, False, Act.HELD),
        (fence_of(6, 7), 7, True, True, Act.HELD),
        (fence_of(6, 7), 3, False, False, Act.HELD),
        (fence_of(6, 7), 8, False, False, Act.WAIT),
        (fence_of(6, 7, by="r1.3"), 8, False, False, Act.TAKE_OVER),
        # What was read of the fence is old: somebody may have published since.
        (fence_of(6, by="r1.3"), 8, False, False, Act.WAIT),
    ],
)
def test_who_publishes_follows_from_the_fence(fence: Fence, epoch: int, is_over: bool, holds: bool, act: Act) -> None:
    assert next_act(fence, epoch, MINE, is_over=is_over, holds=holds) is act


def test_the_fence_is_the_same_after_compaction() -> None:
    records = [epoch_record(Publication(epoch, f"d{epoch}", 1, "r0.1", "v1")) for epoch in range(3 * FENCES_KEPT)]
    owner = Owner("job", "alerts", "", ("user",), 1, "run")
    whole, compacted = Fence(), Fence()
    for record in [owner_record(owner), *records, records[-1]]:
        whole.take(*record)
    newest = dict(records)
    assert len(newest) == FENCES_KEPT
    for key, value in newest.items():
        compacted.take(key, value)
    assert whole.owner == owner
    for epoch in (0, FENCES_KEPT, 2 * FENCES_KEPT - 1, 2 * FENCES_KEPT, 3 * FENCES_KEPT - 1, 3 * FENCES_KEPT):
        assert whole.find(epoch) == compacted.find(epoch)
    newest_one, old_one = whole.find(3 * FENCES_KEPT - 1), whole.find(5)
    assert newest_one is not None and newest_one.digest == f"d{3 * FENCES_KEPT - 1}"
    assert old_one is not None and old_one.digest == ""
    assert whole.find(3 * FENCES_KEPT) is None
