"""Who watches executors tells of those that are lost, and asks those that come before anything relies on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import lockstep as ls
from lockstep.errors import LockstepError, RunError
from lockstep.runtime import executor_watch
from lockstep.runtime.executor_watch import ExecutorWatch
from lockstep.runtime.spark.executors import Executor
from lockstep.runtime.spark.sharing import Answer
from lockstep.runtime.spec import ReplicaSpec

FIRST, SECOND = Executor("0", "w1"), Executor("1", "w2")


class Cluster:
    """Stands for Spark: the executors that there are, and which of them see the folders."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.executors: list[Executor] = []
        self.blind: set[str] = set()
        self.asked: list[list[str]] = []
        monkeypatch.setattr(executor_watch, "executors", lambda session: self.executors)
        monkeypatch.setattr(executor_watch, "on_each", self.on_each)

    def on_each(self, session: Any, targets: Sequence[Executor], answered: Callable[[str], Answer]) -> list[Answer]:
        del session
        self.asked.append([one.id for one in targets])
        answers = [answered(one.id) for one in targets]
        return [
            Answer(one.executor, "w", one.machine, one.executor, one.environment, (self._unseen(one),))
            if one.executor in self.blind
            else Answer(one.executor, "w", one.machine, one.executor, one.environment, ())
            for one in answers
        ]

    def _unseen(self, answer: Answer) -> tuple[str, str]:
        del answer
        return str(self.folder / "journals"), "there is no such folder"

    folder = Path()


class Watched:
    """A watch, and what it has said."""

    def __init__(self, folder: Path) -> None:
        job = ls.Job("job")
        job.source("in", ls.rate(1)).to(ls.console(), name="out", guarantee="at-least-once")
        spec = ReplicaSpec(str(folder), str(folder), "job", "job.py", "hash", "r0", "auto", {})
        session = SimpleNamespace(
            sparkContext=SimpleNamespace(master="spark://m:7077"), conf={"spark.driver.host": "d"}
        )
        self.told: list[tuple[str, str]] = []
        self.failures: list[LockstepError] = []
        self.changes = 0
        self.watch = ExecutorWatch(
            cast("SparkSession", session),
            spec,
            job.graph(),
            lambda kind, text: self.told.append((kind, text)),
            self._changed,
            self.failures.append,
        )

    def _changed(self) -> None:
        self.changes += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    made = Cluster(monkeypatch)
    made.folder = tmp_path
    return made


def test_a_lost_executor_is_told_at_once_and_once(cluster: Cluster, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    cluster.executors = [FIRST, Executor("1", "")]
    assert not watched.watch.look(), "the second is about to be able to compute"
    cluster.executors = [FIRST, SECOND]
    assert watched.watch.look()
    assert (watched.watch.counts, watched.changes) == ((2, 0), 2)
    cluster.executors = [Executor("0", "w1", "it was killed"), SECOND]
    for _ in range(2):
        assert watched.watch.look()
    assert (watched.watch.counts, watched.changes) == ((1, 1), 3)
    assert watched.told == [("executor-lost", "0 on w1, 1 left: it was killed")]


def test_one_that_comes_later_is_asked_with_the_others_and_only_then(cluster: Cluster, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    for there in ([FIRST], [FIRST], [FIRST, SECOND], [FIRST, SECOND]):
        cluster.executors = there
        watched.watch.look()
        watched.watch.ask_new()
    assert cluster.asked == [["0"], ["0", "1"]]
    assert watched.told == [("executor-came", "1 on w2")]
    assert not [*tmp_path.rglob(".lockstep-probe-*")]


def test_one_that_does_not_see_the_folders_is_refused_whenever_it_comes(cluster: Cluster, tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    cluster.executors = [FIRST]
    watched.watch.look()
    watched.watch.ask_new()
    cluster.executors, cluster.blind = [FIRST, SECOND], {"1"}
    watched.watch.look()
    with pytest.raises(RunError, match="LS0690 executor 1 on host w does not share") as caught:
        watched.watch.ask_new()
    assert "journals and dead letters" in caught.value.why
    assert not [*tmp_path.rglob(".lockstep-probe-*")]


def test_a_cluster_that_gives_no_executor_is_an_error_and_not_silence(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="LS0691 no executor came within") as caught:
        Watched(tmp_path).watch.begin(0.1, lambda: False)
    assert "at d and end again" in caught.value.why
    assert cluster.asked == []
