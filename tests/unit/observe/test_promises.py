from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lockstep.observe import promises

epochs = st.lists(st.integers(0, 6), max_size=8)


@given(epochs)
def test_order_and_once_together_hold_exactly_for_consecutive_epochs(published: list[int]) -> None:
    start = published[0] if published else 0
    consecutive = published == list(range(start, start + len(published)))
    assert (not promises.order(published) and not promises.once(published)) == consecutive


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_completeness_holds_exactly_if_every_record_is_in_one_epoch(ends: list[int]) -> None:
    cuts = [(epoch, {"in": {"0": end}}) for epoch, end in enumerate(ends)]
    starts = [0, *ends]
    covered = [record for start, end in zip(starts, ends, strict=False) for record in range(start, end)]
    whole = covered == list(range(ends[-1])) and all(a <= b for a, b in zip(starts, ends, strict=False))
    assert (not promises.completeness(cuts)) == whole


def test_completeness_names_a_forgotten_partition_and_a_missing_epoch() -> None:
    violations = promises.completeness([(3, {"in": {"0": 1, "1": 2}}), (5, {"in": {"0": 1}})])
    assert len(violations) == 2
    assert "between" in violations[0]
    assert "in/1" in violations[1]


def test_completeness_lets_a_source_join() -> None:
    assert promises.completeness([(0, {"a": {"0": 1}}), (1, {"a": {"0": 1}, "b": {"0": 4}})]) == []


def test_every_differing_replica_is_named_by_agreement_and_equality() -> None:
    assert len(promises.agreement([("r0", 1, 1), ("r1", 1, 2), ("r2", 1, 3)])) == 2
    assert len(promises.equality([(1, "s", "v", f"r{i}", str(i)) for i in range(3)])) == 2


def test_equality_compares_within_sink_and_epoch_only() -> None:
    assert promises.equality([(1, "a", "v", "r0", "x"), (1, "b", "v", "r0", "y"), (2, "a", "v", "r0", "z")]) == []


def test_progress_does_not_ask_for_epochs_while_nobody_lives() -> None:
    assert promises.progress([5, 105], live_us=[(0, 10), (100, 110)], gap_us_max=10) == []


def test_progress_joins_the_lives_of_replicas_that_overlap() -> None:
    violations = promises.progress([], live_us=[(0, 8), (6, 14)], gap_us_max=10)
    assert violations == ["progress: nothing was published from 0 to 14 us although a replica lived"]


def test_readiness_counts_the_lead_itself_as_within() -> None:
    assert promises.readiness({"r0": 5}, head=10, lead_epochs_max=5) == []
    assert promises.readiness({"r0": 5}, head=11, lead_epochs_max=5) != []
