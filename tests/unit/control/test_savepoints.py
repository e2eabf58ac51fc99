"""Savepoints without Spark: names, wholeness, leftovers, a full disk, pins, and what a start refuses."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import lockstep as ls
from lockstep import F, __version__
from lockstep.config import HostSettings, RunSettings
from lockstep.connect.protocols import Place as ConnectorPlace
from lockstep.connect.put_back import SOURCES, sources_text
from lockstep.control.hosts.host_directory import bring_state
from lockstep.control.start.continuing import BUCKETS, PLAN, held_buckets, settle_buckets
from lockstep.control.state import savepoints
from lockstep.control.state.savepoint_files import MANIFEST, read_savepoint, verified
from lockstep.control.state.savepoints import Place, check_takeable, delete, find, list_savepoints, take
from lockstep.control.state.starting_from import begin_from
from lockstep.control.supervise.retention import PINS, pinned_epochs, with_pins
from lockstep.errors import LockstepError, ServiceError
from lockstep.plan.graph import Graph
from lockstep.runtime.spark.environment import environment_hash
from lockstep.runtime.spec import replica_folder
from lockstep.runtime.state.checkpoint import read_fingerprint, standing, write_fingerprint
from lockstep.runtime.state.recovery import state_at
from lockstep.store.arrow import batch_from_pylist
from lockstep.store.journal import open_journal
from lockstep.store.opening import address_in, announced_hosts, open_hosts, open_store
from lockstep.store.protocols import Entry, Progress, Store
from tests.unit.agent.test_host import TOKEN, Served, until
from tests.unit.runtime.checkpoints_for_runtime import write_checkpoint

HEAD = 5


def _graph(name: str = "job", *, out: str = "out", window: str = "1 second") -> Graph:
    job = ls.Job(name)
    clicks = job.source("clicks", ls.journal("clicks", schema="user string, at timestamp")).event_time("at")
    clicks.key_by("user").window(ls.tumbling(window)).agg(n=F.count("*")).to(ls.files(out))
    return job.graph()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A stopped job: a ledger of six epochs, a journal of twelve records, and the checkpoint of one replica."""
    home = tmp_path / ".lockstep"
    store = open_store(address_in(home), "job")
    holder = store.begin("r0", 1)
    graph = _graph()
    journal = open_journal(home, "clicks", graph.sources[0].spec.schema)
    journal.append(batch_from_pylist([{"user": "ann", "at": None}] * 12, journal.schema))
    journal.close()
    for epoch in range(HEAD + 1):
        store.seal(Entry(epoch, epoch * 1000, {"clicks": {"0": 2 * epoch}}, {"event_time": None}), holder)
        store.add_observed(epoch, {"event_time": epoch})
    store.set_fact(SOURCES, sources_text((step.id, step.spec) for step in graph.sources))
    store.set_fact(PLAN, json.dumps(graph.fingerprint(), sort_keys=True))
    folder = replica_folder(home, "job", "r0") / "checkpoint"
    write_checkpoint(folder, HEAD)
    write_fingerprint(folder, graph.fingerprint(), "v1")
    store.close()
    yield Place.of(tmp_path, "job")


def _store(place: Place) -> Store:
    return open_store(place.address, place.job)


def test_a_savepoint_holds_the_newest_epoch_and_is_listed_and_deleted(place: Place) -> None:
    kept = take(place, "nightly")
    assert (kept.savepoint.epoch, kept.savepoint.head.epoch, kept.pinned) == (HEAD, HEAD, True)
    assert kept.savepoint.observed == {str(HEAD): {"event_time": HEAD}}
    assert [one.savepoint.name for one in list_savepoints(place)] == ["nightly"]
    assert verified(kept.folder) == kept.savepoint
    assert find(place.home, "nightly") == find(place.home, "job/nightly") == find(place.home, str(kept.folder))
    with pytest.raises(ServiceError, match="LS0721"):
        take(place, "nightly")
    delete(place, "nightly")
    assert list_savepoints(place) == []
    store = _store(place)
    assert pinned_epochs(store) == {}
    store.close()


def test_a_job_whose_state_is_on_other_hosts_is_not_stopped_for_a_savepoint_that_nobody_could_take(
    place: Place, tmp_path: Path
) -> None:
    store = _store(place)
    store.report(Progress("r0", 1, 1, "running", HEAD, updated_us=1, host="h2"))
    store.close()
    check_takeable(place, "last")
    shutil.move(replica_folder(place.home, "job", "r0"), tmp_path / "another-disk")
    with pytest.raises(ServiceError, match="its state is on h2"):
        check_takeable(place, "last")


@pytest.mark.parametrize("name", ["../evil", "", "a/b", ".hidden", "x" * 200])
def test_a_name_is_no_path(place: Place, name: str) -> None:
    with pytest.raises(LockstepError, match="LS0411"):
        take(place, name)
    with pytest.raises(LockstepError, match="LS0411"):
        delete(place, name)
    with pytest.raises(ServiceError, match="LS0722"):
        find(place.home, f"../../{name}")


def test_retention_stops_at_the_epoch_of_a_pinned_savepoint(place: Place) -> None:
    take(place, "pinned")
    take(place, "loose", pinned=False)
    store = _store(place)
    assert pinned_epochs(store) == {"pinned": HEAD}
    assert with_pins(HEAD + 100, pinned_epochs(store)) == HEAD
    store.close()


def test_what_a_killed_one_left_goes_with_the_next(place: Place) -> None:
    """Half-written under its first name, renamed without a pin, deleted by half: none is ever listed."""
    store = _store(place)
    for name in (".dead.new", "half-deleted"):
        (place.folder / name / "checkpoint").mkdir(parents=True)
    store.set_fact(PINS, json.dumps({"dead": {"epoch": 1, "host": _host()}, "far": {"epoch": 3, "host": "elsewhere"}}))
    assert list_savepoints(place) == []
    take(place, "whole")
    assert sorted(path.name for path in place.folder.iterdir()) == [".lock", "whole"]
    assert pinned_epochs(store) == {"far": 3, "whole": HEAD}
    store.close()


def _host() -> str:
    import socket

    return socket.gethostname()


def test_a_full_disk_is_said_and_nothing_is_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, items: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr(savepoints, "write_items", full)
    with pytest.raises(ServiceError, match="LS0724"):
        take(place, "large")
    assert [path.name for path in place.folder.iterdir()] == [".lock"]
    store = _store(place)
    assert pinned_epochs(store) == {}
    store.close()


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_damage_is_found_before_anything_starts(place: Place, damage: str) -> None:
    kept = take(place, "nightly")
    changelog = next(kept.folder.rglob("3.changelog"))
    if damage == "changed":
        changelog.write_bytes(b"other")
    elif damage == "missing":
        changelog.unlink()
    else:
        (kept.folder / "more").write_text("x")
    with pytest.raises(ServiceError, match="LS0723"):
        verified(kept.folder)


def test_a_manifest_that_is_none_is_refused(place: Place) -> None:
    kept = take(place, "nightly")
    raw = json.loads((kept.folder / MANIFEST).read_text())
    changes: list[dict[str, object]] = [{"format": 99}, {"entries": []}, {"stages": []}]
    for change in changes:
        (kept.folder / MANIFEST).write_text(json.dumps({**raw, **change}))
        with pytest.raises(ServiceError, match="LS0722"):
            read_savepoint(kept.folder)


def test_a_new_job_begins_where_the_savepoint_stands(place: Place, tmp_path: Path) -> None:
    kept = take(place, "nightly")
    store = open_store(place.address, "copy")
    graph = _graph("copy", out="other")
    begin_from(kept.folder, graph, store, ConnectorPlace(tmp_path, place.home, "copy"))
    head = store.head()
    assert head == kept.savepoint.head and store.floor() == HEAD
    assert store.observed(HEAD) == {"event_time": HEAD}
    assert held_buckets(store) == 16
    copied = replica_folder(place.home, "copy", "r0") / "checkpoint"
    assert (copied / "commits" / str(HEAD)).exists()
    store.close()


def _refused(place: Place, graph: Graph, tmp_path: Path) -> str:
    kept = take(place, "nightly")
    store = open_store(place.address, graph.name)
    try:
        begin_from(kept.folder, graph, store, ConnectorPlace(tmp_path, place.home, graph.name))
    except ServiceError as error:
        return error.code
    finally:
        store.close()
    return ""


def test_a_job_that_has_begun_cannot_go_back(place: Place, tmp_path: Path) -> None:
    assert _refused(place, _graph(), tmp_path) == "LS0729"


def test_another_plan_is_refused(place: Place, tmp_path: Path) -> None:
    assert _refused(place, _graph("copy", out="other", window="2 seconds"), tmp_path) == "LS0726"


def test_a_source_without_those_positions_is_named(place: Place, tmp_path: Path) -> None:
    shutil.rmtree(place.home / "journals")
    assert _refused(place, _graph("copy", out="other"), tmp_path) == "LS0728"


def test_the_number_of_buckets_is_chosen_once(tmp_path: Path) -> None:
    store = open_store(address_in(tmp_path), "job")
    assert held_buckets(store) is None
    assert settle_buckets(store, RunSettings(buckets=128)).buckets == 128
    assert settle_buckets(store, RunSettings()).buckets == 128
    assert [kind for _, _, kind, _, _ in store.events()] == []
    assert settle_buckets(store, RunSettings(buckets=32)).buckets == 128
    assert [(kind, text.partition(":")[0]) for _, _, kind, _, text in store.events()] == [
        ("buckets-kept", "buckets stays 128, not 32")
    ]
    store.close()


def test_a_job_of_an_older_release_keeps_sixteen_buckets(tmp_path: Path) -> None:
    store = open_store(address_in(tmp_path), "job")
    store.set_fact(PLAN, "{}")
    assert settle_buckets(store, RunSettings()).buckets == 16
    assert store.fact(BUCKETS) == "16"
    store.close()


def test_on_hosts_the_state_is_brought_to_one_that_takes_it_and_the_first_replica_starts_there(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    kept = take(place, "nightly")
    address = address_in(tmp_path / "shared")
    store = open_store(address, "job")
    hosts = open_hosts(address)
    # The first one by its name is not reached, the second one is another release.
    about = {"address": "http://127.0.0.1:1", "log": "", "instance": "i", "version": __version__}
    hosts.announce("a", {**about, "environment": environment_hash()})
    hosts.announce("b", {**about, "version": "0"})
    bring = partial(bring_state, address, HostSettings(), "job")
    elsewhere = ConnectorPlace(tmp_path, place.home, "job")
    graph = _graph(out="other")
    with pytest.raises(ServiceError, match="LS0730") as raised:
        begin_from(kept.folder, graph, store, elsewhere, bring=bring)
    assert "a: LS0681" in raised.value.why and "b: it has Lockstep 0" in raised.value.why
    assert store.head() is None
    there = Served("c", tmp_path / "c", address)
    try:
        until(lambda: "c" in announced_hosts(address))
        begin_from(kept.folder, graph, store, elsewhere, bring=bring)
    finally:
        there.end()
    assert store.fact(state_at("r0")) == "c"
    head = store.head()
    assert head is not None and head.epoch == HEAD
    folder = replica_folder(tmp_path / "c" / ".lockstep", "job", "r0") / "checkpoint"
    at = standing(folder)
    assert at is not None and at.epoch == HEAD and read_fingerprint(folder) == (graph.fingerprint(), "v1")
    assert not any((tmp_path / "c" / ".lockstep" / "jobs" / "job" / "states").iterdir())
    hosts.close()
    store.close()
