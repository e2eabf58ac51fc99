"""The parts of the store in ZooKeeper that need no server: the queue beside the epochs, addresses, a missing client."""

from __future__ import annotations

import sys
import threading
import time
from functools import partial
from itertools import accumulate

import pytest
from kazoo.retry import ForceRetryError

from lockstep.errors import StoreError
from lockstep.store.opening import list_jobs, open_store
from lockstep.store.patience import patience
from lockstep.store.zookeeper import outbox
from lockstep.store.zookeeper.address import parsed
from lockstep.store.zookeeper.client import connection_retry
from lockstep.store.zookeeper.outbox import Outbox


class Away:
    """A service that does not answer until it is let."""

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = threading.Event()
        self.written: list[str] = []

    def write(self, word: str) -> None:
        self.asked.set()
        if not self.answers.is_set():
            raise StoreError("LS0421", "no answer")
        self.written.append(word)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Away:
    monkeypatch.setattr(outbox, "IDLE_S", 0.01)
    return Away()


def test_what_waits_is_written_in_order_once_the_service_is_back(away: Away) -> None:
    box = Outbox(lambda: None)
    for word in ("a", "b", "c"):
        box.put("event", lambda word=word: away.write(word))  # type: ignore[misc]
    assert away.asked.wait(10)
    with patience(0.05):
        box.wait("event")
    assert away.written == []
    away.answers.set()
    box.wait("event")
    assert away.written == ["a", "b", "c"]
    box.end()


def test_a_newer_word_takes_the_place_of_the_older_one(away: Away) -> None:
    box = Outbox(lambda: None)
    box.put("event", lambda: away.write("first"))
    for number in range(5):
        box.put("progress", lambda number=number: away.write(f"r0 {number}"), "r0")  # type: ignore[misc]
    away.answers.set()
    box.wait()
    assert away.written == ["first", "r0 4"]
    box.end()


def test_the_oldest_is_dropped_and_counted_when_too_many_wait(away: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "QUEUE_MAX", 3)
    box = Outbox(lambda: None)
    box.put("event", lambda: away.write("under way"))
    assert away.asked.wait(10)
    for number in range(10):
        box.put("event", lambda number=number: away.write(str(number)))  # type: ignore[misc]
    away.answers.set()
    box.wait()
    assert away.written[-3:] == ["7", "8", "9"]
    assert len(away.written) + box.dropped == 11
    assert box.dropped >= 7
    box.end()


def test_waiting_for_one_kind_does_not_wait_for_another(away: Away) -> None:
    box = Outbox(lambda: None)
    box.put("event", lambda: away.write("late"))
    with patience(60):
        box.wait("digests")
    assert away.written == []
    with patience(0.05):
        box.end()


def test_what_somebody_waits_for_is_written_before_what_nobody_does() -> None:
    box, written = Outbox(lambda: None), list[str]()
    begun, goes_on = threading.Event(), threading.Event()

    def slow() -> None:
        begun.set()
        assert goes_on.wait(10)
        written.append("under way")

    box.put("event", slow)
    assert begun.wait(10)
    for kind in ("digests", "published", "progress", "digests", "progress"):
        box.put(kind, partial(written.append, kind))
    waiting = threading.Thread(target=box.wait, args=("progress",))
    waiting.start()
    while not box._awaited:
        time.sleep(0.001)
    goes_on.set()
    waiting.join(10)
    assert written[:3] == ["under way", "progress", "progress"]
    box.wait()
    assert written[3:] == ["digests", "published", "digests"]
    box.end()


@pytest.mark.parametrize("address", ["zookeeper://", "zookeeper://a:x/b", "zookeeper://a//b", "zookeeper://a/../b"])
def test_what_is_no_address_of_an_ensemble_is_refused(address: str) -> None:
    with pytest.raises(StoreError, match="LS0420"):
        parsed(address)


def test_a_missing_client_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kazoo", None)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(StoreError, match=r"lockstep\[zookeeper\]"):
        list_jobs("zookeeper://127.0.0.1:1/lockstep")
    with pytest.raises(StoreError, match="LS0423"):
        open_store("zookeeper://127.0.0.1:1/lockstep", "job").head()


def test_nobody_there_ends_within_the_callers_patience() -> None:
    store = open_store("zookeeper://127.0.0.1:1/lockstep", "job")
    with patience(0.3), pytest.raises(StoreError, match="LS0421"):
        store.head()
    store.close()


def test_members_are_asked_again_soon_at_first_and_seldom_in_the_end() -> None:
    """A pause of so long is noticed to be over within 30 ms and a tenth of it; members that stay away have peace."""
    asking, waits_s = connection_retry(), list[float]()
    asking.sleep_func = waits_s.append

    def nobody_serves() -> None:
        if sum(waits_s) < 30.0:
            raise ForceRetryError

    asking(nobody_serves)
    passed_s = list(accumulate(waits_s))
    assert all(wait_s < 0.03 + 0.1 * at_s for wait_s, at_s in zip(waits_s, passed_s, strict=True))
    assert len([at_s for at_s in passed_s if 20.0 <= at_s < 30.0]) < 150
