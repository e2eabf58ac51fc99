"""State laid out anew in another number of partitions: every kind of state goes on as if nothing had happened."""

from __future__ import annotations

import pytest

from lockstep.runtime.state.checkpoint import partitions_of, standing
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.runtime.state.state_metadata import state_operators
from lockstep.store.protocols import state_stage
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial
from tests.spark.test_state_digests import EVERY, _epoch, _job


def _states(ran: Trial, replica: str, epoch: int) -> dict[str, str]:
    found = ran.digests(epoch).items()
    return {sink: digest for (who, sink), digest in found if who == replica and state_stage(sink) is not None}


def _assert_equal_states(ran: Trial) -> None:
    """Both replicas report what state they have, and it is the same."""
    ran.report_states()
    head = ran.store.head()
    assert head is not None
    compared = [epoch for epoch in range(head.epoch + 1) if _states(ran, "r0", epoch) and _states(ran, "r1", epoch)]
    assert compared, "there is an epoch at which both have reported"
    for epoch in compared[-2:]:
        assert _states(ran, "r0", epoch) == _states(ran, "r1", epoch)


@pytest.mark.long
@pytest.mark.parametrize("shapes", [(2, 4, 1)])
def test_a_replica_goes_on_in_other_shapes_and_agrees_with_one_that_stays(
    trial: NewTrial, shapes: tuple[int, ...]
) -> None:
    """Joins, sessions, rolling totals and a Python process, in several stages; output is compared with every epoch."""
    ran = trial(_job(), state_digest_every_epochs=EVERY)
    ran.start("r1", partitions=3)
    ran.start("r0", partitions=1)
    number = 0
    for shape in shapes:
        for _ in range(3):
            _epoch(ran, number)
            number += 1
        ran.replicas["r0"].stop()
        rescaled = ran.start("r0", partitions=shape)
        for _ in range(2 * EVERY):
            _epoch(ran, number)
            number += 1
        _assert_equal_states(ran)
        for folder in checkpoint_folders(rescaled.spec.folder, len(ran.graph.stages)):
            at = standing(folder)
            assert at is not None
            if state_operators(folder, at.batch):
                assert partitions_of(folder) == shape
    events = [text for _, _, kind, _, text in ran.store.events() if kind == "repartitioned"]
    assert len(events) >= len(shapes)


def test_a_replica_of_another_shape_is_seeded_by_a_rescaled_one(trial: NewTrial) -> None:
    """What was laid out anew is copied whole: Spark's notes about it are put right."""
    ran = trial(_job(), state_digest_every_epochs=EVERY, seed_beyond_epochs=0)
    ran.start("r1", partitions=1)
    for number in range(3):
        _epoch(ran, number)
    ran.replicas["r1"].stop()
    ran.start("r1", partitions=2)
    for number in range(3, 6):
        _epoch(ran, number)
    ran.start("r0", partitions=4)
    for number in range(6, 6 + 2 * EVERY):
        _epoch(ran, number)
    _assert_equal_states(ran)
    told = [(kind, replica) for _, _, kind, replica, _ in ran.store.events()]
    assert ("seeded", "r0") in told and ("repartitioned", "r0") in told
