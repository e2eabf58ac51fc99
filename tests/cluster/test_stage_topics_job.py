"""Whole jobs whose journals are topics: two replicas, one killed and seeded; compared with plain Python."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lockstep.bench.running import JobRun, Run
from lockstep.connect.protocols import JOURNALS
from tests.cluster.broker import Broker

SETTINGS = {"heartbeat_interval_s": "0.3", "spares": "0", "seed_beyond_epochs": "2"}
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
WAIT_S = 120
Hour = tuple[datetime, int, int, int]
"""Its begin, the most orders of a user in a minute, cents spent, users."""

TWO_STAGES = """
import lockstep as ls
from lockstep import F

job = ls.Job("inside")
schema = "user string, amount decimal(12,2), at timestamp"
orders = job.source("orders", ls.kafka("SOURCE", servers="SERVERS", schema=schema))


def doubled(row):
    if row["user"] == "unlucky":
        raise ValueError("no such user")
    return {**row, "amount": row["amount"] * 2}


known = orders.map(doubled, schema=schema, on_error="skip", name="doubled").event_time("at")
minutes = known.key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*"), spent=F.sum("amount"))
hours = minutes.window(ls.tumbling("1 hour")).agg(most=F.max("n"), spent=F.sum("spent"), users=F.count_distinct("user"))
hours.to(ls.kafka("OUT", servers="SERVERS"), name="hours")
"""

LOOP = """
import lockstep as ls
from lockstep import F

job = ls.Job("inside")
numbers = job.source("numbers", ls.kafka("SOURCE", servers="SERVERS", schema="begin bigint, n bigint"))


def step(numbers):
    following = numbers.with_columns(n=F.when(F.col("n") % 2 == 0, F.expr("n div 2")).otherwise(F.col("n") * 3 + 1))
    return following.filter("n > 1"), following.filter("n = 1")


numbers.iterate(step, rounds=20).to(ls.kafka("OUT", servers="SERVERS"), name="steps")
"""


@pytest.fixture
def started(broker: Broker, tmp_path: Path) -> Iterator[Callable[..., JobRun]]:
    runs: list[JobRun] = []
    journals = f"kafka://{broker.servers}/t-{uuid.uuid4().hex[:12]}"

    def start(text: str, *arguments: str, replicas: int = 2, settings: Any = SETTINGS, **names: str) -> JobRun:
        for name, value in {"SERVERS": broker.servers, **names}.items():
            text = text.replace(name, value)
        wanted = Run("inside", text, replicas, settings=settings, journals=journals, arguments=arguments)
        runs.append(JobRun(wanted, tmp_path))
        return runs[-1]

    yield start
    for run in runs:
        run.kill()


class Orders:
    """Sends orders, in order of event time, and knows what must come out for hours that are over."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker, self._topic = broker, topic
        self.sent: list[tuple[datetime, str, int]] = []

    def send(self, count: int, seconds: int = 7) -> None:
        # Later than a quiet source's event time goes on by the clock meanwhile, or the first ones would be late.
        first = self.sent[-1][0] + timedelta(minutes=10) if self.sent else BEGIN
        new = [(first + timedelta(seconds=seconds * n), f"u{n % 5}", n * 37 % 1000) for n in range(1, count + 1)]
        lines = [json.dumps({"user": user, "amount": cents / 100, "at": at.isoformat()}) for at, user, cents in new]
        bad = json.dumps({"user": "unlucky", "amount": 1, "at": first.isoformat()})
        self._broker.send(self._topic, [*lines, "malformed", bad])
        self.sent += new

    def hours(self, *, until_done: bool = False) -> list[Hour]:
        """Every hour that is over, with ``until_done`` the last one too."""
        by_hour: dict[datetime, list[tuple[datetime, str, int]]] = defaultdict(list)
        for one in self.sent:
            by_hour[one[0].replace(minute=0, second=0)].append(one)
        last = max(by_hour)
        found = []
        for hour in sorted(by_hour):
            if hour < last or until_done:
                minutes = Counter((at.replace(second=0), user) for at, user, _ in by_hour[hour])
                cents = sum(2 * cents for _, _, cents in by_hour[hour])
                users = {user for _, user, _ in by_hour[hour]}
                found.append((hour, max(minutes.values()), cents, len(users)))
        return found


def out_of(broker: Broker, topic: str) -> list[Hour]:
    """What was published, by time: hours that end in one epoch have no order."""
    rows = broker.committed(topic)
    return sorted(
        (datetime.fromisoformat(row["window_start"]), row["most"], round(Decimal(row["spent"]) * 100), row["users"])
        for row in rows
    )


def events(run: JobRun, kind: str) -> list[str]:
    return [text for _, _, what, _, text in run.store.events() if what == kind]


def test_two_stages_survive_a_kill_and_their_letters_are_seen_from_anywhere(
    broker: Broker, topic: Callable[..., str], started: Callable[..., JobRun], tmp_path: Path
) -> None:
    source, out = topic(), topic()
    orders = Orders(broker, source)
    orders.send(600)
    run = started(TWO_STAGES, SOURCE=source, OUT=out)
    run.wait_running()
    orders.send(600)
    run.wait_until(lambda: bool(out_of(broker, out)), WAIT_S, "the first hour")
    run.kill_replica("r1")
    for _ in range(3):
        orders.send(600)
    run.wait_until(run.all_run, WAIT_S, "the killed replica to be back")
    orders.send(600)
    # Two hours later: event time in the second stage follows by some epochs.
    orders.send(1, seconds=7200)
    run.wait_until(lambda: len(out_of(broker, out)) >= len(orders.hours()), WAIT_S, "all hours")
    assert out_of(broker, out) == orders.hours()
    assert events(run, "seeded")
    assert not run.store.divergences()
    topics = broker.admin.list_topics(timeout=20).topics
    prefix = (run.store.fact(JOURNALS) or "").rpartition("/")[2]
    mine = {name.removeprefix(f"{prefix}.") for name in topics if name.startswith(prefix)}
    assert {"dead-letters"} < mine and len(mine) == 3, mine
    assert not list((run.store_folder / "jobs" / "inside").glob("journals/*")), "nothing in files of this host"
    letters = listed(run, tmp_path / "elsewhere")
    assert Counter(one["step"] for one in letters) == {"orders": 7, "doubled": 7}
    assert len({(one["step"], one["offset"]) for one in letters}) == 14, "each once"
    run.stop()


def listed(run: JobRun, folder: Path) -> list[dict[str, Any]]:
    """The letters as somebody lists them who has another folder, and reaches the store."""
    folder.mkdir()
    (folder / "lockstep.toml").write_text(f'store = "sqlite:{run.store_folder}"\n', encoding="utf-8")
    words = [sys.executable, "-m", "lockstep", "--project", str(folder), "dead-letters", "inside", "--json"]

    def answer(*more: str) -> dict[str, Any]:
        done = subprocess.run([*words, *more], capture_output=True, text=True, check=False, env=dict(os.environ))
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    first = answer("--first", "100")
    assert first["open"] == first["kept"] == len(first["letters"])
    assert answer("--step", "doubled", "--dismiss") == {"dismissed": 7, "open": 7}
    assert answer()["open"] == 7
    letters: list[dict[str, Any]] = first["letters"]
    return letters


@pytest.mark.long
def test_a_run_until_done_ends_when_nothing_is_on_its_way_any_more(
    broker: Broker, topic: Callable[..., str], started: Callable[..., JobRun]
) -> None:
    source, out = topic(), topic()
    orders = Orders(broker, source)
    orders.send(1200)
    run = started(TWO_STAGES, "--until-done", replicas=1, SOURCE=source, OUT=out)
    run.wait_end(WAIT_S)
    assert run.exit_code == 0
    assert out_of(broker, out) == orders.hours(until_done=True)


def test_a_loop_goes_on_after_the_whole_job_was_killed(
    broker: Broker, topic: Callable[..., str], started: Callable[..., JobRun]
) -> None:
    source, out = topic(), topic()

    def send(numbers: range) -> None:
        broker.send(source, [json.dumps({"begin": n, "n": n}) for n in numbers])

    send(range(2, 20))
    # Rows go through files that tasks stage, as those of large epochs do; what all have passed is soon removed.
    settings = {**SETTINGS, "rows_through_driver_max": "0", "retention_epochs_min": "10"}
    run = started(LOOP, settings=settings, SOURCE=source, OUT=out)
    run.wait_running()
    send(range(20, 40))
    run.wait_until(lambda: len(broker.committed(out)) >= 10, WAIT_S, "the first numbers")
    run.kill()
    send(range(40, 60))
    run = started(LOOP, settings=settings, SOURCE=source, OUT=out)
    wanted = sorted((n, steps(n)) for n in range(2, 60) if steps(n) <= 21)
    run.wait_until(lambda: len(broker.committed(out)) >= len(wanted), WAIT_S, "all numbers")
    assert sorted((row["begin"], row["round"] + 1) for row in broker.committed(out)) == wanted
    run.wait_until(run.all_run, WAIT_S, "both replicas")
    loop = f"{(run.store.fact(JOURNALS) or '').rpartition('/')[2]}.loop-iterate"
    run.wait_until(lambda: broker.begin(loop) > 0, WAIT_S, "what all have passed to be removed")
    told = sum(int(text.split(": ")[1].split()[0]) for text in events(run, "loop-gave-up"))
    # Whoever is killed after it has published tells nobody.
    assert 0 < told <= sum(steps(n) > 21 for n in range(2, 60))
    assert not run.store.divergences()
    run.stop()


def steps(n: int) -> int:
    count = 0
    while n != 1:
        n, count = (n // 2 if n % 2 == 0 else 3 * n + 1), count + 1
    return count
