from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lockstep.clock import wall_us
from lockstep.control.status.health import History, Limits, judge_health
from lockstep.control.status.overview import rows_per_s
from lockstep.control.status.report import replica_json
from lockstep.runtime.desired_run import RUN_BEGAN
from lockstep.store.dead_letters import DeadLetterWriter, Letter
from lockstep.store.protocols import Digest, Divergence, Entry, Holder, Progress, Published, Store, state_subject
from lockstep.store.sqlite_store import open_store
from tests.unit.cli.conftest import Call

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND


def _progress(replica: str, epoch: int, **others: Any) -> Progress:
    usual = {"incarnation": 1, "pid": os.getpid(), "state": "running", "updated_us": NOW}
    return Progress(replica, epoch=epoch, **{**usual, **others})


def _judge(
    *progress: Progress,
    head: int = 100,
    wanted: int = 2,
    history: dict[str, History] | None = None,
    published_ago_s: int = 0,
) -> tuple[str, str]:
    health = judge_health(
        progress,
        history or {},
        head,
        NOW - published_ago_s * SECOND,
        NOW,
        limits=Limits(wanted=wanted, lead_epochs_max=20, silence_max_s=10, publication_max_s=3),
        pid_exists=lambda pid: pid == os.getpid(),
    )
    return health.state, health.reason


def test_replicas_within_the_lead_are_healthy() -> None:
    assert _judge(_progress("r0", 100), _progress("r1", 80))[0] == "healthy"
    assert _judge(_progress("r0", 100), _progress("r1", 95, state="catching-up"))[0] == "healthy"


def test_a_single_replica_is_healthy_if_no_more_are_wanted() -> None:
    assert _judge(_progress("r0", 100), wanted=1)[0] == "healthy"
    assert _judge(_progress("r0", 100), wanted=2)[0] == "degraded"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (_progress("r1", 79), "r1 is 21 epochs behind"),
        (_progress("r1", 100, state="seeding"), "r1 is seeding"),
        (_progress("r1", 100, executors=0, executors_lost=2), "r1 has no executor (2 lost since its start)"),
        (_progress("r1", 100, pid=0), "r1 is not alive (it last said: running)"),
        (_progress("r1", 100, updated_us=NOW - 11 * SECOND), "r1 is not alive (it last said: running)"),
        (_progress("r1", 100, state="failed"), "r1 is not alive (it last said: failed)"),
    ],
)
def test_a_replica_that_could_not_take_over_makes_a_job_of_two_degraded(other: Progress, reason: str) -> None:
    assert _judge(_progress("r0", 100), other) == ("degraded", reason)


def test_a_job_of_three_is_healthy_without_one_and_names_it() -> None:
    state, reason = _judge(_progress("r0", 100), _progress("r1", 100), _progress("r2", 3), wanted=3)
    assert (state, reason) == ("healthy", "2 of 3 replicas are within the lead: r2 is 97 epochs behind")


def test_a_job_without_a_living_replica_is_not_running() -> None:
    assert _judge()[0] == "not running"
    assert _judge(_progress("r0", 100, state="stopped"), _progress("r1", 100, pid=0))[0] == "not running"


def test_a_job_whose_replicas_all_ended_well_is_stopped() -> None:
    assert _judge(_progress("r0", 100, state="stopped"), _progress("r1", 99, state="stopped"))[0] == "stopped"


def test_a_job_whose_replicas_boot_for_the_first_time_is_starting_and_not_degraded() -> None:
    started = {name: History(starts=1, started_us=NOW - 3 * SECOND, pid=os.getpid()) for name in ("r0", "r1")}
    earlier = _progress("r0", 90, state="stopped", updated_us=NOW - 60 * SECOND)
    assert _judge(history=started)[0] == "starting"
    assert _judge(earlier, _progress("r1", -1, state="starting"), history=started)[0] == "starting"
    assert _judge(_progress("r0", 100), _progress("r1", -1, state="seeding"), history=started)[0] == "starting"


def test_a_process_that_has_not_spoken_yet_is_alive_as_long_as_it_is_there() -> None:
    """In idle time it may take a minute to come to its first word."""
    silent = History(starts=1, started_us=NOW - 60 * SECOND, pid=os.getpid())
    assert _judge(history={"r0": silent})[0] == "starting"
    assert _judge(history={"r0": replace(silent, pid=os.getpid() + 1)})[0] == "not running"


def test_a_replica_that_is_starting_says_for_how_long_and_counts_restarts() -> None:
    health = judge_health(
        [_progress("r0", 5, state="failed", updated_us=NOW - 9 * SECOND)],
        {"r0": History(starts=3, started_us=NOW - 4 * SECOND, pid=os.getpid())},
        100,
        NOW,
        NOW,
        limits=Limits(wanted=1, lead_epochs_max=20, silence_max_s=10, publication_max_s=3),
        pid_exists=lambda pid: True,
    )
    (replica,) = health.replicas
    assert (replica.state, replica.starting_s, replica.restarts, replica.alive) == ("starting", 4.0, 2, True)
    assert health.state == "degraded"


def test_a_job_that_published_nothing_for_three_heartbeats_is_not_healthy_whatever_its_replicas_say() -> None:
    both = _progress("r0", 100), _progress("r1", 100)
    assert _judge(*both, published_ago_s=3)[0] == "healthy"
    assert _judge(*both, published_ago_s=26) == ("stalled", "nothing was published for 26 s")
    assert _judge(both[0], _progress("r1", 100, state="failed"), published_ago_s=26)[0] == "stalled"


def test_a_job_that_stands_still_says_which_epoch_is_under_way_and_how_far() -> None:
    large = {"working_on": 101, "begun_us": NOW - 40 * SECOND, "tasks": 200, "tasks_done": 120}
    told = "nothing was published for 26 s; r0: epoch 101 under way for 40 s, 120 of 200 tasks done"
    assert _judge(_progress("r0", 100, **large), _progress("r1", 100), published_ago_s=26) == ("stalled", told)


def test_a_first_epoch_that_takes_long_is_told_while_the_job_starts() -> None:
    history = {"r0": History(starts=1, started_us=NOW - 60 * SECOND)}
    first = _progress("r0", -1, state="starting", working_on=0, begun_us=NOW - 40 * SECOND, tasks=3, tasks_done=1)
    told = "r0 is starting; r0: epoch 0 under way for 40 s, 1 of 3 tasks done"
    assert _judge(first, wanted=1, history=history, published_ago_s=60) == ("starting", told)


def test_executors_that_are_lost_are_told_and_one_that_is_left_computes() -> None:
    assert _judge(_progress("r0", 100, executors=1, executors_lost=1), wanted=1)[0] == "healthy"
    assert _judge(_progress("r0", 100, executors=0, executors_lost=1), wanted=1)[0] == "degraded"
    assert _judge(_progress("r0", 100, executors=1, executors_lost=1), wanted=1, published_ago_s=4)[0] == "stalled"
    seen = judge_health(
        [_progress("r0", 100, executors=1, executors_lost=2), _progress("r1", 100)],
        {},
        100,
        NOW,
        NOW,
        limits=Limits(wanted=2, lead_epochs_max=20, silence_max_s=10, publication_max_s=3),
        pid_exists=lambda pid: True,
    ).replicas
    assert [one.executors_text for one in seen] == ["1 executor, 2 lost since its start", ""]
    assert [(replica_json(one)["executors"], replica_json(one)["executors_lost"]) for one in seen] == [
        (1, 2),
        (None, 0),
    ]


def test_a_job_that_drains_is_stopping() -> None:
    assert _judge(_progress("r0", 100, state="draining"), _progress("r1", 100, state="stopped"))[0] == "stopping"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A job of two replicas that has sealed five epochs and published four; in the third, the replicas disagree."""
    store = open_store(tmp_path / ".lockstep", "alerts")
    # In a minute: nothing of it is to be old when a command has at last started on a busy machine.
    now = wall_us() + 60 * SECOND
    holders = {name: store.begin(name, os.getpid()) for name in ("r0", "r1")}
    for epoch in range(5):
        sealed_us = now - (5 - epoch) * SECOND
        cut = {"logins": {"0": 10 * epoch + 10}}
        store.seal(Entry(epoch, sealed_us, cut, {"event_time": None}, 10, sealed_us, sealed_us), holders["r0"])
        digest = "abc"
        for name in holders:
            digest = "xyz" if (epoch, name) == (2, "r1") else "abc"
            store.add_digests([Digest(epoch, "alerts", name, 1, digest, 3, "v1")])
        if epoch < 4:
            store.add_published(Published(epoch, "r1", sealed_us + 250_000, 10, sealed_us, sealed_us, 0.1))
    for name, epoch in (("r0", 4), ("r1", 3)):
        store.report(Progress(name, 1, os.getpid(), "running", epoch, 0.12, updated_us=now, moved_us=now))
    return store


def test_status_of_a_job_that_is_well(lockstep: Call, store: Store) -> None:
    said = lockstep("status", "--json")
    assert said.code == 0
    report = said.json()
    assert (report["job"], report["state"], report["healthy"], report["degraded"]) == ("alerts", "healthy", True, False)
    assert report["head"]["epoch"] == 4
    assert [(r["replica"], r["lag_epochs"], r["restarts"]) for r in report["replicas"]] == [("r0", 0, 0), ("r1", 1, 0)]
    assert report["latency_ms"]["count"] == 4
    assert report["latency_ms"]["p50"] == pytest.approx(250, rel=0.1)
    assert report["last_divergence"] is None
    assert "alerts is healthy" in lockstep("status", "alerts").out


def test_status_tells_divergence_and_dead_letters(lockstep: Call, store: Store, tmp_path: Path) -> None:
    store.add_divergence(Divergence(2, "alerts", "r1", 1, "r0.1", "xyz", "abc", "row 1 differs", wall_us()))
    letter = Letter("files", "files", "bad.json", 7, "{", "not JSON")
    DeadLetterWriter(str(tmp_path / ".lockstep"), "alerts").keep("files/0", [letter])
    report = lockstep("status", "--json").json()
    assert report["last_divergence"]["epoch"] == 2
    assert report["dead_letters"] == 1
    said = lockstep("status").out
    assert "row 1 differs" in said and 'epoch 2, sink "alerts", replica r1' in said
    assert "dead letters: 1 wait; lockstep dead-letters alerts lists them" in said


def test_status_names_both_whose_states_differ_before_any_output_does(lockstep: Call, store: Store) -> None:
    about = state_subject(1, "0 stateStoreSave")
    store.add_divergence(Divergence(2, about, "r1", 1, "r0.1", "2-xyz", "2-abc", "r1 has 2 rows", wall_us(), "reseed"))
    last = lockstep("status", "--json").json()["last_divergence"]
    assert (last["sink"], last["replica"], last["against"], last["verdict"]) == (about, "r1", "r0.1", "reseed")
    said = " ".join(lockstep("status").out.split())
    assert "epoch 2, the state of stage 1, operator 0 stateStoreSave, replica r1" in said and "r1 has 2 rows" in said


def test_a_job_whose_executor_is_lost_is_stalled_although_every_replica_reports(lockstep: Call, tmp_path: Path) -> None:
    """Both replicas say every half second that they run, within the lead; their epochs just do not end."""
    store, now = open_store(tmp_path / ".lockstep", "alerts"), wall_us()
    holder = store.begin("r0", os.getpid())
    store.begin("r1", os.getpid())
    for epoch, ago_s in ((0, 27), (1, 26)):
        store.seal(Entry(epoch, now - ago_s * SECOND, {}, records=500), holder)
        store.add_published(Published(epoch, "r0", now - ago_s * SECOND, 500, None, None, 0.1))
    store.seal(Entry(2, now - 25 * SECOND, {}, records=500), holder)
    for name in ("r0", "r1"):
        store.report(
            Progress(
                name, 1, os.getpid(), "running", 1, working_on=2, begun_us=now - 25 * SECOND, tasks=4, updated_us=now
            )
        )
    said = lockstep("status", "--json")
    report = said.json()
    assert (said.code, report["state"], report["healthy"]) == (1, "stalled", False)
    words = r"nothing was published for (\d+) s; r0: epoch 2 under way for (\d+) s, 0 of 4 tasks done; r1: .*"
    said_s = re.fullmatch(words, report["reason"])
    assert said_s is not None, report["reason"]
    # Since the last epoch was published, and since this one was begun: one second less.
    assert int(said_s[1]) - int(said_s[2]) == 1 and int(said_s[1]) >= 26
    assert report["rows_per_s"] == pytest.approx(500 / (int(said_s[1]) + 1), rel=0.1), "over all the time"
    store.close()


def test_records_that_come_in_the_midst_of_empty_epochs_are_a_rate_too() -> None:
    """A record every 20 s, and an epoch every second: of the last ten seconds none may have one."""
    published = [
        Published(epoch, "r0", NOW - (49 - epoch) * SECOND, int(epoch in (5, 25)), None, None, 0.1)
        for epoch in range(50)
    ]
    assert rows_per_s(published, NOW) == pytest.approx(2 / 49)
    assert rows_per_s([one for one in published if one.epoch > 30], NOW) == 0


def test_status_and_ledger_say_which_source_waits_and_why(lockstep: Call, store: Store) -> None:
    day_us, head = 86_400 * SECOND, store.head()
    assert head is not None
    held = {"clicks": {"orders": 31 * day_us}}
    store.seal(replace(head, epoch=5, epoch_time_us=head.epoch_time_us + SECOND, held=held), Holder("r0", 1))
    assert "held back: clicks waits, 31.0 days ahead of orders in event time" in lockstep("status").out
    assert lockstep("status", "--json").json()["held_back_us"] == held
    assert lockstep("ledger", "--json").json()["entries"][-1]["held_back_us"] == held


def test_status_of_a_job_whose_replicas_are_gone_ends_with_1(lockstep: Call, store: Store) -> None:
    for name in ("r0", "r1"):
        store.report(Progress(name, 1, 2**22 + 1, "running", 4, updated_us=wall_us()))
    said = lockstep("status")
    assert said.code == 1
    assert "alerts is not running" in said.out
    assert said.out.count("gone") == 2


def test_status_counts_the_restarts_of_the_newest_run_only(lockstep: Call, store: Store) -> None:
    for _ in range(5):
        store.add_event("replica-started", "pid 1, start 1", "r1")
    store.set_fact(RUN_BEGAN, str(wall_us() + 1))
    for replica in ("r0", "r1", "r1"):
        store.add_event("replica-started", "pid 1, start 1", replica)
    for name in ("r0", "r1"):
        store.report(Progress(name, 1, os.getpid(), "running", 4, updated_us=wall_us() + 1))
    restarts = {r["replica"]: r["restarts"] for r in lockstep("status", "--json").json()["replicas"]}
    assert restarts == {"r0": 0, "r1": 1}


def test_the_ledger_shows_who_sealed_who_published_and_whether_digests_agree(lockstep: Call, store: Store) -> None:
    entries = lockstep("ledger", "--json").json()["entries"]
    assert [entry["epoch"] for entry in entries] == [0, 1, 2, 3, 4]
    assert [entry["digests_equal"] for entry in entries] == [True, True, False, True, True]
    assert [entry["published_by"] for entry in entries] == ["r1", "r1", "r1", "r1", None]
    assert entries[3]["cut"] == {"logins": {"0": 40}}
    assert entries[0]["latency_ms"] == 250
    assert {entry["sealed_by"] for entry in entries} == {"r0.1"}


def test_the_ledger_as_text_marks_the_epoch_that_differs(lockstep: Call, store: Store) -> None:
    lines = lockstep("ledger", "alerts").out.splitlines()
    assert len(lines) == 6
    assert [line.split()[0] for line in lines if "DIFFER" in line] == ["2"]
    assert max(len(line) for line in lines) <= 80


def test_last_limits_the_ledger_to_the_newest(lockstep: Call, store: Store) -> None:
    assert [e["epoch"] for e in lockstep("ledger", "--last", "2", "--json").json()["entries"]] == [3, 4]


def test_without_any_job_the_folder_is_named(lockstep: Call, tmp_path: Path) -> None:
    said = lockstep("status")
    assert said.code == 2
    assert said.err.startswith(f"LS0003 no job has run in {tmp_path}")
    assert not (tmp_path / ".lockstep").exists(), "looking makes nothing"


def test_with_several_jobs_one_has_to_be_named(lockstep: Call, store: Store, tmp_path: Path) -> None:
    open_store(tmp_path / ".lockstep", "billing").close()
    said = lockstep("ledger")
    assert said.code == 2
    assert "alerts, billing" in said.err
    assert lockstep("ledger", "alerts").code == 0
    assert 'did you mean "billing"?' in lockstep("ledger", "biling").err


def test_a_job_that_has_sealed_nothing_says_so_on_stderr(lockstep: Call, tmp_path: Path) -> None:
    open_store(tmp_path / ".lockstep", "fresh").close()
    said = lockstep("ledger")
    assert (said.code, said.out) == (0, "")
    assert "has sealed no epoch yet" in said.err
    assert lockstep("status").code == 1
