"""What a replica's and a spare's process make of the lines from their supervisor."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.runtime.orders import Orders
from lockstep.runtime.state.folder_lock import locked


class Ended(Exception):
    """Where a process would have ended."""


@pytest.fixture(autouse=True)
def _in_one_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The test process neither ends nor keeps the signal handlers."""

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_replica_drains_when_it_is_told_to_and_when_its_supervisor_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Orders(spare=False)
    assert not told.drain.is_set()
    told.obey("drain\n")
    assert told.drain.is_set()
    orphan = Orders(spare=False)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    orphan.run()
    assert orphan.drain.is_set()


def test_a_spare_ends_at_once_unless_it_was_told_which_replica_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("", "drain\n"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(said))
        with pytest.raises(Ended):
            Orders(spare=True).run()
    spare = Orders(spare=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("be /a/folder with space/spec.json\nbe /another\ndrain\n"))
    spare.run()
    assert spare.spec_path == Path("/a/folder with space/spec.json"), "it becomes one replica, and stays it"
    assert spare.told.is_set() and spare.drain.is_set()


def test_a_replica_waits_for_the_one_before_it_unless_it_has_to_end_itself(tmp_path: Path) -> None:
    drain = threading.Event()
    first = locked(tmp_path / "lock", drain)
    assert first is not None
    drain.set()
    assert locked(tmp_path / "lock", drain) is None, "its supervisor is gone: nobody would ever end it"
    drain.clear()
    threading.Timer(0.2, first.close).start()
    second = locked(tmp_path / "lock", drain)
    assert second is not None
    second.close()
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
