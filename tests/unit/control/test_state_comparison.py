"""Replicas whose states differ: who is suspected, and what the supervisor does about it before any output differs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from lockstep.config import Settings
from lockstep.control.supervise.judging import STATE_VOTES_TIMEOUT_S, judge
from lockstep.control.supervise.state_comparison import compare, disagreements, fresh_replicas
from lockstep.control.supervise.supervisor import Supervisor
from lockstep.control.supervise.surroundings import Process, Surroundings
from lockstep.runtime.decide.state_digests import Joined, joined_key
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.state.recovery import situation_of
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Progress, Store, state_subject
from lockstep.store.sqlite_store import open_store
from tests.unit.control.known_by_pid import KnownByPid

STATE = state_subject(1, "0 stateStoreSave")
NOW_US = 1_700_000_000_000_000
EVERY = 500


def _votes(**votes: str) -> list[Digest]:
    return [Digest(417, STATE, replica, 1, vote, 3, "v") for replica, vote in votes.items()]


def _vote(replica: str, digest: str, epoch: int = 417, incarnation: int = 1, version: str = "v") -> Digest:
    return Digest(epoch, STATE, replica, incarnation, digest, 3, version)


def _compared(*fresh: str, **votes: str) -> Divergence:
    found = compare(_votes(**votes), fresh, NOW_US)
    assert found is not None
    return found


def test_equal_states_and_a_state_without_another_are_no_disagreement() -> None:
    assert compare(_votes(r0="A", r1="A", r2="A"), (), NOW_US) is None
    assert compare(_votes(r0="A"), (), NOW_US) is None
    assert compare([], (), NOW_US) is None


def test_accused_is_the_odd_one_out_and_of_two_the_one_that_just_joined() -> None:
    assert _compared(r0="B", r1="A", r2="A").replica == "r0"
    assert _compared("r1", r0="B", r1="A", r2="A").replica == "r0", "a majority counts for more than having joined"
    assert (_compared("r0", r0="B", r1="A").replica, _compared("r1", r0="B", r1="A").replica) == ("r0", "r1")
    both = _compared(r0="B", r1="A")
    assert (both.replica, both.published_by, both.digest, both.published_digest) == ("r1", "r0.1", "A", "B")
    assert "r0 has 3 rows in it, digest B" in both.detail and "stage 1, operator 0 stateStoreSave" in both.detail


@pytest.mark.parametrize(
    ("votes", "fresh", "on_divergence", "verdict", "wrong"),
    [
        ({"r0": "A", "r1": "B"}, (), "stop", "stop", ()),
        ({"r0": "A", "r1": "B"}, (), "continue", "reseed", ()),
        ({"r0": "A", "r1": "B"}, ("r1",), "stop", "reseed", ()),
        ({"r0": "A", "r1": "B"}, ("r0", "r1"), "stop", "stop", ()),
        ({"r0": "A", "r1": "A", "r2": "B"}, (), "stop", "reseed", ()),
        ({"r0": "A", "r1": "B", "r2": "C"}, ("r2",), "stop", "reseed", ()),
        ({"r0": "A", "r1": "B", "r2": "C"}, (), "stop", "stop", ()),
    ],
)
def test_verdicts_about_state(
    votes: dict[str, str],
    fresh: tuple[str, ...],
    on_divergence: Literal["stop", "continue"],
    verdict: str,
    wrong: tuple[str, ...],
) -> None:
    divergence = _compared(*fresh, **votes)
    judged = judge(divergence, _votes(**votes), list(votes), on_divergence, NOW_US, fresh)
    assert judged is not None and (judged.verdict, judged.wrong) == (verdict, wrong)
    assert not judged.published_is_wrong, "nothing was published that is known to be wrong"


def test_with_three_the_third_is_heard_and_waited_for_longer_than_about_output() -> None:
    divergence = _compared(r0="A", r1="B")
    live = ["r0", "r1", "r2"]

    def judged(after_s: float) -> object:
        return judge(divergence, _votes(r0="A", r1="B"), live, "stop", NOW_US + round(after_s * 1e6))

    assert judged(STATE_VOTES_TIMEOUT_S - 1) is None and judged(STATE_VOTES_TIMEOUT_S + 1) is not None


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()


def test_fresh_is_who_has_joined_with_a_state_and_agreed_with_nobody_since(store: Store) -> None:
    def fresh(epoch: int, **live: int) -> set[str]:
        return fresh_replicas(store, epoch, STATE, live, EVERY)

    store.set_fact(joined_key("r0"), Joined(1, {1: -1}).to_text())
    store.set_fact(joined_key("r1"), Joined(4, {1: 417}).to_text())
    assert fresh(417, r0=1, r1=4) == {"r1"}
    assert fresh(500, r0=1, r1=4) == {"r1"}, "there was no comparison yet"
    assert fresh(1000, r0=1, r1=4) == set(), "by then there was one"
    assert fresh(417, r0=1, r1=5) == set(), "what the one before joined with says nothing"
    store.add_digests([_vote("r0", "A"), _vote("r1", "A", incarnation=4)])
    assert fresh(500, r0=1, r1=4) == set(), "it has agreed"


def test_nobody_is_suspected_because_the_proof_that_it_has_agreed_is_forgotten(store: Store) -> None:
    holder = store.begin("r0", 1)
    for epoch in range(6):
        store.seal(Entry(epoch, NOW_US, {}), holder)
    store.set_fact(joined_key("r1"), Joined(4, {1: 2}).to_text())
    store.add_digests([_vote("r0", "A", epoch=2), _vote("r1", "A", epoch=2, incarnation=4)])
    assert fresh_replicas(store, 5, STATE, {"r0": 1, "r1": 4}, EVERY) == set()
    store.trim(4)
    assert fresh_replicas(store, 5, STATE, {"r0": 1, "r1": 4}, EVERY) == set()


def test_only_those_who_run_are_compared_and_each_disagreement_is_found_once(store: Store) -> None:
    store.add_digests([_vote("r0", "A"), _vote("r1", "B", incarnation=4), Digest(417, "out", "r0", 1, "X", 1, "v")])
    assert disagreements(store, {"r0": 1, "r1": 5}, EVERY, NOW_US) == []
    (found,) = disagreements(store, {"r0": 1, "r1": 4}, EVERY, NOW_US)
    store.add_divergence(found)
    assert disagreements(store, {"r0": 1, "r1": 4}, EVERY, NOW_US) == []


def test_digests_of_other_code_and_of_output_are_not_compared(store: Store) -> None:
    out = [Digest(417, "out", name, 1, name, 1, "v") for name in ("r0", "r1")]
    store.add_digests([_vote("r0", "A"), _vote("r1", "B", version="w"), *out])
    assert disagreements(store, {"r0": 1, "r1": 1}, EVERY, NOW_US) == []


def test_old_digests_of_state_are_forgotten_with_those_of_output(store: Store) -> None:
    holder = store.begin("r0", 1)
    for epoch in range(4):
        store.seal(Entry(epoch, NOW_US, {}), holder)
        store.add_digests([_vote("r0", "A", epoch=epoch)])
    store.trim(2)
    assert [len(store.digests(epoch)) for epoch in range(4)] == [0, 0, 1, 1]


@dataclass
class Paper(KnownByPid):
    """A started replica that does nothing."""

    pid: int
    gentle: bool = False
    killed: bool = False

    def exit_code(self) -> int | None:
        return -9 if self.killed else None

    def cpu_s(self) -> float:
        return 0.0

    def error(self) -> str:
        return ""

    def full_speed(self) -> None: ...

    def drain(self) -> None: ...

    def kill(self) -> None:
        self.killed = True


@dataclass
class Job:
    """A supervisor with replicas of paper, which say what the test lets them say."""

    store: Store
    folder: Path
    replicas: int
    options: dict[str, object] = field(default_factory=dict)
    now_s: float = 0.0
    started: list[tuple[str, str]] = field(default_factory=list)
    processes: dict[str, Paper] = field(default_factory=dict)
    pids: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    def __post_init__(self) -> None:
        spec = ReplicaSpec(str(self.folder), str(self.folder), "job", "job.py", "", "", "auto", {})
        now_us = lambda: NOW_US + round(self.now_s * 1e6)  # noqa: E731
        around = Surroundings(now_us=now_us, elapsed_s=lambda: self.now_s, start=self._start)
        settings = Settings.model_validate({"run": {"replicas": self.replicas, **self.options}})
        self.supervisor = Supervisor(self.store, spec, settings, {}, {}, "me", around=around)
        self.tick()

    def _start(self, spec: ReplicaSpec, *, gently: bool) -> Process:
        del gently
        process = Paper(next(self.pids))
        self.started.append((spec.replica, spec.seed))
        self.processes[spec.replica] = process
        holder = self.store.begin(spec.replica, process.pid)
        self.say(holder, process.pid)
        return process

    def say(self, holder: Holder, pid: int) -> None:
        said = Progress(
            holder.replica, holder.incarnation, pid, "running", epoch=417, updated_us=NOW_US, process=str(pid)
        )
        self.store.report(said)

    def joined(self, replica: str, incarnation: int = 1, epoch: int = 417) -> None:
        self.store.set_fact(joined_key(replica), Joined(incarnation, {1: epoch}).to_text())

    def tick(self) -> None:
        self.now_s += 1.5
        self.supervisor._tick()

    @property
    def announced(self) -> list[str]:
        return [text for _, _, kind, _, text in self.store.events() if kind == "divergence"]


def test_of_three_the_one_with_another_state_is_killed_and_seeded_from_a_peer(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 3)
    store.add_digests(_votes(r0="A", r1="A"))
    job.tick()
    store.add_digests(_votes(r2="B"))
    job.tick()
    assert [name for name, one in job.processes.items() if one.killed] == ["r2"]
    (text,) = job.announced
    assert text.startswith("r2 against r0.1: the majority disagrees") and "need not differ yet" in text
    job.tick()
    assert job.started[3:] == [("r2", "peer")] and job.supervisor.failure is None
    (one,) = store.divergences()
    assert (one.replica, one.sink, one.verdict) == ("r2", STATE, "reseed")
    job.tick()
    assert len(job.announced) == 1 and len(job.started) == 4, "its old digest is still there, and is nobody's"


def test_of_two_the_one_that_just_joined_is_seeded_anew(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 2)
    job.joined("r0")
    job.joined("r1", epoch=-1)
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    job.tick()
    assert job.started[2:] == [("r0", "peer")] and job.supervisor.failure is None
    assert "r0 against r1.1: it has just joined" in job.announced[0]


def test_of_two_of_which_none_has_joined_nobody_is_right_and_the_job_stops(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 2)
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    failure = job.supervisor.failure
    assert failure is not None and failure.code == "LS0603"
    assert "r1 and r0.1" in str(failure) and "the state of stage 1" in str(failure)


def test_of_two_one_is_seeded_from_the_other_if_the_job_is_to_continue(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 2, {"on_divergence": "continue"})
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    job.tick()
    assert job.started[2:] == [("r1", "peer")] and job.supervisor.failure is None


def test_states_are_not_compared_if_that_is_switched_off(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 2, {"state_digest_every_epochs": 0})
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    assert job.announced == [] and job.supervisor.failure is None


def test_a_party_that_is_gone_leaves_nothing_to_judge(store: Store, tmp_path: Path) -> None:
    job = Job(store, tmp_path, 3)
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    assert [one.verdict for one in store.divergences()] == [""], "the third is waited for"
    job.processes["r0"].killed = True
    job.tick()
    job.tick()
    assert [one.verdict for one in store.divergences()] == ["gone"]
    assert [name for name, one in job.processes.items() if one.killed] == [] and job.supervisor.failure is None


def test_one_that_is_judged_about_its_output_is_not_judged_about_its_state_as_well(
    store: Store, tmp_path: Path
) -> None:
    job = Job(store, tmp_path, 2, {"on_divergence": "continue"})
    process = job.processes["r0"]
    store.report(Progress("r0", 1, process.pid, "diverged", 417, updated_us=NOW_US, process=process.handle))
    store.add_digests(_votes(r0="B", r1="A"))
    job.tick()
    assert job.announced == [] and not any(one.killed for one in job.processes.values())


def test_nobody_is_seeded_from_a_party_to_a_disagreement(store: Store) -> None:
    for name in ("r0", "r1", "r2"):
        holder = store.begin(name, 1)
        store.report(Progress(name, holder.incarnation, 1, "running", epoch=9, updated_us=NOW_US))
    divergence = _compared(r0="A", r1="B")
    store.add_divergence(divergence)
    assert [one.replica for one in situation_of(store, "r3", None, False).peers] == ["r2"]
