"""A job changes while it runs: whoever is killed meanwhile, each operation is done once or rolled back."""

from __future__ import annotations

import os
import signal
from itertools import pairwise
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.api.loading import load_job
from lockstep.bench.running import JobRun
from lockstep.connect.reading import Reader
from lockstep.control.operations.model import Operation
from lockstep.control.operations.upgrading import with_code
from lockstep.control.operations.verbs import JobVerbs
from lockstep.observe.promises import once, order
from lockstep.runtime.desired_run import last_run
from lockstep.runtime.shadow import comparison
from lockstep.runtime.state.checkpoint import partitions_of
from lockstep.runtime.state.folders import checkpoint_folders
from lockstep.store.home import job_folder
from tests.chaos.jobs import PATIENCE_S, append
from tests.chaos.test_adoption import RECORDS, Start, events, is_published, start
from tests.chaos.test_spare import COUNTS

__all__ = ["start"]


def _verbs(run: JobRun) -> JobVerbs:
    return JobVerbs(run.store, "counts")


def _wait(run: JobRun, operation: Operation, *phases: str) -> Operation:
    """Until the operation is in one of these phases or states."""

    def found() -> Operation | None:
        one = _verbs(run).book.find(operation.number)
        assert one is not None
        assert one.is_open or one.state in phases, f"{one.state}: {one.error}"
        return one if one.phase in phases or one.state in phases else None

    run.wait_until(lambda: found() is not None, PATIENCE_S, f"operation {operation.number}: {', '.join(phases)}")
    one = found()
    assert one is not None
    return one


def _assert_each_epoch_once(folder: Path) -> None:
    epochs = list(Reader(folder / "out").epochs())
    assert epochs
    assert once(epochs) == order(epochs) == []


@pytest.mark.timeout(2400)
def test_a_rescale_goes_on_although_its_coordinator_is_killed_in_the_middle(start: Start, tmp_path: Path) -> None:
    append(tmp_path, RECORDS[:100])
    first = start(1)
    first.wait_until(first.all_run, PATIENCE_S, "starting the replica")
    asked = _verbs(first).rescale(partitions=2)
    _wait(first, asked, "join")
    first.wait_until(lambda: bool(events(first, "repartitioned")), PATIENCE_S, "laying the state out anew")
    os.kill(first.pid, signal.SIGKILL)
    append(tmp_path, RECORDS[100:200])

    second = start(1)
    _wait(second, asked, "done")
    append(tmp_path, RECORDS[200:300])
    second.wait_until(lambda: is_published(second, 300), PATIENCE_S, "publishing all that came")
    assert [one.replica for one in second.store.progress()] == ["r0"], "whoever joined has left"
    replica = job_folder(tmp_path / ".lockstep", "counts") / "replicas" / "r0"
    assert partitions_of(checkpoint_folders(replica, 1)[0]) == 2
    spec = last_run(second.store)
    assert spec is not None and (spec.generation, spec.results_of) == (2, 1)
    assert second.store.digest_mismatches() == [] and second.store.divergences() == []
    names = [step.name for step in _wait(second, asked, "done").steps]
    assert names == ["join", "replace r0", "leave", "done"], "each step once"
    _assert_each_epoch_once(tmp_path)
    second.stop()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_other_results_wait_in_the_shadow_switch_with_one_entry_and_switch_back(start: Start, tmp_path: Path) -> None:
    append(tmp_path, RECORDS[:100])
    run = start(1)
    run.wait_until(run.all_run, PATIENCE_S, "starting the replica")
    changed = COUNTS.replace(".to(", '.with_columns(total=F.col("total") + 1000000).to(')
    (tmp_path / "new.py").write_text(changed)
    before = last_run(run.store)
    assert before is not None
    after = with_code(run.store, before, load_job(str(tmp_path / "new.py")), tmp_path / ".lockstep", same_results=False)
    asked = _verbs(run).upgrade(after, same_results=False)

    _wait(run, asked, "compare")
    append(tmp_path, RECORDS[100:200])
    _wait(run, asked, "waiting")
    found = comparison(run.store, 2)
    assert found.differing > 0 and "only in the published copy" in found.samples[0].text
    _verbs(run).settle(asked.number, "commit")
    _wait(run, asked, "confirm")
    append(tmp_path, RECORDS[200:300])
    run.wait_until(lambda: _newest_total(tmp_path) > 1_000_000, PATIENCE_S, "publishing new results")
    _verbs(run).settle(asked.number, "rollback")
    append(tmp_path, RECORDS[300:400])
    _wait(run, asked, "rolled-back")
    append(tmp_path, RECORDS[400:])
    run.wait_until(lambda: is_published(run, 500), PATIENCE_S, "publishing the old results again")
    generations = [one.generation for one in run.store.entries(0, 10_000)]
    switches = sum(left != right for left, right in pairwise(generations))
    assert switches == 2, "one entry switched, another one switched back"
    _assert_each_epoch_once(tmp_path)
    run.stop()


def _newest_total(folder: Path) -> int:
    rows = ls.read(folder / "out")
    return max((int(total) for total in rows.column("total").to_pylist()), default=0)
