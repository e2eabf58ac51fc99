"""A host's own agent: announced at the store, reached over TCP with the token, with who may coordinate its jobs."""

from __future__ import annotations

import json
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from lockstep.agent import candidate, host
from lockstep.agent.client import AgentClient, AgentGone
from lockstep.agent.contact import Contact
from lockstep.agent.host import Host, HostAgent
from lockstep.config import HostSettings
from lockstep.control.hosts import host_directory
from lockstep.control.hosts.agents import AgentProcesses
from lockstep.control.hosts.host_directory import HostDirectory, hosts_used
from lockstep.errors import LockstepError, RunError, ServiceError
from lockstep.runtime.desired_run import LEASE, DesiredRun, note_desired, note_stopped
from lockstep.security import TlsFiles
from lockstep.store.opening import address_in, open_hosts, open_store
from lockstep.store.protocols import Store
from tests.unit.agent.pretended import PretendedMachine
from tests.unit.transfer.hosts_for_transfer import certificates

TOKEN = "t" * 43
WAITS = "import sys, time; print(sys.argv[1:], flush=True); time.sleep(600)"


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


class Served:
    """A host whose replicas are none, and whose candidates wait for ever."""

    def __init__(self, name: str, folder: Path, store: str, tls: TlsFiles | None = None) -> None:
        self.machine = PretendedMachine()
        listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"{'https' if tls else 'http'}://127.0.0.1:{listening.getsockname()[1]}"
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.agent = HostAgent(Host(name, folder, store, self.address, HostSettings()))
        self.taken_up = self.agent.prepare()
        serve = lambda: self.agent.serve_host(listening, TOKEN, tls.for_serving() if tls else None)  # noqa: E731
        self.thread = threading.Thread(target=serve, daemon=True)
        self.thread.start()

    def end(self) -> None:
        self.agent.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


class Scene:
    """Hosts, and a job whose code is in a folder of whoever ordered it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = address_in(folder / "store")
        self.store: Store = open_store(self.address, "job")
        code = folder / "here" / "code" / "ab" / "job.py"
        code.parent.mkdir(parents=True)
        code.write_text("job = 1")
        self.order = DesiredRun("job", "code/ab/job.py:job", "hash", self.address, {"run": {"orphan_timeout_s": 60.0}})
        note_desired(self.store, self.order)
        self.hosts: dict[str, Served] = {}

    def serve(self, name: str) -> Served:
        self.hosts[name] = Served(name, self.folder / name, self.address)
        return self.hosts[name]

    def directory(self, term: int = 1) -> HostDirectory:
        made = HostDirectory(self.order, term, self.folder / "here", self.store)
        try:
            made.wait()
        except RunError:
            made.forget()
            raise
        return made


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    monkeypatch.setattr(host, "ANNOUNCE_INTERVAL_S", 0.05)
    monkeypatch.setattr(host_directory, "INTERVAL_S", 0.02)
    machine = PretendedMachine()
    monkeypatch.setattr(host, "MachineProcesses", lambda _: machine)

    waits = [sys.executable, "-c", WAITS]
    monkeypatch.setattr(candidate, "command", lambda *told: [*waits, *map(str, told)])
    made = Scene(tmp_path)
    yield made
    for one in made.hosts.values():
        one.end()
    made.store.close()


def candidates(served: Served) -> list[list[str]]:
    """What the candidates of a host were told, as they said it."""
    log = served.folder / ".lockstep" / "jobs" / "job" / "coordinator.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line.replace("'", '"')) for line in lines]


def test_hosts_are_announced_get_what_a_job_needs_and_start_its_processes_apart(scene: Scene) -> None:
    one, two = scene.serve("h1"), scene.serve("h2")
    registry = open_hosts(scene.address)
    until(lambda: set(registry.hosts()) == {"h1", "h2"})
    registry.close()
    directory = scene.directory()
    until(lambda: len(directory.contacts()) == 2)
    for served in (one, two):
        assert (served.folder / ".lockstep/jobs/job/code/ab/job.py").read_text() == "job = 1"
    until(lambda: [len(candidates(served)) for served in (one, two)] == [1, 1])
    processes = AgentProcesses(directory, "job", 1)
    template = scene.order.template()
    first = processes.replica(replace(template, replica="r0"), gently=False)
    second = processes.replica(replace(template, replica="r1"), gently=False)
    assert {first.host, second.host} == {"h1", "h2"}
    assert first.where == f"pid 4711 on {first.host}"
    processes.close()
    directory.end()
    assert candidates(one)[0][0].endswith("desired.json")


def test_a_host_that_is_gone_takes_its_processes_with_it_and_one_that_comes_is_used(scene: Scene) -> None:
    scene.serve("h1")
    directory = scene.directory()
    processes = AgentProcesses(directory, "job", 1)
    first = processes.replica(replace(scene.order.template(), replica="r0"), gently=False)
    scene.hosts.pop("h1").end()
    until(lambda: not directory.contacts())
    assert "h1" in processes.look() and first.exit_code() == -9
    with pytest.raises(OSError, match="no host is there"):
        processes.replica(replace(scene.order.template(), replica="r0"), gently=False)
    scene.serve("h2")
    until(lambda: bool(directory.contacts()))
    processes.look()
    again = processes.replica(replace(scene.order.template(), replica="r0"), gently=False)
    assert again.host == "h2"
    processes.close()
    directory.end()


def test_whoever_has_no_token_is_refused_by_every_door(scene: Scene) -> None:
    served = scene.serve("h1")
    stranger = AgentClient(Contact(served.address, "guessed", "", "h1"), "job", 1)
    with pytest.raises(LockstepError, match="LS0683"):
        stranger.take_up(asdict(scene.order))
    file = scene.folder / "x.zip"
    file.write_bytes(b"x")
    with pytest.raises(LockstepError, match="LS0683"):
        stranger.put_bundle("a" * 64, file, "b" * 64)
    stranger.close()


def test_a_host_that_is_started_again_takes_up_what_is_still_wanted_and_forgets_what_is_not(scene: Scene) -> None:
    first = scene.serve("h1")
    scene.directory().forget()
    until(lambda: len(candidates(first)) == 1)
    scene.hosts.pop("h1").end()
    again = scene.serve("h1")
    assert again.taken_up == ["job"]
    until(lambda: len(candidates(again)) == 2)
    scene.hosts.pop("h1").end()
    note_stopped(scene.store)
    assert scene.serve("h1").taken_up == []


def test_a_host_that_missed_a_deletion_starts_and_does_not_make_the_job_anew(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = scene.serve("h1")
    directory = scene.directory()
    assert hosts_used(scene.store) == ["h1"]
    directory.forget()
    scene.hosts.pop("h1").end()
    assert (served.folder / ".lockstep" / "jobs" / "job" / "desired.json").exists()
    monkeypatch.setattr(host, "open_store", pytest.fail)
    with monkeypatch.context() as half:
        half.setattr(host, "is_being_deleted", lambda *_: True)
        assert scene.serve("h1").taken_up == []
        scene.hosts.pop("h1").end()
    monkeypatch.setattr(host, "list_jobs", lambda _: [])
    assert scene.serve("h1").taken_up == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates; Debian's package openssl")
def test_with_certificates_hosts_talk_over_tls_and_nobody_without_one_is_heard(scene: Scene, tmp_path: Path) -> None:
    tls = certificates(tmp_path / "certificates")
    scene.hosts["h1"] = served = Served("h1", tmp_path / "h1", scene.address, tls)
    client = AgentClient(Contact(served.address, TOKEN, "", "h1", tls=tls), "job", 1)
    client.take_up(asdict(scene.order))
    assert client.listed()[0] == []
    client.close()
    plain = Contact(served.address.replace("https:", "http:"), TOKEN, "", "h1")
    stranger = AgentClient(plain, "job", 1)
    with pytest.raises(LockstepError, match="LS068"):
        stranger.listed()
    stranger.close()


def test_an_agent_that_has_forgotten_a_job_counts_as_gone(scene: Scene) -> None:
    served = scene.serve("h1")
    client = AgentClient(Contact(served.address, TOKEN, "", "h1"), "another", 1)
    with pytest.raises(AgentGone):
        client.listed()
    client.close()


def test_a_host_removes_what_it_has_of_a_job_only_once_nothing_of_it_runs_there(scene: Scene) -> None:
    served = scene.serve("h1")
    directory = scene.directory()
    folder = served.folder / ".lockstep" / "jobs" / "job"
    client = AgentClient(directory.contacts()["h1"], "job")
    with pytest.raises(ServiceError, match="still run on h1"):
        client.delete()
    (folder / "states" / ("a" * 32) / "checkpoint").mkdir(parents=True)
    with pytest.raises(ServiceError, match="runs on h1 already"):
        client.begin_with("r0", "a" * 32)
    assert (folder / "code").is_dir()
    directory.end()
    client.begin_with("r0", "a" * 32)
    assert (folder / "replicas" / "r0" / "checkpoint").is_dir()
    for name in ("../../x", "b" * 32):
        with pytest.raises(OSError, match="no state of that name"):
            client.begin_with("r0", name)
    client.delete()
    assert not folder.exists() and not (served.folder / ".lockstep" / "deleted").exists()
    client.delete()
    client.close()


def test_a_host_ends_what_is_left_of_a_job_that_is_being_deleted(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    served = scene.serve("h1")
    directory = scene.directory()
    client = AgentClient(directory.contacts()["h1"], "job")
    monkeypatch.setattr(host, "is_being_deleted", lambda address, job: (address, job) == (scene.address, "job"))
    client.delete()
    assert not (served.folder / ".lockstep" / "jobs" / "job").exists() and client.about()["jobs"] == []
    directory.end()
    client.close()


def test_the_lease_of_a_coordinator_that_was_killed_is_given_back_by_its_host(scene: Scene) -> None:
    served = scene.serve("h1")
    directory = scene.directory()
    until(lambda: len(candidates(served)) == 1)
    identity = candidates(served)[0][2]
    assert identity.startswith("h1.") and scene.store.acquire(LEASE, identity, 1000.0)
    process = served.agent._candidates["job"]._process
    assert process is not None
    process.kill()
    until(lambda: scene.store.holder(LEASE) is None)
    until(lambda: len(candidates(served)) == 2)
    directory.end()


def test_a_run_that_no_host_can_take_says_why(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_directory, "FIRST_S_MAX", 0.5)
    monkeypatch.setattr(host_directory, "environment_hash", lambda: "another")
    scene.serve("h1")
    with pytest.raises(RunError, match="h1: its Python, Spark or packages differ"):
        scene.directory()
