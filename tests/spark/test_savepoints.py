"""Savepoints of real jobs: taken while they run, started from in another folder, and nothing is different."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.connect.protocols import Place as ConnectorPlace
from lockstep.connect.put_back import SOURCES, sources_text
from lockstep.control.state import savepoints
from lockstep.control.state.savepoints import Place
from lockstep.control.state.starting_from import BEGUN_FROM, begin_from
from lockstep.errors import LockstepError
from lockstep.store.opening import address_in, open_store
from lockstep.testing import Trial
from tests.spark.conftest import NewTrial

DAY = datetime(2026, 3, 1, tzinfo=UTC)
SINKS = ("windows", "rolling", "folded", "loop")


def _job(name: str) -> ls.Job:
    """Two stages with a journal between them, a loop with another, state of Spark's and of Python's, event time."""
    job = ls.Job(name)
    events = job.source("events", ls.journal("events", schema="user string, n bigint, at timestamp")).event_time("at")
    windows = events.key_by("user").window(ls.tumbling("10 seconds")).agg(n=F.count("*"), total=F.sum("n"))
    windows.to(ls.files("windows"))
    windows.key_by("user").agg(windows=F.count("*"), most=F.max("n")).to(ls.files("rolling"), name="rolling_sink")
    folded = events.key_by("user").fold(0, lambda total, record: total + record.n, schema="total bigint")
    folded.to(ls.files("folded"), name="folded_sink")
    events.select("n").iterate(_halved, rounds=6).to(ls.files("loop"), name="loop_sink")
    return job


def _halved(numbers: Stream) -> tuple[Stream, Stream]:
    following = numbers.with_columns(n=F.expr("n div 2"))
    return following.filter("n > 0"), following.filter("n = 0")


def _epochs() -> list[list[dict[str, Any]]]:
    users = ["ann", "bob", "cy"]
    return [
        [
            {"user": users[(epoch + i) % 3], "n": epoch * i + 1, "at": DAY + timedelta(seconds=epoch * 6 + i)}
            for i in range(6)
        ]
        for epoch in range(9)
    ]


def _feed(trial: Trial, epochs: list[list[dict[str, Any]]]) -> None:
    for rows in epochs:
        trial.epoch(events=rows)


def _place(trial: Trial) -> Place:
    return Place.of(trial.folder, trial.graph.name)


def _begun(folder: Path, source: Path, name: str) -> None:
    """Put a savepoint in place for a job in a new folder."""
    store = open_store(address_in(folder / ".lockstep"), name)
    place = ConnectorPlace(folder, folder / ".lockstep", name)
    begin_from(source, _job(name).graph(), store, place)
    assert store.fact(BEGUN_FROM)
    begin_from(source, _job(name).graph(), store, place)  # again: it began from this very one
    store.close()


def test_a_job_goes_on_elsewhere_from_a_savepoint_as_the_old_one_does_here(trial: NewTrial, tmp_path: Path) -> None:
    before, after = _epochs()[:5], _epochs()[5:]
    first = trial(_job("one"), "here")
    first.store.set_fact(SOURCES, sources_text((step.id, step.spec) for step in first.graph.sources))
    first.start("r0", partitions=2)
    _feed(first, before)
    kept = savepoints.take(_place(first), "middle")
    now_us = first.now_us
    there = tmp_path / "there"
    shutil.copytree(first.folder / ".lockstep" / "journals", there / ".lockstep" / "journals")
    carried = shutil.copytree(kept.folder, tmp_path / "carried")
    _feed(first, after)
    first.run(4)

    _begun(there, carried, "two")
    second = trial(_job("two"), "there")
    second.now_us = now_us
    second.start("r0", partitions=2)
    _feed(second, after[:1])
    second.replicas["r0"].reporter.report()
    second.start("r1", partitions=2)
    _feed(second, after[1:])
    second.run(4)
    head = first.store.head()
    assert head is not None and kept.savepoint.epoch == len(before) - 1
    found: dict[str, list[list[Any]]] = {sink: [] for sink in SINKS}
    expected: dict[str, list[list[Any]]] = {sink: [] for sink in SINKS}
    for sink in SINKS:
        for epoch in range(len(before), head.epoch + 1):
            found[sink].append(_sorted(second, sink, epoch))
            expected[sink].append(_sorted(first, sink, epoch))
    assert found == expected
    assert all(any(rows) for rows in expected.values()), "every sink had something to say after the savepoint"
    assert second.store.digest_mismatches() == []
    with pytest.raises(LockstepError, match="LS0729"):
        begin_from(carried, first.graph, first.store, ConnectorPlace(first.folder, first.folder / ".lockstep", "one"))


def _sorted(trial: Trial, sink: str, epoch: int) -> list[Any]:
    return sorted(trial.rows(sink, epoch), key=repr)
