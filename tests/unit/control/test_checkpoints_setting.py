"""Where a job's checkpoints are is settled by its first start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.control.start.checkpoints import settle_checkpoints
from lockstep.errors import ServiceError
from lockstep.store.protocols import Entry, Store
from lockstep.store.sqlite_store import open_store

WANTED = "hdfs://n1:8020/lockstep"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path, "job")


def seal(store: Store) -> None:
    holder = store.begin("r0", 1)
    store.seal(Entry(epoch=0, cut={}, epoch_time_us=0, marks={}, sealed_by=str(holder)), holder)


def test_the_address_has_a_name_of_its_own_and_stays(store: Store) -> None:
    address = settle_checkpoints(store, "job", WANTED)
    assert address.startswith(f"{WANTED}/job.")
    seal(store)
    assert settle_checkpoints(store, "job", f"{WANTED}/") == address


@pytest.mark.parametrize(("first", "then"), [(WANTED, ""), ("", WANTED), (WANTED, "s3a://bucket/lockstep")])
def test_another_one_is_refused_once_an_epoch_is_sealed(store: Store, first: str, then: str) -> None:
    settle_checkpoints(store, "job", first)
    settle_checkpoints(store, "job", then)
    settle_checkpoints(store, "job", first)
    seal(store)
    with pytest.raises(ServiceError) as caught:
        settle_checkpoints(store, "job", then)
    assert caught.value.code == "LS0700"
    assert (first or "folders of its hosts") in caught.value.fact


@pytest.mark.parametrize(
    "wanted", ["lockstep", "hdfs:///x", "webhdfs://n1:9870/x", "s3://bucket/x", "s3a://bucket", "hdfs://n1:1/my jobs"]
)
def test_what_is_no_address_for_both_clients_is_refused(store: Store, wanted: str) -> None:
    with pytest.raises(ServiceError) as caught:
        settle_checkpoints(store, "job", wanted)
    assert caught.value.code == "LS0701"
