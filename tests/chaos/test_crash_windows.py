"""A replica is killed in named crash windows of the life of an epoch, one after the other, in one run."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import lockstep as ls
from lockstep.bench.running import JobRun, Run
from lockstep.config import RunSettings
from lockstep.connect.reading import Reader
from lockstep.faults.orders import Harm, Obeyed, Orders, Window, WindowOrder
from lockstep.faults.switch import FOLDER_VARIABLE
from lockstep.observe.promises import completeness, once, order
from lockstep.store.protocols import Entry
from lockstep.store.sqlite_store import open_store
from tests.chaos.jobs import append, last_totals, totals

TWO_SINKS = """
import lockstep as ls
from lockstep import F

job = ls.Job("windows")
counts = (
    job.source("events", ls.journal("events", schema="user string, amount bigint"))
    .key_by("user")
    .agg(n=F.count("*"), total=F.sum("amount"))
)
counts.to(ls.files("out"))
counts.to(ls.sqlite("totals.db", table="totals", key="user"))
"""
"""Two sinks with fences of different kinds: a manifest, and a row in a transaction."""

SETTINGS = {
    "epoch_interval_s": "1",
    "heartbeat_interval_s": "1",
    "restart_backoff_s": "0.1",
    "retention_epochs_min": "2000",
    "spares": "0",
}
"""Few epochs and no spare: whatever they need, the replica that comes back waits for. Nothing is forgotten."""
FEED_INTERVAL_S = 0.2
BACK_S_MAX = 180.0
"""It takes about 15 s; a machine that does ten other things at once may need ten times that."""
REPLICAS = ("r0", "r1")
SLICE = (Window.INSIDE_TRANSACTION, Window.BETWEEN_TWO_SINKS, Window.PUBLISHED_NOT_COMMITTED)
"""Those where most is half-done: in the store, between the sinks, in the checkpoint. Each costs the boot of a JVM."""
REST = (Window.SEALED_NOT_RUN, Window.RUN_NO_DIGEST, Window.DIGEST_NOT_PUBLISHED, Window.PUBLISHED_NOT_NOTED)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobRun]:
    """Two replicas that obey orders; this process, which looks on, obeys none."""
    Orders(tmp_path / "faults")
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "faults"))
    one = JobRun(Run("windows", TWO_SINKS, replicas=2, settings=SETTINGS), tmp_path)
    yield one
    one.kill()


class Feeder:
    """Appends records for as long as something is waited for, and remembers them."""

    def __init__(self, run: JobRun) -> None:
        self.run = run
        self.sent: list[dict[str, Any]] = []
        self._next_s = 0.0

    def until(self, condition: Callable[[], object], timeout_s: float, what: str) -> None:
        def fed_and_done() -> bool:
            if time.monotonic() >= self._next_s:
                self._next_s = time.monotonic() + FEED_INTERVAL_S
                self._feed(20)
            return bool(condition())

        self.run.wait_until(fed_and_done, timeout_s, what)

    def _feed(self, count: int) -> None:
        first = len(self.sent)
        records = [{"user": f"u{number % 7}", "amount": number} for number in range(first, first + count)]
        append(self.run.folder, records)
        self.sent += records


def is_healthy(run: JobRun, replica: str) -> bool:
    """It computes and is within the lead: the other one can be lost."""
    said, lag = run.progress(replica), run.lag(replica)
    computes = said is not None and said.state in ("running", "catching-up")
    return computes and lag is not None and lag <= RunSettings().lead_epochs_max


def hit(run: JobRun, orders: Orders, feeder: Feeder, window: Window) -> Obeyed:
    """Have whoever leads killed in ``window``, and wait until both replicas are healthy again.

    Inside a transaction it is stopped instead: the store is locked until the supervisor finds and ends it.
    """
    head = run.store.head()
    assert head is not None
    harm = Harm.STOP if window is Window.INSIDE_TRANSACTION else Harm.KILL
    orders.give(WindowOrder(window.value, window, harm, from_epoch=head.epoch + 1, leading=True))
    feeder.until(lambda: orders.obeyed(window.value), 60, f"reaching {window}")
    done = orders.obeyed(window.value)
    assert done is not None

    def is_back() -> bool:
        victim = run.progress(done.replica)
        return victim is not None and victim.pid != done.pid and all(is_healthy(run, name) for name in REPLICAS)

    feeder.until(is_back, BACK_S_MAX, f"{done.replica} to come back after {window}")
    return done


def all_published(run: JobRun, records: int) -> bool:
    head, published = run.store.head(), Reader(run.folder / "out").epochs()
    return head is not None and _position(head) == records and published[-1] >= head.epoch


def _position(entry: Entry) -> int:
    return sum(entry.cut["events"].values())


def expected(entries: list[Entry], sent: list[dict[str, Any]]) -> list[tuple[int, dict[str, tuple[int, int]]]]:
    """What each epoch must have published: the new totals of the users among its records, counted here."""
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    epochs = []
    for before, entry in pairwise([None, *entries]):
        assert entry is not None
        records = sent[_position(before) if before else 0 : _position(entry)]
        counts.update(record["user"] for record in records)
        for record in records:
            sums[record["user"]] += record["amount"]
        epochs.append((entry.epoch, {user: (counts[user], sums[user]) for user in {r["user"] for r in records}}))
    return epochs


def check_promises(run: JobRun, sent: list[dict[str, Any]], windows: Sequence[Window]) -> None:
    """The promises, and every row of every epoch."""
    reader, store = Reader(run.folder / "out"), open_store(run.store_folder, "windows")
    epochs, entries = reader.epochs(), store.entries(0, 10**9)
    computed_by = [{digest.replica for digest in store.digests(entry.epoch)} for entry in entries]
    mismatches = store.digest_mismatches()
    store.close()
    assert order(epochs) == [] and once(epochs) == []
    assert completeness([(entry.epoch, entry.cut) for entry in entries], epochs) == []
    assert mismatches == []
    assert sum(len(replicas) == 2 for replicas in computed_by) > len(windows), "both replicas computed and agreed"
    for epoch, rows in expected(entries, sent):
        table = reader.table(epoch)
        assert table.num_rows == len(rows), f"epoch {epoch} has a row twice"
        assert last_totals(table) == rows, f"epoch {epoch}"


def test_every_crash_window_is_hit_somewhere() -> None:
    # A replica that dies while it is seeded has a test of its own, without Spark.
    assert {*SLICE, *REST, Window.SEEDING_HALF_DONE} == set(Window)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("windows", [SLICE, pytest.param(REST, marks=pytest.mark.long)], ids=["slice", "rest"])
def test_a_kill_in_each_crash_window_loses_nothing_and_repeats_nothing(
    tmp_path: Path, run: JobRun, windows: Sequence[Window]
) -> None:
    orders, feeder = Orders(tmp_path / "faults"), Feeder(run)
    feeder.until(lambda: run.all_run() and len(run.store.published(0, 10**9)) > 5, 180, "the first epochs")
    hits = [hit(run, orders, feeder, window) for window in windows]
    run.wait_until(lambda: all_published(run, len(feeder.sent)), 60, "publishing everything")
    run.stop()
    assert run.exit_code == 0

    assert [done.window for done in hits] == [window.value for window in windows], "each window was really hit"
    assert len({done.pid for done in hits}) == len(windows), "and each hit ended another process"
    check_promises(run, feeder.sent, windows)
    rows = ls.read(tmp_path / "totals.db", table="totals").to_pylist()
    assert {row["user"]: (row["n"], row["total"]) for row in rows} == totals(feeder.sent)
