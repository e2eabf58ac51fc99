"""A replica that joins others has its queries started before it takes its seed, and goes on from that seed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep.connect.remote.paths import AnyPath
from lockstep.plan.graph import Graph
from lockstep.runtime import booted
from lockstep.runtime.epoch import gate as gates
from lockstep.runtime.spark import warm_up
from tests.spark.conftest import NewTrial
from tests.spark.harness import ReplicaHere, Trial

SCHEMA = "k bigint, n bigint, at timestamp"
DAY = datetime(2026, 3, 1, tzinfo=UTC)


def _job() -> ls.Job:
    """Two sources, two stages, and the kind of state that Spark notes the places of."""
    job = ls.Job("waiting")
    left = job.source("left", ls.journal("left", schema=SCHEMA)).event_time("at", out_of_order="2 s", name="left_time")
    right = job.source("right", ls.journal("right", schema=SCHEMA)).event_time("at", out_of_order="2 s", name="times")
    left.join(right, how="inner", between=("-3 s", "5 s"), on="k", suffixes=("_l", "_r")).to(ls.files("out/joined"))
    left.key_by("k").fold(0, lambda total, record: total + record.n, schema="total bigint").to(ls.files("out/folded"))
    return job


def _epoch(ran: Trial, number: int) -> int:
    at = [DAY + timedelta(seconds=number * 4 + n) for n in range(6)]
    values: list[dict[str, Any]] = [{"k": n % 3, "n": number * 10 + n, "at": at[n]} for n in range(6)]
    return ran.epoch(left=values, right=values)


def _seeded(ran: Trial) -> list[str]:
    return [text for _, _, kind, _, text in ran.store.events() if kind == "seeded"]


def _agreed(ran: Trial, epoch: int) -> bool:
    digests = ran.digests(epoch)
    return all(digests["r0", sink.id] == digests["r1", sink.id] for sink in ran.graph.sinks)


@pytest.mark.long
def test_what_takes_long_is_over_before_the_seed_is_taken(trial: NewTrial, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = trial(_job())
    ran.start("r0", partitions=2, tasks=1)
    for number in range(2):
        _epoch(ran, number)
    ran.store.trim(2)  # whoever comes now has to be seeded
    at_the_gate: list[int] = []
    prepare = ReplicaHere._prepare

    def prepared(self: ReplicaHere, graph: Graph) -> tuple[AnyPath, ...]:
        at_the_gate.append(gates.missing(self.gate))
        joining = ran.replicas.pop("r1")
        _epoch(ran, 2)
        ran.replicas["r1"] = joining
        return prepare(self, graph)

    with monkeypatch.context() as patched:
        patched.setattr(ReplicaHere, "_others_publish", lambda self: True)
        patched.setattr(ReplicaHere, "_prepare", prepared)
        for module in (booted, warm_up):
            patched.setattr(module, "EPOCHS_MAX", 1)
        joined = ran.start("r1", partitions=2, tasks=1)
    assert at_the_gate == [0], "every source of every query had its process"
    assert _seeded(ran) == ["from r0 at epoch 2"], "an epoch that was computed while it waited is in its seed"
    assert _agreed(ran, _epoch(ran, 3))

    def freshly_prepared(self: ReplicaHere, graph: Graph) -> tuple[AnyPath, ...]:
        ran.replicas["r0"].reporter.report()
        return prepare(self, graph)

    joined.spec = replace(joined.spec, seed="peer")
    with monkeypatch.context() as patched:
        patched.setattr(ReplicaHere, "_prepare", freshly_prepared)
        joined.queries = joined.seed_again(joined.queries)
    assert _seeded(ran)[1:] == ["from r0 at epoch 3"]
    assert _agreed(ran, _epoch(ran, 4)), "as well from a seed that is newer"

    ran.stop()
    del ran.replicas["r0"]
    ran.start("r1", partitions=2, tasks=1)
    assert _epoch(ran, 5) == 5
    assert len(_seeded(ran)) == 2, "its checkpoint is in its own folder, where the next start finds it"
