"""A replica is killed in named crash windows of the life of an epoch, one after the other; then the two disagree.

All of it in one run: starting two replicas is what costs.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
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
from tests.chaos.jobs import PATIENCE_S, PATIENT, SIGN, append, last_totals, totals

JOB = (
    SIGN.replace("WRONG", "r1")
    + """
import lockstep as ls
from lockstep import F

job = ls.Job("windows")
events = job.source("events", ls.journal("events", schema="user string, amount bigint"))
counts = events.key_by("user").agg(n=F.count("*"), total=F.sum("amount"))
counts.to(ls.files("out"))
counts.to(ls.sqlite("totals.db", table="totals", key="user"))
signed = events.filter("user = 'bob'").map(sign, schema="user string, amount bigint", name="sign")
signed.to(ls.files("signed"))
"""
)
"""Sinks with fences of different kinds: manifests, and a row in a transaction. Only what is bob's is signed."""

SETTINGS = {
    **PATIENT,
    "epoch_interval_s": "1",
    "heartbeat_interval_s": "1",
    "restart_backoff_s": "0.1",
    "retention_epochs_min": "2000",
    "spares": "0",
}
"""Few epochs and no spare: whatever they need, the replica that comes back waits for. Nothing is forgotten."""
FAULTS = "faults"
FEED_INTERVAL_S = 0.2
REPLICAS = ("r0", "r1")
SLICE = (Window.INSIDE_TRANSACTION,)
"""The one that needs real processes most: the store is locked by one that does not go on. Each costs the boot of a JVM.
One that published and did not commit is in the slice of the matrix."""
REST = (
    Window.BETWEEN_TWO_SINKS,
    Window.PUBLISHED_NOT_COMMITTED,
    Window.SEALED_NOT_RUN,
    Window.RUN_NO_DIGEST,
    Window.DIGEST_NOT_PUBLISHED,
    Window.PUBLISHED_NOT_NOTED,
)


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


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JobRun]:
    """Two replicas that obey orders; this process, which looks on, obeys none. The last test ends them."""
    folder = tmp_path_factory.mktemp("windows")
    Orders(folder / FAULTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FOLDER_VARIABLE, str(folder / FAULTS))
        one = JobRun(Run("windows", JOB, replicas=2, settings=SETTINGS), folder)
    yield one
    one.kill()


@pytest.fixture(scope="module")
def feeder(run: JobRun) -> Feeder:
    """The one that feeds the run, from its beginning."""
    return Feeder(run)


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
    feeder.until(lambda: orders.obeyed(window.value), PATIENCE_S, f"reaching {window}")
    done = orders.obeyed(window.value)
    assert done is not None

    def is_back() -> bool:
        victim = run.progress(done.replica)
        return victim is not None and victim.pid != done.pid and all(is_healthy(run, name) for name in REPLICAS)

    feeder.until(is_back, PATIENCE_S, f"{done.replica} to come back after {window}")
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
    epochs = reader.epochs()
    # It goes on: there may be an epoch on its way.
    entries = [entry for entry in store.entries(0, 10**9) if entry.epoch <= epochs[-1]]
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


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("windows", [SLICE, pytest.param(REST, marks=pytest.mark.long)], ids=["slice", "rest"])
def test_a_kill_in_each_crash_window_loses_nothing_and_repeats_nothing(
    run: JobRun, feeder: Feeder, windows: Sequence[Window]
) -> None:
    orders = Orders(run.folder / FAULTS)
    feeder.until(lambda: run.all_run() and len(run.store.published(0, 10**9)) > 5, PATIENCE_S, "the first epochs")
    hits = [hit(run, orders, feeder, window) for window in windows]
    run.wait_until(lambda: all_published(run, len(feeder.sent)), PATIENCE_S, "publishing everything")

    assert [done.window for done in hits] == [window.value for window in windows], "each window was really hit"
    assert len({done.pid for done in hits}) == len(windows), "and each hit ended another process"
    check_promises(run, feeder.sent, windows)
    rows = ls.read(run.folder / "totals.db", table="totals").to_pylist()
    assert {row["user"]: (row["n"], row["total"]) for row in rows} == totals(feeder.sent)


def test_two_replicas_that_disagree_stop_the_job_and_show_the_rows(run: JobRun) -> None:
    run.wait_until(run.all_run, PATIENCE_S, "both replicas to compute")
    append(run.folder, [{"user": "bob", "amount": 13}])
    run.wait_until(lambda: run.ended, PATIENCE_S, "the job to stop")
    assert run.exit_code == 1
    said = (run.folder / "run.log").read_text()
    assert "LS0603" in said and "sign" in said and "'bob', 13" in said and "'bob', -13" in said
