"""A job on hosts is kept under a name, begun anew on hosts from there, and forgotten on all of them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.store.opening import announced_hosts, list_jobs, open_store
from lockstep.store.protocols import Progress, Store
from tests.chaos.jobs import PATIENCE_S, PATIENT

HOSTS = ("h1", "h2")
JOB = """
import lockstep as ls

job = ls.Job("{name}")
numbers = job.source("numbers", ls.rate(200)).map(
    lambda r: {{"user": "acme" if r.seq % 10 < 6 else str(r.seq % 40), "n": 1}}, schema="user string, n bigint"
)
totals = numbers.key_by("user").reduce(lambda a, b: {{"user": a.user, "n": a.n + b.n}}, name="totals")
totals.to(ls.files("{out}"), name="out")
"""


@pytest.fixture
def agents(tmp_path: Path, store_address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("LOCKSTEP_TOKEN", "t" * 43)
    begun = [_agent(name, tmp_path / name, store_address) for name in HOSTS]
    try:
        until(lambda: set(announced_hosts(store_address)) == set(HOSTS), "the agents")
        yield
    finally:
        for one in begun:
            one.terminate()
        for one in begun:
            one.wait(60)


def _agent(name: str, folder: Path, store: str) -> subprocess.Popen[bytes]:
    folder.mkdir()
    words = ["agent", "--store", store, "--listen", "127.0.0.1:0", "--folder", str(folder), "--name", name]
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen([sys.executable, "-m", "lockstep", *words], stdout=log, stderr=log, cwd=folder)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.2)


def told(project: Path, *words: str) -> str:
    command = [sys.executable, "-m", "lockstep", "--project", str(project), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def running(store: Store, beyond: int) -> list[Progress]:
    return [one for one in store.progress() if one.state == "running" and one.epoch > beyond]


def test_a_savepoint_of_a_job_on_hosts_is_begun_from_on_hosts_and_the_jobs_are_forgotten_on_all(
    agents: None, tmp_path: Path, store_address: str
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    settings = "".join(f"{name} = {value}\n" for name, value in {"spares": 0, **PATIENT}.items())
    (here / "lockstep.toml").write_text(f'store = "{store_address}"\n[run]\n{settings}')
    for name in ("one", "two"):
        (here / f"{name}.py").write_text(JOB.format(name=name, out=tmp_path / f"out-{name}"))
    told(here, "run", str(here / "one.py"), "--replicas", "1", "--detach")
    one = open_store(store_address, "one")
    until(lambda: bool(running(one, 5)), "the first epochs")
    kept = json.loads(told(here, "savepoint", "one", "nightly", "--json"))
    assert Path(kept["folder"]).is_relative_to(here), "it came from a host, and is where it was asked for"
    told(here, "stop", "one")

    told(here, "run", str(here / "two.py"), "--replicas", "2", "--detach", "--from", "one/nightly")
    two = open_store(store_address, "two")
    until(lambda: len(running(two, kept["epoch"] + 3)) == 2, "both replicas of the job that was begun from it")
    assert {one.host for one in two.progress()} == set(HOSTS)
    events = [(kind, text) for _, _, kind, _, text in two.events()]
    assert any(kind == "begun-from" and f"epoch {kept['epoch']}" in text for kind, text in events)
    assert any(kind == "seeded" and text.startswith("from r0") for kind, text in events)
    assert not two.divergences() and two.entry(0) is None
    told(here, "stop", "two")
    for store in (one, two):
        store.close()

    for job in ("one", "two"):
        told(here, "delete", job)
    assert list_jobs(store_address) == []
    assert not [path for name in (*HOSTS, "here") for path in (tmp_path / name / ".lockstep" / "jobs").glob("*")]
