"""An agent behind its socket: who may talk to it, what it answers, and how it is found."""

from __future__ import annotations

import json
import stat
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from lockstep import __version__
from lockstep.agent.client import AgentClient, AgentGone, AgentSilent
from lockstep.agent.contact import Contact
from lockstep.agent.description import FILE, new, read
from lockstep.agent.starting import find_agent, listen
from lockstep.control.hosts.agents import AgentProcesses
from lockstep.errors import LockstepError
from tests.unit.agent.pretended import AgentThread, PretendedMachine, hosted
from tests.unit.agent.test_hosting import SPEC


class Served:
    def __init__(self, folder: Path, orphan_timeout_s: float = 60.0) -> None:
        self.machine = PretendedMachine()
        self.description = new("a job", folder, "1", orphan_timeout_s, 5.0)
        self.job = hosted("a job", self.machine, orphan_timeout_s)
        self.thread = AgentThread(self.description, self.job)
        self.client = AgentClient(self.description.contact, "a job", term=2)

    def end(self) -> None:
        self.client.end()
        self.client.close()
        self.thread.wait()


class OneAgent:
    """A directory with one agent, and another one when it is gone."""

    def __init__(self, served: Served, another: Callable[[], Served]) -> None:
        self.served, self._another = served, another

    def contacts(self) -> dict[str, Contact]:
        return {"": self.served.description.contact}

    def lost(self, host: str, why: str) -> str:
        del host
        try:
            self.served = self._another()
        except OSError as error:
            return f"{why} No other one can be started now: {error}."
        return f"{why} Another one is started."


def processes_of(
    served: Served, another: Callable[[], Served], elapsed_s: Callable[[], float] = time.monotonic
) -> tuple[AgentProcesses, OneAgent]:
    directory = OneAgent(served, another)
    return AgentProcesses(directory, "a job", 2, elapsed_s=elapsed_s), directory


def test_processes_are_started_listed_and_ended_over_the_socket(tmp_path: Path) -> None:
    served = Served(tmp_path)
    client = served.client
    client.start("a1", SPEC, {"of": "r0"}, spare=False, gently=False)
    client.start("a1", SPEC, {"of": "r0"}, spare=False, gently=False)
    ((one,), memory) = client.listed()
    assert (one.handle, one.replica, one.pid, one.likeness) == ("a1", "r0", 4711, SPEC.likeness)
    assert memory > 0 and client.cpu_s("a1") == 1.5
    for command in ("full-speed", "drain", "kill"):
        client.command("a1", command)
    assert served.machine.made[0].heard == ["full speed", "drain", "kill"]
    assert client.listed()[0] == []
    about = client.about()
    assert (about["version"], about["jobs"], about["cores"] > 0) == (__version__, ["a job"], True)
    served.end()
    assert list(tmp_path.iterdir()) == [], "nothing is left of it"


def test_whoever_has_no_token_or_an_old_term_is_refused(tmp_path: Path) -> None:
    served = Served(tmp_path)
    served.client.listed()
    stranger = AgentClient(replace(served.description, token="guessed").contact, "a job", term=9)
    sleeper = AgentClient(served.description.contact, "a job", term=1)
    for client, code in ((stranger, "LS0683"), (sleeper, "LS0610")):
        with pytest.raises(LockstepError) as raised:
            client.start("a1", SPEC, {}, spare=False, gently=False)
        assert raised.value.code == code
        client.close()
    assert served.machine.made == []
    served.end()


def test_socket_and_token_are_for_their_owner_alone_also_where_the_path_is_too_long_for_a_socket(
    tmp_path: Path,
) -> None:
    deep = tmp_path / ("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    for folder in (tmp_path, deep):
        served = Served(folder)
        served.client.listed()
        for path in (Path(served.description.socket), folder / FILE):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert read(folder) == served.description
        served.end()
        assert not Path(served.description.socket).exists() and read(folder) is None


def test_an_agent_is_found_if_it_answers_and_one_that_is_ending_is_waited_for(tmp_path: Path) -> None:
    assert find_agent(tmp_path, wait_s=1.0) is None
    served = Served(tmp_path)
    found = find_agent(tmp_path, wait_s=1.0)
    assert found is not None and not found[1].is_ending()
    found[1].close()
    served.end()
    served.description.write()
    assert find_agent(tmp_path, wait_s=1.0) is None, "what is written down is of one that is gone"


def test_an_agent_that_nobody_talks_to_ends_and_leaves_nothing(tmp_path: Path) -> None:
    served = Served(tmp_path, orphan_timeout_s=0.3)
    served.client.start("a1", SPEC, {}, spare=False, gently=False)
    served.client.close()
    served.thread.wait()
    assert served.machine.made[0].heard == ["drain", "kill"]
    assert list(tmp_path.iterdir()) == []


def test_a_request_that_says_nothing_is_answered_and_harms_nobody(tmp_path: Path) -> None:
    served = Served(tmp_path)
    for method, path in (("PUT", served.client._path("a1")), ("GET", "/nowhere"), ("POST", "/jobs/another/end")):
        with pytest.raises(OSError, match="the agent refused"):
            served.client._ask(method, path, {"unknown": 1})
    assert served.client.listed()[0] == []
    served.end()


def test_a_supervisor_gets_another_agent_when_its_own_is_gone_and_counts_its_processes_as_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.control.hosts.agents.with_jvm", lambda spec: spec)
    first = Served(tmp_path)
    processes, directory = processes_of(first, lambda: Served(tmp_path))
    process = processes.replica(SPEC, gently=False)
    assert processes.look() == "" and process.exit_code() is None
    first.end()
    with pytest.raises(OSError, match="LS0681"):
        processes.replica(SPEC, gently=False)
    assert "Another one is started. The 1 processes of the first one end" in processes.look()
    assert process.exit_code() == -9
    process.kill()
    assert directory.served is not first and processes.replica(SPEC, gently=False).exit_code() is None
    processes.close()
    directory.served.end()


def test_a_process_whose_start_was_not_answered_is_ended(tmp_path: Path) -> None:
    served = Served(tmp_path)
    processes, _ = processes_of(served, lambda: served)
    other = AgentClient(served.description.contact, "a job", term=2)
    other.start("lost", SPEC, {}, spare=False, gently=False)
    other.close()
    processes.look()
    assert served.machine.made[0].heard == ["kill"]
    processes.close()
    served.end()


def test_an_agent_that_is_silent_does_not_hold_up_whoever_asks_and_is_not_taken_for_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    description = new("job", tmp_path, "1", 60.0, 5.0)
    # It listens, and nobody answers: as an agent that is stopped.
    with listen(description):
        client = AgentClient(description.contact, "job", term=1)
        with pytest.raises(AgentSilent) as raised:
            client.listed(timeout_s=0.05)
        assert raised.value.code == "LS0680"
        asked = list[float]()

        def silent(self: AgentClient, timeout_s: float = 1.0) -> None:
            asked.append(now_s)
            raise self.silence(timeout_s)

        monkeypatch.setattr(AgentClient, "listed", silent)
        directory = type("Directory", (), {"contacts": lambda _: {"": description.contact}})()
        processes = AgentProcesses(directory, "job", 1, elapsed_s=lambda: now_s)
        with pytest.raises(AgentSilent):
            while now_s < 100:
                processes.look()
                now_s += 0.1
        assert 60 <= now_s < 65 and len(asked) <= 62
        client.close()
    monkeypatch.undo()
    with pytest.raises(AgentGone):
        AgentClient(description.contact, "job").listed()


def test_an_agent_that_drains_is_waited_for_and_then_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM to an agent, or a supervisor that stood still for longer than orphan_timeout_s."""
    monkeypatch.setattr("lockstep.control.hosts.agents.with_jvm", lambda spec: spec)
    now_s, first = 0.0, Served(tmp_path)
    processes, directory = processes_of(first, lambda: Served(tmp_path), lambda: now_s)
    process = processes.replica(SPEC, gently=False)
    (made,) = first.machine.made
    made.drain = lambda: None  # it takes its time
    first.job.end()
    with pytest.raises(AgentSilent, match="LS0682"):
        first.client.listed()
    assert processes.look() == "", "it is no reason to end anything"
    made.code = 0
    first.thread.wait()
    first.client.close()
    now_s += 10
    assert "Another one is started" in processes.look() and process.exit_code() == -9
    assert Path(directory.served.description.socket).exists(), "the first took only its own away"
    processes.close()
    directory.served.end()
    assert list(tmp_path.iterdir()) == []


def test_an_agent_that_answers_with_trouble_and_one_that_cannot_be_started_now_are_passing_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, served = 0.0, Served(tmp_path)

    def full() -> Served:
        raise OSError("no space left on device")

    processes, _ = processes_of(served, full, lambda: now_s)
    with monkeypatch.context() as patched:
        patched.setattr(served.job, "listed", lambda: 1 / 0)
        with pytest.raises(AgentSilent, match="ZeroDivisionError"):
            served.client.listed()
        assert processes.look() == ""
    now_s += 10
    assert processes.look() == ""
    served.end()
    now_s += 10
    assert "No other one can be started now" in processes.look()
    now_s += 10
    assert "No other one can be started now" in processes.look(), "it is tried again"
    processes.close()


def test_a_description_that_is_not_understood_is_none(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({"of": "another version"}))
    assert read(tmp_path) is None
