"""When a replica reports digests of its state, and that nothing of it is in the way of an epoch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.clock import wall_us
from lockstep.config import RunSettings
from lockstep.errors import StoreError
from lockstep.runtime.decide.state_digests import FIRST_EPOCH, SHARE_MAX, Joined, joined_key, stretched, wanted_epochs
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.state import state_reports
from lockstep.runtime.state.checkpoint import batch_of
from lockstep.runtime.state.state_reports import LEASE, StateReports
from lockstep.store.protocols import Entry, Holder, Progress, Store, state_stage
from lockstep.store.sqlite_store import open_store

RETAINED = 100


@given(st.integers(-1, 3000), st.integers(-1, 3000), st.lists(st.integers(-1, 3000), max_size=4), st.integers(1, 700))
def test_wanted_epochs_are_committed_and_kept_and_everybody_wants_the_same(
    since: int, committed: int, joined: list[int], every: int
) -> None:
    found = wanted_epochs(since, committed, joined, every, RETAINED)
    assert all(max(since - 1, committed - RETAINED) < epoch <= committed for epoch in found)
    assert found == sorted(set(found))
    assert all(epoch in joined or epoch % every == 0 or (epoch == FIRST_EPOCH and -1 in joined) for epoch in found)
    there = range(max(since, committed - RETAINED + 1, 0), committed + 1)
    assert {epoch for epoch in joined if epoch in there} <= set(found)


@given(st.integers(1, 1000), st.floats(0, 1000), st.floats(0.01, 60), st.floats(0, 1000))
def test_slower_replicas_leave_epochs_out_and_meet_the_faster_ones(
    every: int, took_s: float, epoch_s: float, other_s: float
) -> None:
    slow, fast = sorted((stretched(every, took_s, epoch_s), stretched(every, other_s, epoch_s)), reverse=True)
    assert slow % fast == 0 and fast % every == 0
    kept = stretched(every, took_s, epoch_s)
    assert took_s <= SHARE_MAX * kept * epoch_s or kept == every << 16


class Conf:
    def get(self, key: str) -> str:
        assert key == "spark.sql.streaming.minBatchesToRetain"
        return str(RETAINED)


class Session:
    conf = Conf()


class Ready:
    def ready(self, epoch: int, observed: Mapping[str, int | None], limit: int | None = None) -> None: ...


@dataclass
class Scene:
    """Replicas of paper at the same ledger, another that publishes, and the states that reading would give."""

    store: Store
    folder: Path
    read: list[tuple[str, int]]

    def replica(self, name: str, joined: int = -1, every: int = 10) -> Paper:
        holder = self.store.begin(name, 1)
        self.say(name, "running", holder.incarnation)
        progress = StageProgress(self.store, holder, {1: joined}, RunSettings(), Ready(), lambda: None)
        paper = Paper(self, holder, progress, self.folder / name)
        if joined >= 0:
            paper.commit(joined)
        paper.reports = StateReports(
            session=Session(),
            store=self.store,
            holder=holder,
            version="v",
            checkpoints={1: paper.folder},
            stage_progress=progress,
            every_epochs=every,
            exact_floats=True,
            is_stopping=lambda: False,
        )
        paper.reports.announce()
        return paper

    def say(self, name: str, state: str, incarnation: int = 1) -> None:
        self.store.report(Progress(name, incarnation, 1, state, updated_us=wall_us()))

    def seal(self, epoch: int) -> Entry:
        head = self.store.head()
        for number in range(head.epoch + 1 if head else 0, epoch + 1):
            self.store.seal(Entry(number, number, {}), Holder("r0", 1))
        entry = self.store.entry(epoch)
        assert entry is not None
        return entry

    def states(self, epoch: int) -> list[str]:
        return [one.replica for one in self.store.digests(epoch) if state_stage(one.sink) == 1]


@dataclass
class Paper:
    scene: Scene
    holder: Holder
    progress: StageProgress
    folder: Path
    reports: Any = None

    def compute(self, epoch: int) -> None:
        """As if it had computed everything up to an epoch."""
        for number in range(self.progress.at.epoch + 1, epoch + 1):
            entry = self.scene.seal(number)
            self.progress.begun(number)
            self.progress.done(1, entry, [])
            self.commit(number)
        self.scene.say("another", "running")

    def commit(self, epoch: int) -> None:
        """As Spark does, with batches that are not epochs; it keeps the newest hundred."""
        offsets = self.folder / "offsets"
        offsets.mkdir(parents=True, exist_ok=True)
        (offsets / str(epoch + 3)).write_text(f'v1\n{{}}\n{{"epoch": {epoch}}}')
        (offsets / str(epoch + 3 - RETAINED)).unlink(missing_ok=True)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    store = open_store(tmp_path / "store", "job")
    scene = Scene(store, tmp_path, [])
    store.begin("another", 1)
    scene.say("another", "running")

    def digest(session: object, checkpoint: Path, batch: int, *, exact_floats: bool) -> dict[str, str]:
        assert exact_floats
        scene.read.append((checkpoint.name, batch))
        return {"0 stateStoreSave": "7-abc"}

    monkeypatch.setattr(state_reports, "state_digest", digest)
    yield scene
    store.close()


def test_every_so_many_epochs_one_digest_is_reported_once(scene: Scene) -> None:
    one = scene.replica("r0")
    one.compute(10)
    assert not one.reports.look(), "Spark may not have committed the newest yet"
    one.compute(11)
    assert one.reports.look() and not one.reports.look()
    assert scene.read == [("r0", 13)], "batches are not epochs"
    (digest,) = [found for found in scene.store.digests(10) if state_stage(found.sink) is not None]
    assert (digest.rows, digest.digest, digest.version) == (7, "7-abc", "v")
    one.compute(25)
    assert one.reports.look() and not one.reports.look()
    assert [scene.states(epoch) for epoch in (10, 11, 20)] == [["r0"], [], ["r0"]]


def test_everybody_reports_the_epoch_at_which_somebody_joined(scene: Scene) -> None:
    first = scene.replica("r0")
    first.compute(7)
    second = scene.replica("r1", joined=6)
    second.compute(8)
    first.compute(8)
    assert first.reports.look() and second.reports.look()
    assert scene.states(6) == ["r0", "r1"]
    assert not first.reports.look() and not second.reports.look()


def test_an_epoch_that_waits_comes_first_until_the_state_is_about_to_go(scene: Scene) -> None:
    one = scene.replica("r0")
    one.compute(11)
    scene.seal(12)
    assert not one.reports.look(), "the next epoch is sealed"
    one.progress.begun(12)
    one.compute(12)
    one.progress.begun(13)
    assert not one.reports.look(), "an epoch is under way"
    lagging = scene.replica("r1", every=200)
    lagging.compute(200 + RETAINED // 2)
    scene.seal(400)
    assert not lagging.reports.look()
    lagging.compute(201 + RETAINED // 2)
    assert lagging.reports.look(), "Spark will have removed it soon"


@pytest.mark.parametrize("state", ["catching-up", "starting", "failed"])
def test_nobody_reads_its_state_while_no_other_would_publish_the_next_epoch(scene: Scene, state: str) -> None:
    one = scene.replica("r0")
    one.compute(201 + RETAINED // 2)
    scene.say("another", state)
    assert not one.reports.look(), "a reader of the sink would notice"
    scene.say("another", "running")
    assert one.reports.look()


def test_replicas_take_turns(scene: Scene) -> None:
    one = scene.replica("r0")
    one.compute(11)
    assert scene.store.acquire(LEASE, "r1.1", 60)
    assert not one.reports.look()
    scene.store.release(LEASE, "r1.1")
    assert one.reports.look()
    assert scene.store.holder(LEASE) is None, "and gives it back"


def test_a_state_that_spark_has_removed_is_said_so_once_and_costs_nothing_else(scene: Scene) -> None:
    one = scene.replica("r0")
    one.compute(11)
    (one.folder / "offsets" / "13").unlink()
    assert one.reports.look() and not one.reports.look()
    one.compute(21)
    (one.folder / "offsets" / "23").write_text("v1\n{}\n")
    assert one.reports.look() and not one.reports.look()
    texts = [text for _, _, kind, _, text in scene.store.events() if kind == "state-not-compared"]
    assert len(texts) == 2 and texts[0] == "stage 1, epoch 10: ValueError: Spark does not keep it any more"
    assert scene.states(10) == scene.states(20) == []


def test_a_digest_that_the_store_refuses_is_reported_later(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    one = scene.replica("r0")
    one.compute(11)

    def refuse(digests: object) -> None:
        raise StoreError("LS0404", "locked")

    with monkeypatch.context() as broken:
        broken.setattr(scene.store, "add_digests", refuse)
        with pytest.raises(StoreError):
            one.reports.look()
    assert one.reports.look() and scene.states(10) == ["r0"]


def test_reports_of_a_seed_that_was_replaced_end_though_the_replica_goes_on(scene: Scene) -> None:
    one = scene.replica("r0")
    one.reports.start()
    one.reports.stop()
    one.reports.join()


def test_a_replica_that_began_with_nothing_has_no_state_to_report_at_its_beginning(scene: Scene) -> None:
    one = scene.replica("r0")
    assert Joined.from_text(scene.store.fact(joined_key("r0"))) == Joined(1, {1: -1})
    one.compute(5)
    assert not one.reports.look()


def test_the_newest_batch_of_an_epoch_is_found(tmp_path: Path) -> None:
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for batch, epoch in ((3, 7), (4, 8), (5, 8), (6, 9)):
        (offsets / str(batch)).write_text(f'v1\n{{}}\n{{"epoch": {epoch}}}')
    assert [batch_of(tmp_path, epoch) for epoch in (6, 7, 8, 9, 10)] == [None, 3, 5, 6, None]
