"""The simulation finds bugs: each test breaks one rule and expects the promise that it breaks, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Publication
from lockstep.control import supervision
from lockstep.control import supervisor as supervising
from lockstep.control.supervision import Action, Seen
from lockstep.runtime import pacing
from lockstep.store.protocols import Entry, Holder, Item, Progress
from tests.sim.history import PromiseBroken
from tests.sim.memory_store import MemoryStore
from tests.sim.pipeline import SimSink
from tests.sim.replica import SimReplica
from tests.sim.scenario import SETTINGS, Scenario
from tests.sim.world import run_seed

SEEDS_MAX = 100


MANY_HANGS = Scenario(hang_chance=0.02, zombie_chance=0.9)
PATIENT = replace(MANY_HANGS, zombie_chance=0.0, settings=SETTINGS.model_copy(update={"hang_timeout_s": 30.0}))


def first_broken_promise(scenario: Scenario | None = None) -> str:
    """The name of the first promise that breaks, trying seeds in order."""
    for seed in range(SEEDS_MAX):
        try:
            run_seed(seed, scenario)
        except PromiseBroken as broken:
            return str(broken).partition(":")[0]
    return "none"


@pytest.mark.parametrize("scenario", [MANY_HANGS, PATIENT], ids=["many hangs", "patient"])
def test_without_a_planted_bug_these_scenarios_break_no_promise(scenario: Scenario) -> None:
    for seed in range(10):
        run_seed(seed, scenario)


def test_publishing_without_the_fence_breaks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def publish(sink: SimSink, wanted: Publication, now_us: int) -> Publication:
        sink.visible.append((now_us, wanted))
        return wanted

    monkeypatch.setattr(SimSink, "publish", publish)
    assert first_broken_promise() == "once"


def test_sealing_by_overwriting_breaks_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    def seal(store: MemoryStore, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        store._refuse_the_retired(holder)
        return store._put(proposal, holder)

    monkeypatch.setattr(MemoryStore, "seal", seal)
    assert first_broken_promise() == "agreement"


def test_committing_before_publishing_breaks_order(monkeypatch: pytest.MonkeyPatch) -> None:
    publishing = [step for step in SimReplica.STEPS if step.startswith("publish")]
    monkeypatch.setattr(SimReplica, "STEPS", ("begin", "run", "digest", "finish", "commit", *publishing))
    assert first_broken_promise() == "order"


def test_an_unbounded_lead_breaks_readiness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "slowest_in_set", lambda view, settings: view.epoch - 1)
    assert first_broken_promise() == "readiness"


def test_a_zombie_that_may_seal_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "_refuse_the_retired", lambda store, holder: None)
    assert first_broken_promise(replace(MANY_HANGS, hang_chance=0.05)) == "incarnation"


def test_marks_not_kept_over_a_restart_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryStore, "observed", lambda store, epoch: {})
    assert first_broken_promise() == "marks"


def test_retention_that_ignores_a_replica_that_lags_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def newest(progress: Sequence[Progress], given_up: Sequence[str], settings: RunSettings) -> int:
        return max(0, max(one.epoch for one in progress) - settings.retention_epochs_min)

    monkeypatch.setattr(supervising, "floor_epoch", newest)
    assert first_broken_promise(PATIENT) == "retention"


def test_starting_from_a_damaged_checkpoint_breaks_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimReplica, "_is_sound", lambda replica, own, head_epoch: True)
    assert first_broken_promise() == "equality"


def test_a_supervisor_that_starts_nobody_again_breaks_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    def once(seen: Sequence[Seen], head: int, now_us: int, settings: RunSettings) -> list[Action]:
        return [] if any(one.ended_us for one in seen) else supervision.decide(seen, head, now_us, settings)

    monkeypatch.setattr(supervising, "decide", once)
    assert first_broken_promise() == "progress"
