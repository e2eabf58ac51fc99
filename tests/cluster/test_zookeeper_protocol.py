"""The store in ZooKeeper keeps the protocol: the very tests that the embedded store passes, and the same answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from lockstep.clock import US_PER_S, wall_us
from lockstep.config import Settings
from lockstep.errors import ServiceError, StoreError
from lockstep.runtime.desired_run import DesiredRun, note_desired
from lockstep.serve.desk import Desk
from lockstep.serve.service import Service
from lockstep.sim.memory_store import MemoryStore
from lockstep.store.home import job_folder, list_job_folders
from lockstep.store.opening import (
    address_in,
    announced_hosts,
    begin_deleting,
    delete_shared,
    hosts_to_ask,
    is_being_deleted,
    list_jobs,
    members_at,
    open_hosts,
    open_store,
)
from lockstep.store.protocols import Entry, Hosts, Item, Progress, Store
from lockstep.store.zookeeper.address import parsed
from lockstep.store.zookeeper.client import REQUEST_BYTES_MAX, Call
from lockstep.store.zookeeper.deleting import _levels
from tests.unit.agent.test_host import TOKEN, Served, until
from tests.unit.store.same_answers import HandClock, assert_same_answers
from tests.unit.store.test_store_hosts import *  # noqa: F403
from tests.unit.store.test_store_ledger import *  # noqa: F403
from tests.unit.store.test_store_parts import *  # noqa: F403


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def opening(store_address: str, clock: HandClock) -> Callable[[], Store]:
    return lambda: open_store(store_address, "job", clock)


@pytest.fixture
def store(opening: Callable[[], Store]) -> Iterator[Store]:
    opened = opening()
    yield opened
    opened.close()


@pytest.fixture
def hosts(store_address: str) -> Iterator[Hosts]:
    opened = open_hosts(store_address)
    yield opened
    opened.close()


@pytest.mark.parametrize("seed", range(100, 103))
def test_memory_sqlite_and_zookeeper_agree(tmp_path: Path, store: Store, clock: HandClock, seed: int) -> None:
    embedded = open_store(address_in(tmp_path), "job", clock)
    try:
        three = {"memory": MemoryStore(clock), "sqlite": embedded, "zookeeper": store}
        assert assert_same_answers(three, clock, seed, 250) > 400
    finally:
        embedded.close()


def test_jobs_are_listed_once_they_have_a_store(store_address: str, store: Store) -> None:
    assert list_jobs(store_address) == []
    store.head()
    assert list_jobs(store_address) == ["job"]


def test_each_member_says_what_it_is_and_one_that_is_gone_that_it_does_not_serve(store_address: str) -> None:
    found = members_at(store_address)
    assert sorted(one.mode for one in found) == ["follower", "follower", "leader"]
    assert all(one.version and one.took_ms and not one.trouble for one in found)
    (gone,) = members_at("zookeeper://127.0.0.1:1/lockstep")
    assert not gone.mode and "refused" in gone.trouble


def _with_history(store_address: str) -> None:
    store = open_store(store_address, "job")
    holder = store.begin("r0", pid=1)
    for epoch in range(700):
        store.seal(Entry(epoch, epoch, {"in": {"0": epoch}}), holder, [Item("in", epoch, {"path": str(epoch)})])
    store.add_event("kind", "text")
    store.report(Progress("r0", holder.incarnation, 1, "stopped", 699, updated_us=1))
    store.put_fact_if_absent("fact", "value")
    store.close()


def _nodes(store_address: str) -> list[list[str]]:
    where = parsed(store_address)
    return _levels(where, f"{where.root}/jobs")


def test_a_deleted_job_leaves_nothing_and_can_begin_anew(store_address: str) -> None:
    _with_history(store_address)
    other = open_store(store_address, "other")
    other.set_fact("fact", "kept")
    begin_deleting(store_address, "job", [])
    delete_shared(store_address, "job")
    assert list_jobs(store_address) == ["other"] and other.fact("fact") == "kept"
    assert not any("/jobs/job" in path for level in _nodes(store_address) for path in level)
    delete_shared(store_address, "job")
    anew = open_store(store_address, "job")
    assert anew.head() is None and anew.fact("fact") is None and anew.begin("r0", pid=1).incarnation == 1
    anew.close()
    other.close()


def test_deleting_that_was_cut_off_is_refused_to_all_others_and_repeated(
    store_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_history(store_address)
    begin_deleting(store_address, "job", ["h2", "h1"])
    assert hosts_to_ask(store_address, "job") == ["h1", "h2"]
    assert is_being_deleted(store_address, "job") and list_jobs(store_address) == ["job"]
    with pytest.raises(StoreError, match="LS0427"):
        open_store(store_address, "job").head()
    forget, left, nodes = Call.forget, [0], [sum(map(len, _nodes(store_address)))]

    def cut_off(call: Call, paths: Sequence[str]) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise StoreError("LS0421", "cut off")
        forget(call, paths)

    monkeypatch.setattr(Call, "forget", cut_off)
    for allowed in (1, 1, 2, 1, 1):
        left[0] = allowed
        with pytest.raises(StoreError, match="cut off"):
            delete_shared(store_address, "job")
        assert is_being_deleted(store_address, "job") or list_jobs(store_address) == []
        nodes.append(sum(map(len, _nodes(store_address))))
    assert sorted(nodes, reverse=True) == nodes and len(set(nodes)) > 2, "it was cut off half-way more than once"
    monkeypatch.undo()
    delete_shared(store_address, "job")
    assert list_jobs(store_address) == [] and not any(_nodes(store_address))


def test_a_stopped_job_is_deleted_on_its_hosts_too_and_one_that_does_not_answer_is_in_the_way(
    store_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "lockstep.toml").write_text(f'store = "{store_address}"\n')
    store = open_store(store_address, "job")
    settings = Settings().model_dump(mode="json")
    note_desired(store, DesiredRun("job", "code/ab/job.py:job", "hash", store_address, settings))
    holder = store.begin("r0", pid=1)
    store.report(Progress("r0", holder.incarnation, 1, "stopped", 3, updated_us=1, host="h1"))
    store.close()
    desk = Desk(Service(tmp_path / "here"))
    with pytest.raises(ServiceError, match="is running, so it cannot be deleted"):
        desk.delete("job")
    desk.stop("job")
    with pytest.raises(ServiceError, match="h1 has a folder of it and does not answer"):
        desk.delete("job")
    there = Served("h1", tmp_path / "h1", store_address)
    try:
        until(lambda: "h1" in announced_hosts(store_address))
        job_folder(tmp_path / "h1" / ".lockstep", "job").mkdir(parents=True)
        desk.delete("job")
    finally:
        there.end()
    assert list_jobs(store_address) == [] and list_job_folders(tmp_path / "h1" / ".lockstep") == []
    with pytest.raises(ServiceError, match="LS0760"):
        desk.delete("job")
    desk.close()


def test_a_deletion_that_is_repeated_still_asks_every_host_that_had_something(
    store_address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    (tmp_path / "lockstep.toml").write_text(f'store = "{store_address}"\n')
    for job in ("job", "other"):
        open_store(store_address, job).set_fact("fact", "value")
    begin_deleting(store_address, "job", ["h1"])
    service = Service(tmp_path)
    assert service.jobs() == ["job", "other"] and service.living_jobs() == ["other"]
    desk = Desk(service)
    with pytest.raises(ServiceError, match="h1 has a folder of it and does not answer"):
        desk.delete("job")
    desk.delete("job", force=True)
    assert list_jobs(store_address) == ["other"]
    desk.close()


def test_an_epoch_that_is_too_large_is_refused_before_it_is_sent(store: Store) -> None:
    holder = store.begin("r0", pid=1)
    items = [Item("files", position, {"path": f"{position}" * 50}) for position in range(6_000)]
    entry = Entry(0, 0, {"in": {"0": 1}})
    with pytest.raises(StoreError, match="LS0422") as raised:
        store.seal(entry, holder, items)
    assert f"{REQUEST_BYTES_MAX:,}" in str(raised.value)
    assert store.head() is None
    large = Entry(0, 0, {"in": {f"{partition}": partition for partition in range(60_000)}})
    assert store.seal(large, holder).cut == large.cut, "packed, it fits"


def test_what_a_host_says_whose_clock_is_minutes_off_is_as_old_as_it_is(store_address: str) -> None:
    store = open_store(store_address, "job")
    for minutes in (-5, 5):
        theirs_us = wall_us() + minutes * 60 * US_PER_S
        holder = store.begin("r0", pid=1)
        said = Progress("r0", holder.incarnation, 1, "running", 7, updated_us=theirs_us, moved_us=theirs_us - US_PER_S)
        store.report(said)
        (found,) = store.progress()
        assert abs(found.updated_us - wall_us()) < 3 * US_PER_S
        assert found.updated_us - found.moved_us == US_PER_S
    store.close()
