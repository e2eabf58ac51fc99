"""The reader and the feeder, on a real sink and a real journal but without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lockstep.api.loading import load_job
from lockstep.bench.demo.events import SCHEMA, closing_event, events
from lockstep.bench.demo.feeder import feed
from lockstep.bench.demo.feeding import JOURNAL, Feeder
from lockstep.bench.demo.running import JOB, JOB_FILE, SINK
from lockstep.bench.demo.watching import Watcher
from lockstep.bench.stopping import Stop
from lockstep.connect.protocols import Output, Place, Publication
from lockstep.connect.registry import sink_side
from lockstep.connect.specs import files
from lockstep.errors import RunError
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.protocols import Holder

DEADLINE_S = 20.0


def test_the_job_reads_what_the_feeder_sends_and_writes_where_the_reader_looks() -> None:
    graph = load_job(str(JOB_FILE)).job.graph()
    (source,), (sink,) = graph.sources, graph.sinks
    assert graph.name == JOB
    assert source.spec.to_json()["name"] == JOURNAL
    assert source.spec.schema == parse_schema(SCHEMA)
    assert sink.spec.to_json()["path"] == SINK
    assert graph.python_steps == ()


def test_the_feeder_sends_exactly_the_events_of_its_seed_and_a_closing_one(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, JOURNAL, parse_schema(SCHEMA))
    stop = Stop()
    threading.Timer(0.3, stop.ask).start()
    fed = feed(journal, 5, stop)
    stored = _stored(journal)
    journal.close()
    assert fed.blocks > 0
    assert len(stored) == fed.records
    expected = [*events(5, fed.start_us, fed.blocks), closing_event(fed.start_us, fed.blocks)]
    assert stored == [event.record() for event in expected]


def test_the_feeder_process_says_what_it_sent_and_ends_with_its_input(tmp_path: Path) -> None:
    feeder = Feeder(tmp_path, 5)
    try:
        _until((tmp_path / "journals" / JOURNAL / "journal.db").exists)
        feeder.check()
        fed = feeder.finish()
        with pytest.raises(RunError, match="LS0620"):
            feeder.check()
    finally:
        feeder.kill()
    journal = open_journal(tmp_path, JOURNAL)
    assert sum(journal.ends().values()) == fed.records
    journal.close()


def test_the_reader_sees_each_epoch_once_in_order_with_the_age_of_its_oldest_record(tmp_path: Path) -> None:
    schema = pa.schema([("customer", pa.int32())])
    watcher = Watcher(tmp_path / SINK)
    watcher.start()
    side = sink_side(files(SINK), "files", Place(tmp_path, tmp_path / ".lockstep", JOB))
    side.open(schema)
    holder = Holder("r0", 1)
    for epoch in range(3):
        table = pa.table({"customer": pa.array(range(epoch), pa.int32())})
        oldest_us = None if epoch == 1 else 1_000_000
        wanted = Publication(epoch, f"d{epoch}", epoch, str(holder), "v", ingested_oldest_us=oldest_us)
        side.publish(wanted, Output(schema, table), holder)
    _until(lambda: len(watcher.seen_epochs()) == 3)
    watcher.stop()
    side.close()
    seen = watcher.seen_epochs()
    assert [(one.epoch, one.rows, one.by) for one in seen] == [(0, 0, "r0.1"), (1, 1, "r0.1"), (2, 2, "r0.1")]
    assert [one.age_us for one in seen] == [seen[0].seen_us - 1_000_000, None, seen[2].seen_us - 1_000_000]


def test_a_reader_that_fails_says_so_to_whoever_asks(tmp_path: Path) -> None:
    (tmp_path / SINK / "_lockstep").mkdir(parents=True)
    (tmp_path / SINK / "_lockstep" / "sink.json").write_text("not JSON")
    watcher = Watcher(tmp_path / SINK)
    watcher.start()
    _until(lambda: watcher.failure is not None)
    with pytest.raises(Exception, match=r"sink\.json"):
        watcher.seen_epochs()
    watcher.stop()


def _stored(journal: SqliteJournal) -> list[dict[str, object]]:
    return [row for batch in journal.read(0, 0, journal.ends()[0]) for row in batch.to_pylist()]


def _until(done: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + DEADLINE_S
    while not done():
        assert time.monotonic() < deadline_s, "it did not happen"
        time.sleep(0.01)
