"""What of the Kafka sink needs no broker: what the fence says, and what follows from it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.connect.kafka.fence import (
    FENCES_KEPT,
    LATENESS_EPOCHS,
    LATENESS_SLACK,
    PATIENCE_MIN_S,
    PATIENCE_S,
    Act,
    Fence,
    Lateness,
    epoch_record,
    next_act,
    owner_record,
    patience,
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


def test_who_was_shut_out_does_not_shut_out_the_other_at_once() -> None:
    """The fence that it read says that the epoch before was its own; the other may be about to publish this one."""
    fence = fence_of(6, 7, by="r1.3")
    acts = [next_act(fence, 8, MINE, is_over=is_over, holds=False, is_fenced=True) for is_over in (False, True)]
    assert acts == [Act.WAIT, Act.TAKE_OVER]


def followed(late_s: Sequence[float], by: str = "r0.1", seen: Lateness | None = None) -> Lateness:
    seen = seen or Lateness()
    for one in late_s:
        seen = seen.after(by, one)
    return seen


@pytest.mark.parametrize(
    ("late_s", "patience_s"),
    [
        ([], PATIENCE_S),
        ([0.0] * (LATENESS_EPOCHS - 1), PATIENCE_S),
        ([0.0] * LATENESS_EPOCHS, PATIENCE_MIN_S),
        ([0.0] * LATENESS_EPOCHS + [0.05], LATENESS_SLACK * 0.05),
        ([0.05] + [0.0] * LATENESS_EPOCHS, PATIENCE_MIN_S),
        ([0.0] * LATENESS_EPOCHS + [0.29], PATIENCE_S),
        # Late as a rule, and not only once: this replica is the faster one, and should write.
        ([0.2] * LATENESS_EPOCHS, PATIENCE_MIN_S),
    ],
)
def test_patience_follows_the_latest_of_the_newest_epochs(late_s: list[float], patience_s: float) -> None:
    seen = followed(late_s)
    assert seen.patience_s == pytest.approx(patience_s)
    assert patience(0, 0, seen) == pytest.approx(patience_s)
    assert patience(0, 1, seen) == pytest.approx(2 * PATIENCE_S), "an attempt failed: nothing is as it was"


def test_another_writer_is_watched_anew() -> None:
    seen = followed([0.0] * LATENESS_EPOCHS)
    assert followed([0.0], by="r2.1", seen=seen).patience_s == PATIENCE_S
    assert followed([0.0], by="r0.2", seen=seen).patience_s == PATIENCE_S, "a new start is another writer"


def test_whoever_is_faster_writes_in_the_end_and_stays() -> None:
    """One that is slow took the topic, in a pause of the other: every epoch would be late from then on."""
    took_s = [(0.2 + 0.01 * (epoch % 3), 0.3 + 0.02 * (epoch % 5)) for epoch in range(10 * LATENESS_EPOCHS)]
    assert taken(took_s, writer=1) == [(LATENESS_EPOCHS, 0)]
    assert taken(took_s, writer=0) == []


def test_two_that_are_equally_fast_leave_the_topic_where_it_is() -> None:
    chance = random.Random(7)
    took_s = [(chance.gauss(0.2, 0.03), chance.gauss(0.2, 0.03)) for _ in range(100 * LATENESS_EPOCHS)]
    assert len(taken(took_s)) <= 12, "once in 300 epochs or so"


def taken(took_s: Sequence[tuple[float, float]], writer: int = 0) -> list[tuple[int, int]]:
    """When which of two replicas takes the topic, if each epoch takes them so long and nobody dies."""
    found, seen = [], [Lateness(), Lateness()]
    for epoch, times_s in enumerate(took_s):
        other = 1 - writer
        late_s = max(0.0, times_s[writer] - times_s[other])
        if late_s > patience(0, 0, seen[other]):
            found.append((epoch, other))
            seen[other], writer = Lateness(), other
        else:
            seen[other] = seen[other].after(f"r{writer}.1", late_s)
    return found


PAUSES_S = st.one_of(st.floats(0.0, 0.05), st.sampled_from([0.1, 0.2, PATIENCE_S]))


@given(st.lists(st.tuples(PAUSES_S, PAUSES_S), min_size=1, max_size=400))
def test_two_that_live_take_the_topic_from_each_other_seldom(took_s: list[tuple[float, float]]) -> None:
    """Whatever their epochs take, as long as none is later than everybody waits anyway."""
    epochs = [epoch for epoch, _ in taken(took_s)]
    assert all(later - earlier >= LATENESS_EPOCHS for earlier, later in pairwise([0, *epochs]))


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
