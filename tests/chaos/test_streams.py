"""A job with state, timers and stages, run to its end by real replicas, one of them killed on the way.

Runs in `make test-long`: `make test` has crashes of stages in `tests/spark/test_stages.py` and in the simulator.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from tests.chaos.jobs import PATIENCE_S, PATIENT

USERS, LISTS, PER_LIST, GAP_S = 5, 20, 10, 2

STREAMS = f"""
from datetime import timedelta
import lockstep as ls
from lockstep import F

class Visits(ls.Process):
    \"\"\"One record for each run of records of a user without a gap of {GAP_S} seconds.\"\"\"
    records = ls.value_state("bigint")
    until = ls.value_state("timestamp")

    def on_record(self, record, ctx):
        self.records.set(self.records.get(0) + 1)
        self.until.set(record.at + timedelta(seconds={GAP_S}))
        ctx.set_timer(self.until.get())

    def on_timer(self, timer, ctx):
        if self.records.get(0) and timer.at == self.until.get():
            ctx.emit(user=ctx.key.user, records=self.records.get())
            self.records.clear()

job = ls.Job("streams", epoch_interval="200 ms")
def at(second):
    return f"2026-01-01T00:{{second // 60:02}}:{{second % 60:02}}Z"
lists = [
    [{{"user": f"u{{i % {USERS}}}", "at": at(n)}} for i in range({PER_LIST}) if (n // (i % {USERS} + 2)) % 5]
    for n in range({LISTS})
]
events = job.source("events", ls.collection(epochs=lists, schema="user string, at timestamp")).event_time("at")
visits = events.key_by("user").process(Visits(), schema="user string, records bigint", ordered=True)
visits.to(ls.files("visits"))
visits.key_by("user").agg(visits=F.count("*"), records=F.sum("records")).to(
    ls.sqlite("users.db", table="users", key="user")
)
"""


def _visits() -> dict[str, list[int]]:
    """How many records each visit had, by user, found by walking over the seconds."""
    seconds: dict[str, list[int]] = defaultdict(list)
    for n in range(LISTS):
        for i in range(PER_LIST):
            if (n // (i % USERS + 2)) % 5:
                seconds[f"u{i % USERS}"].append(n)
    found: dict[str, list[int]] = {}
    for user, at in seconds.items():
        found[user] = [0]
        for before, now in zip([at[0], *at], at, strict=False):
            # A record of the very time of the timer goes first, and the visit goes on.
            if now - before > GAP_S:
                found[user].append(0)
            found[user][-1] += 1
    return found


@pytest.mark.long
def test_a_kill_on_the_way_to_the_end_changes_no_result_of_any_stage(tmp_path: Path) -> None:
    # No spare: its boot would only take the processor from the two; spares are in `test_spare.py`.
    settings = {**PATIENT, "until_done": "true", "spares": "0"}
    run = JobRun(Run("streams", STREAMS, replicas=2, settings=settings), tmp_path)
    try:
        run.wait_until(lambda: len(run.store.published(0, 10**9)) > 5, PATIENCE_S, "the first epochs")
        run.kill_replica(run.newest_sealer())
        run.wait_until(lambda: run.exit_code is not None, PATIENCE_S, "the end of the input")
        assert run.exit_code == 0
        assert run.store.digest_mismatches() == []
    finally:
        run.kill()
    wanted = _visits()
    rows = ls.read(tmp_path / "visits").to_pylist()
    found = {user: Counter(row["records"] for row in rows if row["user"] == user) for user in wanted}
    assert found == {user: Counter(visits) for user, visits in wanted.items()}
    users = {
        row["user"]: (row["visits"], row["records"])
        for row in ls.read(tmp_path / "users.db", table="users").to_pylist()
    }
    assert users == {user: (len(visits), sum(visits)) for user, visits in wanted.items()}
