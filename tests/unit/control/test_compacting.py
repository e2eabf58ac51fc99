"""The supervisor's compaction goes on, whatever one sink is like."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.config import RunSettings
from lockstep.connect.protocols import Place
from lockstep.control.supervise import compacting
from lockstep.control.supervise.compacting import Compactor
from lockstep.store.sqlite_store import open_store
from tests.unit.connect.sinks_for_connect import files_sink, publish


def test_a_torn_data_file_is_said_once_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "EPOCHS_MIN", 2)
    place = Place(tmp_path, tmp_path / ".lockstep", "job")
    side = files_sink(place)
    for epoch in range(4):
        publish(side, epoch, count=3)
    folder = tmp_path / "out"
    torn = sorted(folder.rglob("*.parquet"))[0]
    torn.write_bytes(torn.read_bytes()[:-20])
    store = open_store(place.home, "job")
    compactor = Compactor([folder], RunSettings(compact_keep_epochs=1), store)
    compactor.compact(folder)
    compactor.compact(folder)
    ((_, _, kind, _, text),) = store.events()
    assert kind == "compaction-waits" and "cannot be read" in text
    store.close()
