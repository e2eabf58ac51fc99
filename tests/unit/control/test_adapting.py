"""What a policy wants becomes an operation like any other, or is refused and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.config import Settings
from lockstep.control.operations.verbs import JobVerbs
from lockstep.control.policy.adapting import ask, policy_runner, shape_of
from lockstep.control.policy.decisions import Replace, Rescale
from lockstep.errors import ServiceError
from lockstep.runtime.desired_run import DesiredRun, note_changed, note_desired
from lockstep.store.opening import address_in, open_store
from lockstep.store.protocols import Progress, Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(address_in(tmp_path), "logins")
    note_desired(opened, _order())
    yield opened
    opened.close()


def _order() -> DesiredRun:
    return DesiredRun("logins", "code/ab/job.py:job", "hash", "sqlite:x", Settings().model_dump(mode="json"))


def test_a_rescale_is_asked_for_in_the_name_of_the_policy_and_shows_when_it_is_done(store: Store) -> None:
    verbs = JobVerbs(store, "logins")
    assert (shape_of(verbs, [""]).partitions, shape_of(verbs, [""]).replicas) == (1, 2)
    ask(verbs, Rescale(partitions=4, replicas=3, spares=0), [""])
    asked = verbs.book.open()
    assert asked is not None and asked.asked_by == "policy" and asked.kind == "rescale"
    assert shape_of(verbs, [""]).partitions == 1, "it is under way"
    with pytest.raises(ServiceError) as refused:
        ask(verbs, Rescale(partitions=2), [""])
    assert refused.value.code == "LS0740", "the policy hears that something else is under way"
    note_changed(store, DesiredRun(**asked.after or {}))
    shape = shape_of(verbs, ["h1", "h2"])
    assert (shape.partitions, shape.replicas, shape.spares) == (4, 3, 0)


def test_a_replica_is_moved_to_another_host_if_there_is_one(store: Store) -> None:
    verbs = JobVerbs(store, "logins")
    store.begin("r1", pid=1)
    store.report(Progress("r1", 1, 1, "running"))
    with pytest.raises(ServiceError):
        ask(verbs, Replace("r1", avoid_host="h1"), ["h1"])
    ask(verbs, Replace("r1", avoid_host="h1"), ["h1", "h2"])
    asked = verbs.book.open()
    assert asked is not None and asked.arguments == {"replica": "r1", "host": "h2"}


def test_a_policy_looks_at_a_job_that_has_computed_nothing_yet(store: Store) -> None:
    runner = policy_runner(store, _order(), lambda: [""])
    assert runner.look() == [] and runner.look() == []
    assert [kind for _, _, kind, _, _ in store.events() if kind == "policy-failed"] == []
