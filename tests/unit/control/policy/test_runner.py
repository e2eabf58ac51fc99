"""The shell reads a real store, notes what was decided, asks for it, and lets no error out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lockstep.config import PolicySettings, RunSettings
from lockstep.control.policy.decisions import Operation, Rescale, decode
from lockstep.control.policy.observations import Failure, Recovery, Shape, StoreWatch
from lockstep.control.policy.runner import PolicyRunner
from lockstep.errors import RunError
from lockstep.store.protocols import Entry, Holder, Progress, Published, Store
from lockstep.store.sqlite_store import open_store

US = 1_000_000
AUTO = PolicySettings(scaling="auto", tolerance="auto", max_gap_s=1.0, gaps_per_month=5.0)


@dataclass
class Clock:
    now_s: float = 1_000_000.0

    def __call__(self) -> int:
        return round(self.now_s * US)


@dataclass
class Scene:
    """A store that is written to as replicas and the supervisor do."""

    store: Store
    clock: Clock
    epoch: int = -1
    position: int = 0
    holders: dict[str, Holder] = field(default_factory=dict)
    shape: Shape = field(default_factory=lambda: Shape(partitions=1, cores=8, replicas=1))
    asked: list[Operation] = field(default_factory=list)

    def epochs(self, count: int, records: int, seconds: float, waited_s: float = 0.2) -> None:
        """Seal and publish so many epochs, one a second."""
        for _ in range(count):
            self.clock.now_s += 1
            self.epoch += 1
            size = records + self.epoch % 5 * records // 10
            self.position += size
            holder = self.holders.get("r0") or self.holders.setdefault("r0", self.store.begin("r0", 1))
            now_us = self.clock()
            cut = {"logins": {"0": self.position, "1": self.position // 2}}
            self.store.seal(Entry(self.epoch, now_us, cut, records=size), holder)
            took_s = seconds * size / records
            oldest_us = now_us - round((waited_s + took_s) * US)
            self.store.add_published(Published(self.epoch, "r0", now_us, size, oldest_us, now_us, took_s))
            self.store.report(
                Progress("r0", holder.incarnation, 1, "running", self.epoch, took_s, updated_us=now_us, host="h1")
            )

    def ask(self, operation: Operation) -> None:
        self.asked.append(operation)

    def runner(self, settings: PolicySettings = AUTO) -> PolicyRunner:
        return PolicyRunner(self.store, settings, RunSettings(), lambda: self.shape, self.ask, self.clock)

    def events(self, kind: str) -> list[str]:
        return [text for _, _, of_kind, _, text in self.store.events(limit=10_000) if of_kind == kind]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    clock = Clock()
    store = open_store(tmp_path, "job", clock)
    yield Scene(store, clock)
    store.close()


def test_a_window_is_what_the_store_says_of_it(scene: Scene) -> None:
    scene.epochs(10, 100, 0.1)
    watch = StoreWatch(scene.store, scene.clock(), heartbeat_s=1.0)
    scene.epochs(30, 100, 0.1)
    scene.store.add_event("replica-ended", "exit code -9", "r0")
    scene.clock.now_s += 7
    scene.store.add_event("replica-phases", "a spare: role 10 ms, total 4000 ms", "r0")
    scene.epochs(30, 100, 0.1)
    seen = watch.look(scene.shape, scene.clock())
    assert seen.window_s == pytest.approx(67)
    assert seen.records == sum(100 + epoch % 5 * 10 for epoch in range(10, 70))
    assert seen.loads["logins/0"] == seen.records and seen.loads["logins/1"] == pytest.approx(seen.records / 2, abs=1)
    # A fifth of a second is what each record had waited.
    assert seen.backlog == pytest.approx(seen.records / 67 * 0.2, rel=0.1)
    assert 10 <= len(seen.epochs) <= 16 and all(took == pytest.approx(n * 0.001) for n, took in seen.epochs)
    (failure,) = seen.failures
    # Which epoch it was in is told by its newest word.
    assert failure[1:] == ("r0", "h1", "process", 70, "")
    assert seen.recoveries == [Recovery("r0", 7.0, warm=True)]
    assert seen.gaps_s == [8.0]
    assert (list(seen.epoch_s), seen.replicas_by_host, seen.published_epoch) == (["r0"], {"h1": 1}, 69)
    again = watch.look(scene.shape, scene.clock() + 60 * US)
    assert (again.records, again.failures, again.recoveries) == (0, [], [])


def test_errors_of_the_job_drained_ends_and_lost_hosts_are_told_apart(scene: Scene) -> None:
    scene.epochs(3, 100, 0.1)
    watch = StoreWatch(scene.store, scene.clock(), heartbeat_s=1.0)
    watch.look(scene.shape, scene.clock())
    scene.store.add_event("replica-ended", "exit code 0", "r0")
    scene.store.add_event("replica-failed", "LS0301 step fails\n  why: ...", "r0")
    scene.store.add_event("replica-ended", "exit code 10", "r0")
    (failure,) = watch.look(scene.shape, scene.clock() + US).failures
    assert failure == Failure(failure.at_us, "r0", "h1", "process", 3, "LS0301 step fails")
    scene.store.add_event("agent-lost", "the agent of host h1 is not announced any more. The 1 processes end.", "")
    scene.store.add_event("replica-ended", "exit code -9", "r0")
    (lost,) = watch.look(scene.shape, scene.clock() + 2 * US).failures
    assert (lost.cause, lost.host) == ("host", "h1")


def test_a_job_that_is_too_small_is_made_larger_and_the_store_says_why(scene: Scene) -> None:
    runner = scene.runner()
    for _ in range(5):
        scene.epochs(60, 600, 0.9)
        runner.look()
    assert scene.asked == [Rescale(partitions=3)]
    (decision,) = decode(scene.store.fact("decisions"))
    assert scene.events("decision") == [decision.sentence]
    assert decision.inputs["partitions"] == 1
    scene.shape = Shape(partitions=3, cores=8, replicas=1)
    scene.epochs(60, 600, 0.3)
    runner.look()
    (decision,) = decode(scene.store.fact("decisions"))
    assert decision.outcome == "done after 180 s"


def test_the_next_coordinator_goes_on_with_what_was_learned(scene: Scene) -> None:
    first = scene.runner()
    scene.store.add_event("replica-started", "pid 1", "r0")
    first.look()
    scene.epochs(60, 100, 0.1)
    scene.store.add_event("replica-ended", "exit code -9", "r0")
    first.look()
    assert scene.asked == [Rescale(replicas=2)]
    second = scene.runner()
    scene.epochs(61, 100, 0.1)
    second.look()
    scene.epochs(61, 100, 0.1)
    assert second.look() == []
    assert scene.asked == [Rescale(replicas=2)]
    kept = json.loads(scene.store.fact("policy") or "")
    assert kept["tolerance"]["rates"]["slow"]["process"][0] == pytest.approx(1, rel=0.01)


def test_memory_that_cannot_be_read_is_begun_anew_and_said(scene: Scene) -> None:
    scene.store.set_fact("policy", '{"format": 1, "scaler": 7}')
    scene.runner().look()
    (text,) = scene.events("policy-failed")
    assert "learned anew" in text


def test_what_is_refused_is_noted_and_not_asked_for_again(scene: Scene) -> None:
    def refuse(operation: Operation) -> None:
        scene.asked.append(operation)
        raise RunError("LS0601", "there is no room for it")

    scene.ask = refuse  # type: ignore[method-assign]
    runner = scene.runner()
    for _ in range(30):
        scene.epochs(60, 600, 0.9)
        runner.look()
    assert scene.asked == [Rescale(partitions=3)]
    (decision,) = (one for one in decode(scene.store.fact("decisions")) if one.kind == "scale-up")
    assert decision.outcome == "refused: there is no room for it"


def test_an_error_inside_is_told_and_ends_nothing(scene: Scene) -> None:
    runner = PolicyRunner(scene.store, AUTO, RunSettings(), lambda: 1 // 0, scene.ask, scene.clock)  # type: ignore[arg-type, return-value]
    for _ in range(5):
        scene.epochs(61, 100, 0.1)
        assert runner.look() == []
    assert scene.events("policy-failed") == ["ZeroDivisionError: integer division or modulo by zero"]


def test_between_two_windows_and_when_off_nothing_is_read(scene: Scene) -> None:
    runner = scene.runner()
    runner.look()
    runner._watch = None
    scene.clock.now_s += 59
    runner.look()
    assert runner._watch is None
    off = scene.runner(PolicySettings(scaling="off", tolerance="off"))
    off.look()
    assert off._watch is None
