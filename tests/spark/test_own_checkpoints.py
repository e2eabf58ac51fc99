"""Every kind of state that a job can have: a replica goes on from its own checkpoint, and a peer is seeded from it.

For ``make test-long``. ``make test`` has one of each kind: restart, seed and forgotten history in ``test_matrix.py``,
what is read from Spark's files and damage to them in ``test_state_digests.py``.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lockstep as ls
from lockstep import F
from lockstep.runtime.state.digests import state_digest
from lockstep.runtime.state.folders import checkpoint_folders
from tests.spark.conftest import NewTrial
from tests.spark.harness import ReplicaHere, Trial
from tests.spark.state_files import assert_damage_is_found, assert_notes_are_sparks

SCHEMA = "k bigint, n bigint, at timestamp"
DAY = datetime(2026, 3, 1, tzinfo=UTC)
LATE = (timedelta(0), timedelta(seconds=1))
PARTITIONS = 2


def _everything() -> ls.Job:
    """One job with all of them: a start costs seconds, whatever is in it."""
    job = ls.Job("everything")
    left = job.source("left", ls.journal("left", schema=SCHEMA)).event_time("at", out_of_order="2 s", name="left_time")
    right = job.source("right", ls.journal("right", schema=SCHEMA)).event_time("at", out_of_order="2 s", name="times")
    joined: dict[str, Any] = {"on": "k", "suffixes": ("_l", "_r")}
    by_k = left.key_by("k")
    streams: dict[str, Callable[[], ls.Stream]] = {
        "inner": lambda: left.join(right, how="inner", between=("-3 s", "5 s"), **joined),
        "full": lambda: left.join(right, how="full", between=("-3 s", "5 s"), **joined),
        "same_window": lambda: left.join(right, how="left", window=ls.tumbling("10 s"), **joined),
        "tumbling": lambda: by_k.window(ls.tumbling("10 s")).agg(total=F.sum("n")),
        "sliding": lambda: by_k.window(ls.sliding("10 s", every="5 s")).agg(total=F.sum("n")),
        "sessions": lambda: by_k.window(ls.session("3 s")).agg(total=F.sum("n")),
        "distinct": lambda: left.distinct("k", "n", within="1 minute"),
        "folded": lambda: by_k.fold(0, lambda total, record: total + record.n, schema="total bigint"),
        "rolling": lambda: by_k.agg(total=F.sum("n")),
    }
    for name in sorted(streams):
        streams[name]().to(ls.files(f"out/{name}"))
    return job


def _epoch(ran: Trial, number: int) -> int:
    """A few records for each side, four seconds after those of the epoch before."""
    values = [(n % 3, number * 10 + n, DAY + timedelta(seconds=number * 4 + n)) for n in range(6)]
    left, right = ([{"k": k, "n": n, "at": at + late} for k, n, at in values] for late in LATE)
    return ran.epoch(left=left, right=right)


def _checkpoints(replica: ReplicaHere) -> list[Path]:
    return list(checkpoint_folders(replica.spec.folder, len(replica.queries)))


def _events(ran: Trial, kind: str) -> list[str]:
    return [text for _, _, found, _, text in ran.store.events() if found == kind]


def _assert_agreed(ran: Trial, epoch: int) -> None:
    digests = ran.digests(epoch)
    for sink in ran.graph.sinks:
        assert digests["r0", sink.id] == digests["r1", sink.id], (epoch, sink.id)


@pytest.mark.long
def test_every_kind_of_state_survives_a_restart_a_seed_and_forgotten_history(
    trial: NewTrial, session: SparkSession
) -> None:
    ran = trial(_everything())
    first, other = ran.start("r0", partitions=PARTITIONS, tasks=1), ran.start("other", partitions=1, tasks=2)
    for number in range(2):
        _epoch(ran, number)
    folders = _checkpoints(first)
    assert_notes_are_sparks(session, folders)
    for folder, same in zip(folders, _checkpoints(other), strict=True):
        digests = state_digest(session, folder, 1)
        assert digests == state_digest(session, same, 1), "however many partitions there are"
        assert digests != state_digest(session, folder, 0) and not any(one.startswith("0-") for one in digests.values())

    ran.stop()
    del ran.replicas["other"]
    ran.store.trim(2)
    assert ran.store.floor() == 1, "there is no way back to epoch 0"
    kept = [folder.stat().st_ino for folder in folders]
    ran.start("r0", partitions=PARTITIONS, tasks=1)
    _epoch(ran, 2)
    assert [folder.stat().st_ino for folder in folders] == kept, "it goes on from the checkpoint that it has"

    ran.start("r1", partitions=PARTITIONS, tasks=1)
    assert _events(ran, "seeded") == ["from r0 at epoch 2"]
    _assert_agreed(ran, _epoch(ran, 3))

    # The copy stands by itself: the one that it was taken from is lost, and comes back from it.
    ran.stop()
    shutil.rmtree(ran.replicas.pop("r0").spec.folder)
    ran.start("r1", partitions=PARTITIONS, tasks=1)
    _epoch(ran, 4)
    ran.start("r0", partitions=PARTITIONS, tasks=1)
    assert _events(ran, "seeded")[1:] == ["from r1 at epoch 4"]
    _assert_agreed(ran, _epoch(ran, 5))
    assert _events(ran, "checkpoint-damaged") == []
    ran.stop()
    assert_damage_is_found(_checkpoints(ran.replicas["r0"]))
