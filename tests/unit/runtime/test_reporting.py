"""What a replica reports of an epoch that takes long: how far it is, and when something in it last moved."""

from __future__ import annotations

from pathlib import Path

from lockstep.runtime.epoch.stage_progress import Standpoint
from lockstep.runtime.reporting import BOOT_INTERVAL_S, INTERVAL_S, Reporter
from lockstep.runtime.spark.activity import Activity
from lockstep.store.protocols import Progress
from lockstep.store.sqlite_store import open_store

S = 1_000_000


def test_an_epoch_that_takes_long_is_looked_into_and_a_short_one_is_not(tmp_path: Path) -> None:
    store, now_us, looks = open_store(tmp_path, "job"), 0, 0
    inside = Activity(200, 1, 5000)

    def activity() -> Activity:
        nonlocal looks
        looks += 1
        return inside

    reporter = Reporter(store, store.begin("r0", 1), lambda: None, lead_epochs=50, clock=lambda: now_us, pid=1)
    reporter.activity = activity

    def reported(at_s: float, standpoint: Standpoint) -> Progress:
        nonlocal now_us
        now_us, reporter.standpoint = round(at_s * S), lambda: standpoint
        reporter.report()
        (said,) = store.progress()
        return said

    under_way = Standpoint(epoch=6, working_on=7, begun_us=10 * S)
    said = reported(11, under_way)
    assert (said.working_on, said.begun_us, said.active_us, looks) == (7, 10 * S, 10 * S, 0), "it is over soon"
    said = reported(20, under_way)
    assert (said.tasks, said.tasks_done, said.active_us) == (200, 1, 20 * S)
    assert reported(30, under_way).active_us == 20 * S, "nothing has moved since"
    inside = Activity(200, 1, 6000)
    assert reported(40, under_way).active_us == 40 * S, "rows were read"
    said = reported(41, Standpoint(epoch=7, moved_us=41 * S, done_us=41 * S))
    assert (said.working_on, said.tasks, said.active_us) == (-1, 0, 0)
    store.close()


def test_until_its_first_epoch_a_replica_takes_the_write_lock_more_seldom(tmp_path: Path) -> None:
    store = open_store(tmp_path, "job")
    reporter = Reporter(store, store.begin("r0", 1), lambda: None, lead_epochs=50, pid=1)
    assert reporter.interval_s == BOOT_INTERVAL_S > INTERVAL_S
    reporter.state, reporter.standpoint = "running", lambda: Standpoint(epoch=6, working_on=7)
    assert reporter.interval_s == BOOT_INTERVAL_S, "a seed is not an epoch computed"
    reporter.standpoint = lambda: Standpoint(epoch=7, done_us=S)
    assert reporter.interval_s == INTERVAL_S
    store.close()
