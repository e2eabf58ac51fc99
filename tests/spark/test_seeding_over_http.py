"""A stateful job's snapshot goes over HTTP to a replica that goes on from it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import lockstep as ls
from lockstep import F
from lockstep.runtime.spec import ReplicaSpec
from lockstep.runtime.transfer import snapshots
from lockstep.runtime.transfer.offers import Offers, PeersOfStore
from lockstep.testing import trial as trials
from tests.spark.conftest import NewTrial
from tests.unit.transfer.hosts_for_transfer import TOKEN, serving


def test_a_replica_goes_on_from_a_snapshot_that_came_over_http(
    trial: NewTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ls.Job("totals")
    job.source("logins", ls.journal("logins", schema="k bigint, n bigint")).key_by("k").agg(total=F.sum("n")).to(
        ls.files("out/totals")
    )
    ran = trial(job)
    first = ran.start("r0")
    for number in range(2):
        ran.epoch(logins=[{"k": k, "n": number + k} for k in range(3)])
    home = Path(first.spec.home)
    monkeypatch.setenv("LOCKSTEP_TOKEN", TOKEN)
    with Offers(tmp_path / "offers", PeersOfStore(home, lambda _: ran.store)) as offers, serving(offers) as server:
        monkeypatch.setattr(trials, "ReplicaSpec", partial(ReplicaSpec, host="h2"))
        monkeypatch.setattr(snapshots, "address_of", lambda store, host: server.address)
        ran.store.trim(2)
        ran.start("r1")
        assert server.network.ranges, "files came over HTTP"
    assert [text for _, _, kind, _, text in ran.store.events() if kind == "seeded"] == ["from r0 at epoch 1"]
    epoch = ran.epoch(logins=[{"k": k, "n": 10} for k in range(3)])
    digests = ran.digests(epoch)
    (sink,) = ran.graph.sinks
    assert digests["r0", sink.id] == digests["r1", sink.id]
