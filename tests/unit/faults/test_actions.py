"""The actions that work through orders, files and namespaces, on a job that is made of paper."""

from __future__ import annotations

import inspect
import json
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, cast

import psutil
import pytest

from lockstep.chaos.actions import files, network, store, windows
from lockstep.chaos.vocabulary import Action, Member, Need, RunningJob
from lockstep.clock import wall_us
from lockstep.faults.orders import Orders, StoreOrder, Window, WindowOrder
from lockstep.faults.switch import command_prefix, switch
from lockstep.store.protocols import Digest, Entry, Store
from lockstep.store.sqlite_store import open_store
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

ALL: tuple[Action, ...] = (*files.ACTIONS, *network.ACTIONS, *store.ACTIONS, *windows.ACTIONS)


@dataclass
class PaperField:
    """Two healthy replicas; nobody is really killed."""

    project: Path
    job: str = "paper"
    killed: list[int] = field(default_factory=list)

    @property
    def store_folder(self) -> Path:
        return self.project / ".lockstep"

    @property
    def orders(self) -> Path:
        return self.project / "faults"

    @property
    def store(self) -> Store:
        return open_store(self.store_folder, self.job)

    def members(self) -> list[Member]:
        folder = self.store_folder / "replicas"
        return [
            Member(name, 1, pid, "running", 9, folder / name, healthy=True) for name, pid in (("r0", 101), ("r1", 102))
        ]

    spare_replicas = members

    def has(self, need: Need) -> bool:
        return need is not Need.NAMESPACE


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PaperField:
    made = PaperField(tmp_path)
    for module in (files, network, windows):
        monkeypatch.setattr(module, "kill_tree", made.killed.append)
    monkeypatch.setattr(files, "_watched", lambda pid: lambda: True)
    for member in made.members():
        write_checkpoint(member.folder / "checkpoint", 9, base=6)
    made.orders.mkdir()
    return made


def begin(action: Action, paper: PaperField, seed: int = 1) -> Any:
    return action.begin(cast("RunningJob", paper), Random(seed))


@pytest.mark.parametrize("action", windows.ACTIONS, ids=lambda action: action.name)
def test_a_crash_window_is_ordered_for_one_replica_and_can_be_taken_back(action: Action, paper: PaperField) -> None:
    deed = begin(action, paper)
    orders = Orders(paper.orders)
    (order,) = orders.pending()
    assert isinstance(order, WindowOrder)
    assert order.replica == deed.replica
    assert order.window.value.endswith(action.name.removeprefix("crash-").removeprefix("stop-in-"))
    assert not deed.happened()
    orders.note_obeyed(order.name, order.window, order.replica, 12)
    assert deed.happened()
    deed.undo()
    assert orders.pending() == []


def test_every_window_has_an_action() -> None:
    names = {f"crash-{window.value}" for window in Window}
    assert {action.name for action in windows.ACTIONS} == {*names, "stop-in-transaction"}


def test_a_replica_that_is_still_stopped_when_the_action_ends_is_let_go_on(paper: PaperField) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    deed = begin(windows.StopInTransaction(), paper)
    orders = Orders(paper.orders)
    (order,) = orders.pending()
    obeyed = {"name": order.name, "window": "inside-transaction", "replica": "r0", "epoch": 1, "at_us": 1}
    (paper.orders / "obeyed" / f"{order.name}.json").write_text(json.dumps({**obeyed, "pid": child.pid}))
    child.send_signal(signal.SIGSTOP)
    while psutil.Process(child.pid).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert deed.happened() and not deed.ended()
    deed.undo()
    assert deed.ended()
    child.communicate()
    assert child.returncode == 0


def test_a_crash_between_two_sinks_needs_two_sinks(paper: PaperField) -> None:
    opened = paper.store
    holder = opened.begin("r0", 1)
    for epoch in range(2):
        opened.seal(Entry(epoch, 1000 + epoch, {"in": {"0": epoch}}), holder)
    action = windows.BetweenTwoSinks()
    opened.add_digests([Digest(0, "out", "r0", 1, "d", 1, "v")])
    assert action.missing(cast("RunningJob", paper)) == "the job has one sink"
    opened.add_digests([Digest(0, "alerts", "r0", 1, "d", 1, "v")])
    assert action.missing(cast("RunningJob", paper)) is None
    opened.close()


@pytest.mark.parametrize("action", [store.DelayStore(), store.FailStore(), store.FillStore()], ids=lambda a: a.name)
def test_trouble_with_the_store_ends_by_itself_and_when_it_is_undone(action: Action, paper: PaperField) -> None:
    before_us = wall_us()
    deed = begin(action, paper)
    orders = Orders(paper.orders)
    (order,) = orders.pending()
    assert isinstance(order, StoreOrder)
    assert before_us < order.until_us <= wall_us() + action.lasts_s_max * 1_000_000
    assert 0 < deed.lasts_s <= action.lasts_s_max
    deed.undo()
    assert orders.pending() == []


def test_a_full_disk_fails_every_operation_that_writes_and_no_other() -> None:
    names = {name for base in Store.__mro__ for name in vars(base) if not name.startswith("_")}
    reads = {
        "head", "entry", "entries", "wait", "items", "last_item", "item_bodies", "floor", "holder", "wait_until_free",
        "is_live", "progress", "digests", "digest_mismatches", "published", "divergences", "observed", "events",
        "newest_event", "latency_ms", "fact", "close",
    }  # fmt: skip
    assert set(store.WRITES) == names - reads, "a new operation either writes or reads: say which, here or there"


def test_the_write_lock_is_really_held_and_really_given_back(paper: PaperField) -> None:
    opened = paper.store
    holder = opened.begin("r0", 1)
    deed = begin(store.LockStore(), paper)
    path = paper.store_folder / "jobs" / "paper" / "ledger.db"
    other = sqlite3.connect(path, timeout=0.05, isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    assert opened.is_live(holder), "whoever reads does not wait"
    deed.undo()
    other.execute("BEGIN IMMEDIATE")
    other.close()
    opened.close()


@pytest.mark.parametrize("seed", range(8))
def test_a_checkpoint_is_damaged_while_its_replica_is_dead_or_is_killed_later(paper: PaperField, seed: int) -> None:
    deed = begin(files.DeleteLastCommit(), paper, seed)
    (victim,) = [one for one in paper.members() if one.name == deed.replica]
    assert not (victim.folder / "checkpoint" / "commits" / "9").exists()
    assert deed.data["files"] == ["checkpoint/commits/9"]
    if deed.data["running"]:
        assert paper.killed == []
        deed.undo()
    assert paper.killed == [victim.pid]


def test_no_disk_but_a_small_one_of_its_own_is_filled(paper: PaperField) -> None:
    assert "TMPDIR" in (files.FillDisk().missing(cast("RunningJob", paper)) or "")


def test_an_isolated_replica_starts_in_its_namespace_from_then_on(
    paper: PaperField, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(switch, "folder", paper.orders)
    monkeypatch.setattr(network, "namespace", lambda pid: 4711)
    first = begin(network.IsolateReplica(), paper, 1)
    assert command_prefix(first.replica) == network.LAUNCHER
    assert not first.happened()
    monkeypatch.setattr(network, "namespace", lambda pid: 1 if pid in (101, 102) else 4711)
    assert first.happened()
    assert network.IsolateReplica().missing(cast("RunningJob", paper)) == "every replica is in a namespace of its own"


def test_actions_have_names_of_their_own_and_say_what_they_do() -> None:
    names = [action.name for action in ALL]
    assert len(set(names)) == len(names)
    for action in ALL:
        assert inspect.getdoc(type(action)) and not action.title.endswith(".")
