"""Replicas compare their state: equal however it is partitioned, and one with a wrong state is named before any output
differs, although every file of it is as it was written. Where a file is not, that is found as well."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import SparkSession

import lockstep as ls
from lockstep import F
from lockstep.control.supervise.state_comparison import disagreements
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.store.protocols import state_stage
from tests.spark.conftest import NewTrial
from tests.spark.harness import Trial
from tests.spark.state_files import OPERATORS, assert_damage_is_found, assert_notes_are_sparks

SCHEMA = "k string, n bigint, at timestamp"
DAY = datetime(2026, 3, 1, tzinfo=UTC)
EVERY = 2


class Totals(ls.Process):
    """A total for each key, and what was seen of it."""

    total = ls.value_state("bigint")
    seen = ls.map_state("bigint", "timestamp")

    def on_record(self, record: Any, ctx: Any) -> None:
        self.total.set(self.total.get(0) + record.n)
        self.seen[record.n] = record.at
        ctx.emit(k=record.k, total=self.total.get())


def _job() -> ls.Job:
    job = ls.Job("kinds")
    # Nothing closes while the test lasts: what is wrong in the state does not come out.
    left, right = (
        job.source(name, ls.journal(name, schema=SCHEMA)).event_time("at", out_of_order="1 day", name=f"{name}_time")
        for name in ("left", "right")
    )
    by_k = left.key_by("k")
    left.join(right, on="k", between=("-3 s", "5 s"), suffixes=("_l", "_r")).to(ls.files("out/joined"))
    by_k.window(ls.session("3 s")).agg(total=F.sum("n")).to(ls.files("out/sessions"))
    by_k.agg(total=F.sum("n"), mean=F.avg(F.col("n") / 3)).to(ls.files("out/rolling"))
    by_k.process(Totals(), schema="k string, total bigint").to(ls.files("out/processed"))
    return job


def _epoch(ran: Trial, number: int, quiet: int = 1) -> int:
    """Records of five keys; and in the very first epoch one of a key that is not heard of again."""
    values = [(f"k{n % 5}", number * 10 + n, DAY + timedelta(seconds=number * 4 + n)) for n in range(7)]
    values += [("quiet", quiet, DAY)] if number == 0 else []
    records = [{"k": k, "n": n, "at": at} for k, n, at in values]
    return ran.epoch(left=records, right=records)


def _states(ran: Trial, epoch: int) -> dict[str, dict[str, str]]:
    """Replica -> state -> digest."""
    found: dict[str, dict[str, str]] = {}
    for (replica, subject), digest in ran.digests(epoch).items():
        if state_stage(subject) is not None:
            found.setdefault(replica, {})[subject] = digest
    return found


def test_states_are_compared_and_a_wrong_one_is_named_before_any_output_differs(
    trial: NewTrial, session: SparkSession
) -> None:
    ran = trial(_job(), state_digest_every_epochs=EVERY)
    first = ran.start("r0", partitions=1, tasks=1)
    ran.start("r1", partitions=3, tasks=2)
    for number in range(4):
        _epoch(ran, number)
    ran.report_states()
    assert _events(ran, "state-not-compared") == []
    states = _states(ran, EVERY)
    assert {subject.split()[-1] for subject in states["r0"]} == OPERATORS
    assert states["r0"] == states["r1"], "with one partition and with three"
    assert len(set(states["r0"].values())) == len(states["r0"]), "and each is one of its own"

    checkpoints = list(checkpoint_folders(first.spec.folder, len(first.queries)))
    assert_notes_are_sparks(session, checkpoints)

    _plant_another_state(trial, ran)
    ran.start("r1", partitions=3, tasks=2)
    _epoch(ran, 4)
    ran.report_states()
    live = {name: one.holder.incarnation for name, one in ran.replicas.items()}
    found = disagreements(ran.store, live, EVERY, now_us=0)
    assert {(one.epoch, one.replica, one.published_by) for one in found} == {(3, "r1", "r0.1")}
    assert {one.sink for one in found} == states["r0"].keys(), "the state of every operator"
    assert [mismatch for mismatch in ran.store.digest_mismatches() if state_stage(mismatch[1]) is None] == []
    assert ran.store.divergences() == [] and _events(ran, "checkpoint-damaged") == _events(ran, "seeded") == []
    ran.stop()
    assert_damage_is_found(checkpoints)


def _plant_another_state(trial: NewTrial, ran: Trial) -> None:
    """Give r1 the checkpoint of the same job over other records: whole, with checksums, and wrong."""
    other = trial(_job(), "other")
    elsewhere = other.start("r1", partitions=3, tasks=2)
    for number in range(4):
        _epoch(other, number, quiet=2)
    stages = len(elsewhere.queries)
    other.stop()
    ran.replicas["r1"].stop()
    theirs, ours = (checkpoint_folders(one.spec.folder, stages) for one in (elsewhere, ran.replicas["r1"]))
    for source, target in zip(theirs, ours, strict=True):
        shutil.rmtree(target)
        shutil.copytree(source, target)


def _events(ran: Trial, kind: str) -> list[str]:
    return [text for _, _, found, _, text in ran.store.events() if found == kind]
