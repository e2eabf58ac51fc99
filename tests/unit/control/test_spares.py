"""When a spare is ordered, who may use it, and that one that fails does not come back for ever."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from lockstep.agent import spare_processes
from lockstep.agent.client import AgentSilent
from lockstep.agent.shares import Demand
from lockstep.agent.spare_processes import MachineProcesses
from lockstep.config import Settings
from lockstep.control.hosts.agents import shape_of
from lockstep.control.supervise.spares import (
    FAILURES_MAX,
    FORGOTTEN_S,
    TIMES,
    Shape,
    Situation,
    Spares,
    is_calm,
    may_order,
    useful_spares,
)
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.sqlite_store import open_store
from tests.unit.control.known_by_pid import KnownByPid
from tests.unit.runtime.progress_for_runtime import NOW_US, S, said

GIB = 1 << 30
CALM_S, FAILURE_PAUSE_S = TIMES.calm_s, TIMES.failure_pause_s
BOTH = {"r0": "1", "r1": "1"}
"""The processes that live."""
CALM = Situation(
    spares=0, wanted=1, calm_s=CALM_S, failures=0, failed_ago_s=0.0, memory_free_bytes=8 * GIB, driver_memory_bytes=GIB
)


def test_a_spare_is_ordered_when_all_is_calm_and_never_more_than_are_wanted() -> None:
    assert may_order(CALM)
    assert not may_order(replace(CALM, calm_s=CALM_S - 0.1))
    assert not may_order(replace(CALM, spares=1))
    assert may_order(replace(CALM, spares=1, wanted=2))
    assert not may_order(replace(CALM, wanted=0))


def test_a_spare_never_takes_the_last_memory() -> None:
    assert not may_order(replace(CALM, memory_free_bytes=2 * GIB))
    assert not may_order(replace(CALM, driver_memory_bytes=4 * GIB))


def test_spares_that_end_by_themselves_are_ordered_again_after_a_pause_and_not_for_ever() -> None:
    failed = replace(CALM, failures=1, failed_ago_s=FAILURE_PAUSE_S - 1)
    assert not may_order(failed)
    assert may_order(replace(failed, failed_ago_s=FAILURE_PAUSE_S))
    assert not may_order(replace(failed, failures=FAILURES_MAX, failed_ago_s=10 * FAILURE_PAUSE_S))


def test_it_is_calm_when_every_replica_runs_and_none_is_on_its_way() -> None:
    running = said("r0", 10)
    assert is_calm([running, said("r1", 10)], BOTH, NOW_US)
    for state in ("starting", "seeding", "catching-up", "diverged", "draining", "failed"):
        assert not is_calm([running, said("r1", 10, state=state)], BOTH, NOW_US), state
    assert not is_calm([], BOTH, NOW_US), "before the first word nobody runs"


def test_it_is_not_calm_while_a_replica_that_is_new_to_the_job_has_said_nothing() -> None:
    assert not is_calm([said("r0", 10)], BOTH, NOW_US)


def test_what_a_process_said_that_has_ended_since_does_not_make_it_calm() -> None:
    words = [said("r0", 10), said("r1", 10)]
    assert not is_calm(words, {"r0": "1"}, NOW_US), "nobody has noted yet that r1 has ended"
    assert not is_calm(words, {"r0": "1", "r1": "2"}, NOW_US), "another process is r1 now, and has said nothing"


def test_a_replica_that_was_given_up_does_not_keep_the_others_from_having_a_spare() -> None:
    gone = replace(said("r1", 10, state="failed"), updated_us=NOW_US - round((FORGOTTEN_S + 1) * S))
    assert is_calm([said("r0", 10), gone], BOTH, NOW_US)
    assert not is_calm([gone], BOTH, NOW_US)


def test_no_spare_where_it_would_hold_executors_or_where_the_run_ends_by_itself() -> None:
    assert useful_spares(Settings()) == 1
    assert useful_spares(Settings.model_validate({"spark": {"master": "spark://host:7077"}})) == 0
    assert useful_spares(Settings.model_validate({"run": {"until_done": True}})) == 0
    assert useful_spares(Settings.model_validate({"run": {"spares": 0}})) == 0


class Pretended(KnownByPid):
    """A process that is none: what it was told is written down."""

    made: list[Pretended]
    last_words = "out of memory"
    host = ""

    def __init__(self, spec: ReplicaSpec, folder: Path | None = None, *, gently: bool | None = None) -> None:
        self.spec, self.gently, self.share, self.used_s = spec, gently, "idle", 0.0
        self.waited_s, self.is_waiting, self.is_spare = 0.0, False, folder is not None
        self.pid, self.is_ready, self.killed, self.listens = len(self.made) + 1, False, False, True
        self.code: int | None = None
        self.became: ReplicaSpec | None = None
        self.made.append(self)

    def exit_code(self) -> int | None:
        return self.code

    def demand(self) -> Demand:
        return Demand(self.used_s, self.waited_s)

    def set_share(self, share: str) -> None:
        self.share = share

    def become(self, spec: ReplicaSpec, *, gently: bool) -> bool:
        self.became, self.gently, self.is_spare = spec, gently, False
        return self.listens

    def kill(self) -> None:
        self.killed = True


@dataclass
class Here:
    """A machine's processes without an agent between."""

    machine: MachineProcesses
    settings: Settings
    ordered: int = 0

    def shape(self, spec: ReplicaSpec) -> Shape:
        return shape_of(self.settings, spec.replica)

    def replica(self, spec: ReplicaSpec, *, gently: bool) -> Any:
        return self.machine.replica(spec, gently=gently)

    def spare(self, spec: ReplicaSpec, shape: Shape) -> Any:
        self.ordered += 1
        return self.machine.spare(spec, str(self.ordered))

    def may_become(self, spare: Any, replica: str) -> bool:
        return True

    def memory_free_bytes(self) -> int:
        return 1 << 40


class Bench:
    """A pool of pretended spares with a clock in hand."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
        self.store = open_store(folder, "job")
        for replica in ("r0", "r1"):
            self.store.begin(replica, 1)
        self.now_s = 1000.0
        self.pids: dict[str, int] = {}
        self.spares: list[Pretended] = []
        self.cold: list[Pretended] = []
        monkeypatch.setattr(spare_processes, "SpareProcess", type("Spare", (Pretended,), {"made": self.spares}))
        monkeypatch.setattr(spare_processes, "ReplicaProcess", type("Cold", (Pretended,), {"made": self.cold}))
        given = Settings.model_validate(settings)
        self.template = ReplicaSpec(
            "/p", str(folder), "job", "job.py", "hash", "", "auto", given.model_dump(mode="json")
        )
        self.machine = MachineProcesses(folder, lambda: self.now_s)
        here = Here(self.machine, given)
        self.pool = Spares(self.store, self.template, given, ["r0", "r1"], here, lambda: self.now_s, self.now_us)
        for replica in ("r0", "r1"):
            self.start(replica, gently=False)
        self.first, self.cold[:] = tuple(self.cold), ()

    def now_us(self) -> int:
        return NOW_US + round(self.now_s * S)

    def report(self, replica: str, state: str = "running") -> None:
        pid = self.pids[replica]
        word = replace(
            said(replica, 10, state=state), incarnation=1, pid=pid, process=str(pid), updated_us=self.now_us()
        )
        self.store.report(word)

    def pass_time(self, seconds: float, state: str = "running") -> None:
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 1.0
            for replica in ("r0", "r1"):
                self.report(replica, state)
            self.pool.tend()
            self.machine.tend()

    def start(self, replica: str, *, gently: bool = True) -> Pretended:
        started: Any = self.pool(replace(self.template, replica=replica), gently=gently)
        self.pids[replica] = started.pid
        return cast("Pretended", started)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch, {})


def test_without_a_spare_a_replica_is_a_new_process(bench: Bench) -> None:
    assert bench.start("r0", gently=False) is bench.cold[0]
    assert bench.cold[0].spec.replica == "r0" and bench.cold[0].gently is False


def test_a_replica_takes_the_spare_and_the_next_one_is_ordered_when_all_is_calm_again(bench: Bench) -> None:
    bench.pass_time(CALM_S + 2)
    assert len(bench.spares) == 1, "one is enough"
    assert bench.start("r1") is bench.spares[0]
    assert bench.spares[0].became is not None and bench.spares[0].became.replica == "r1"
    bench.pass_time(30, state="starting")
    assert len(bench.spares) == 1, "nothing is booted beside a replica that is on its way"
    bench.pass_time(CALM_S + 2)
    assert len(bench.spares) == 2
    bench.pool.close()
    assert [one.killed for one in bench.spares] == [False, True], "the first is a replica now, and not the pool's"


def test_a_spare_that_has_died_or_does_not_listen_is_passed_over(bench: Bench) -> None:
    bench.pass_time(CALM_S + 2)
    bench.spares[0].listens = False
    assert bench.start("r0") is bench.cold[0]
    assert bench.spares[0].killed
    bench.pass_time(CALM_S + 2)
    bench.spares[1].code = -9
    assert bench.start("r0") is bench.cold[1]
    bench.pass_time(2)
    kinds = [(kind, text) for _, _, kind, _, text in bench.store.events()]
    assert kinds == [("spare-ended", "pid 2, exit code -9: out of memory")]


def test_a_spare_whose_agent_does_not_answer_is_ended_when_it_does(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silence() -> None:
        raise AgentSilent("LS0680", "the agent does not answer")

    bench.pass_time(CALM_S + 2)
    bench.spares[0].listens = False
    with monkeypatch.context() as patched:
        patched.setattr(bench.spares[0], "kill", silence)
        assert bench.start("r0") is bench.cold[0], "the replica is started all the same"
    assert not bench.spares[0].killed
    bench.pass_time(2)
    assert bench.spares[0].killed


def test_a_spare_that_hangs_in_its_boot_is_ended_and_another_ordered(bench: Bench) -> None:
    bench.pass_time(CALM_S + 2)
    bench.pass_time(TIMES.slowness * Settings().run.start_timeout_s + 2)
    assert bench.spares[0].killed
    ((_, _, kind, _, text),) = bench.store.events()
    assert kind == "spare-ended" and text.startswith("pid 1, not ready after 721 s")
    bench.pass_time(FAILURE_PAUSE_S + CALM_S)
    assert len(bench.spares) == 2
    bench.spares[1].is_ready = True
    bench.pass_time(2 * Settings().run.start_timeout_s)
    assert not bench.spares[1].killed, "one that waits has all the time there is"


def test_a_spare_serves_only_replicas_with_the_same_spark_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"r1": {"spark": {"master": "local[4]"}}}
    bench = Bench(tmp_path, monkeypatch, {"replica": own})
    bench.pass_time(CALM_S + 2)
    assert bench.spares[0].spec.replica == "r0"
    bench.spares[0].is_ready = True
    assert bench.start("r1") is bench.cold[0]
    assert bench.start("r0") is bench.spares[0]


def test_a_spare_that_boots_gives_way_to_a_replica_that_has_to_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, monkeypatch, {"replica": {"r1": {"spark": {"master": "local[4]"}}}})
    bench.pass_time(CALM_S + 2)
    assert bench.start("r1") is bench.cold[0]
    assert bench.spares[0].killed, "two boots at once would be felt"


def test_a_replica_on_its_way_that_finds_no_idle_time_gets_a_gentle_share_and_then_its_full_one(bench: Bench) -> None:
    lucky, starved = bench.start("r0"), bench.start("r1")
    shares = []
    for _ in range(8):
        lucky.used_s += 0.8
        starved.used_s += 0.1
        starved.waited_s += 0.9
        bench.pass_time(1, state="starting")
        shares.append(starved.share)
    assert lucky.share == "idle"
    assert list(dict.fromkeys(shares)) == ["idle", "gentle", "full"]


def test_a_spare_that_boots_on_a_machine_that_is_never_idle_gets_there_too_and_one_that_waits_is_left_alone(
    bench: Bench,
) -> None:
    bench.pass_time(CALM_S + 2)
    spare = bench.spares[0]
    spare.is_waiting = True
    spare.waited_s = 100.0
    bench.pass_time(5)
    assert spare.share == "idle"
    assert bench.start("r0") is spare
    bench.pass_time(CALM_S + 2)
    bench.spares[1].waited_s = 100.0
    bench.pass_time(5)
    bench.spares[1].waited_s = 200.0
    bench.pass_time(5)
    assert bench.spares[1].share == "gentle", "nobody waits for it"
