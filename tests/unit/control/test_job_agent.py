"""Whoever begins to supervise: it finds the agent that runs, goes on with what fits, and ends the rest."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lockstep.agent.client import AgentClient
from lockstep.config import RunSettings
from lockstep.control.hosts import job_agent
from lockstep.control.hosts.agents import AgentProcesses, end_others, sorted_out
from lockstep.control.hosts.job_agent import JobAgent
from lockstep.errors import RunError
from lockstep.runtime.steps import run
from lockstep.store.sqlite_store import open_store
from tests.unit.agent.pretended import Pretended, PretendedMachine, started
from tests.unit.agent.test_hosting import SPEC

OTHER = replace(SPEC, replica="r1", code_hash="an older one")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> PretendedMachine:
    made = PretendedMachine(Pretended)
    monkeypatch.setattr(job_agent, "start_agent", started(made))
    return made


def agent(folder: Path, term: int, orphan_timeout_s: float = 60.0) -> JobAgent:
    return JobAgent("job", folder, folder, RunSettings(orphan_timeout_s=orphan_timeout_s), term)


def client_of(one: JobAgent) -> AgentClient:
    return AgentClient(one.contacts()[""], "job", one.term)


def test_the_next_supervisor_adopts_what_it_would_start_and_the_first_one_can_do_no_more(
    tmp_path: Path, machine: PretendedMachine
) -> None:
    first = agent(tmp_path, term=1)
    assert first.is_new
    before = client_of(first)
    before.start("a", SPEC, {}, spare=False, gently=False)
    before.start("b", OTHER, {}, spare=False, gently=False)
    second = agent(tmp_path, term=2)
    assert not second.is_new
    processes = AgentProcesses(second, "job", 2)
    found = sorted_out(processes.running(), SPEC.likeness, dict.fromkeys(["r0", "r1"], SPEC.likeness), {})
    assert [one.handle for one in found.replicas.values()] == ["a"]
    kinds = [SPEC.likeness, OTHER.likeness]
    under_way = sorted_out(processes.running(), SPEC.likeness, {"r0": SPEC.likeness}, {}, kinds)
    assert sorted(under_way.replicas) == ["r0", "r1"], "an operation decides when r1 leaves"
    store = open_store(tmp_path, "job")
    run(end_others(found.others, processes.running, store))
    assert [(kind, replica) for _, _, kind, replica, _ in store.events()] == [("replica-not-adopted", "r1")]
    store.close()
    processes.close()
    assert [one.heard for one in machine.made] == [[], ["drain", "kill"]]
    with pytest.raises(RunError) as raised:
        before.command("a", "kill")
    assert raised.value.code == "LS0610" and machine.made[0].heard == []
    before.close()
    second.leave()
    after = client_of(second)
    assert [one.handle for one in after.listed()[0]] == ["a"], "one that was there stays"
    after.close()
    second.end()
    assert machine.made[0].heard == ["kill"]


def test_an_agent_that_would_wait_for_another_time_is_replaced(tmp_path: Path, machine: PretendedMachine) -> None:
    first = agent(tmp_path, term=1)
    before = client_of(first)
    before.start("a", SPEC, {}, spare=False, gently=False)
    before.close()
    second = agent(tmp_path, term=2, orphan_timeout_s=90.0)
    assert second.contacts() != first.contacts()
    assert second.is_new and machine.made[0].heard == ["kill"]
    second.leave()
