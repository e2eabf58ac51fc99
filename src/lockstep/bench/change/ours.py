"""Lockstep's side: the job as a user runs it, changed by the commands that a user has."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from lockstep.bench.change.sides import RATE, Change, Outcome, Plan, Steps, Watching
from lockstep.bench.change.timeline import Sample, StoreEvent, operation_steps
from lockstep.bench.change.totals import TotalRow, check_totals, expected_totals
from lockstep.bench.children import Child, journal_feeder, observer, running
from lockstep.bench.events import JOURNAL, SCHEMA, read_sent
from lockstep.bench.observer import read_seen_epochs
from lockstep.bench.running import SINK_FOLDER, JobRun, Run
from lockstep.bench.workspace import Say
from lockstep.clock import wall_us
from lockstep.connect.reading import Reader
from lockstep.control.operations.book import OperationBook
from lockstep.control.operations.model import Operation
from lockstep.control.status.overview import spares
from lockstep.store.protocols import Store

SIDE = "lockstep, one replica"
JOB = "bench-change"
OPERATION_TIMEOUT_S = 600.0
COMMAND_TIMEOUT_S = 60.0
SETTLE_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 60.0


def job_text(*, is_new: bool) -> str:
    """The job; its new code has a step more that lets every record pass, so that results stay the same."""
    more = '\n    .filter("seq >= 0")' if is_new else ""
    return f"""\
import lockstep as ls
from lockstep import F

job = ls.Job("{JOB}")
(job.source("events", ls.journal("{JOURNAL}", schema="{SCHEMA}")){more}
    .key_by("customer")
    .agg(events=F.count("*"), total=F.sum("seq"), name="totals")
    .to(ls.files("{SINK_FOLDER}"), name="sink"))
"""


def measure(folder: Path, say: Say, plan: Plan) -> Outcome:
    """Run the job under load, change it again and again, drain, and check."""
    watching = Watching(SIDE, say, plan, lambda: read_seen_epochs(folder / "seen.log"))
    with running(JobRun(Run(JOB, job_text(is_new=False)), folder)) as run:
        operated = Operated(run)
        with (
            running(observer(folder, run.manifests, ".json")) as observing,
            running(journal_feeder(folder, run.store_folder, RATE)) as feeder,
        ):
            watching.look = lambda: operated.look(observing, feeder)
            say(f"{SIDE}: running after {run.wait_running():.0f} s, {RATE:.0f} events/s")
            watching.wait(plan.warm_up_s)
            changed = []
            for change in plan.changes:
                operated.settle(watching)
                changed.append(watching.around(change, partial(operated.change, change, watching)))
        expected = expected_totals(read_sent(folder / "sent.log"))
        wanted = sum(len(sums) for sums in expected.values())
        operated.drain(watching, wanted)
        compared = operated.compared_epochs()
    check = check_totals(expected, total_rows(folder / SINK_FOLDER))
    return Outcome(SIDE, changed, check, len(operated.different), compared)


class Operated:
    """A running job, and the operations that are asked of it by commands."""

    def __init__(self, run: JobRun) -> None:
        self.run = run
        self.different: set[tuple[int, str]] = set()
        """Every (epoch, sink) whose digests were seen to differ; the store forgets old epochs, this does not."""
        self._samples: list[Sample] = []
        self._compared: set[int] = set()

    def look(self, *children: Child) -> None:
        """Whether all is still there and agrees; and where each replica stands."""
        for child in (self.run, *children):
            child.check()
        store = self.run.store
        self.different.update(store.digest_mismatches())
        head = store.head()
        if head is None:
            return
        now_us = wall_us()
        self._samples += [
            Sample(now_us, one.replica, head.epoch - one.epoch) for one in store.progress() if one.state == "running"
        ]
        newest = range(max(store.floor(), head.epoch - 20), head.epoch + 1)
        # Only what two processes computed proves anything; old epochs were looked at before.
        unknown = [epoch for epoch in newest if epoch not in self._compared]
        self._compared.update(epoch for epoch in unknown if len({one.replica for one in store.digests(epoch)}) > 1)

    def settle(self, watching: Watching) -> None:
        """Until the next spare is warm, or for a minute: it takes a core for some seconds, once."""
        waited_s = 0.0
        while waited_s < SETTLE_TIMEOUT_S and not any(one["ready"] for one in spares(self.run.store)):
            watching.wait(1.0)
            waited_s += 1.0

    def change(self, change: Change, watching: Watching) -> Steps:
        """Ask for it by a command, and wait until it is done."""
        if change.partitions is not None:
            words = ["rescale", JOB, "--partitions", str(change.partitions)]
        else:
            path = self.run.folder / "new_job.py"
            path.write_text(job_text(is_new=True), encoding="utf-8")
            words = ["upgrade", str(path), "--same-results"]
        return self.operate(words, watching)

    def operate(self, words: list[str], watching: Watching) -> Steps:
        """One operation, asked for by `lockstep WORDS`; what its steps took."""
        from_us, self._samples = wall_us(), []
        arguments = ["-m", "lockstep", "--project", str(self.run.folder), *words, "--no-wait"]
        with running(
            Child(f"`lockstep {words[0]}`", arguments, self.run.folder / "asking.log", self.run.folder)
        ) as one:
            one.wait_end(COMMAND_TIMEOUT_S)
        operation = self._done(watching)
        return operation_steps(operation, list(events_since(self.run.store, from_us)), self._samples)

    def _done(self, watching: Watching) -> Operation:
        book, waited_s = OperationBook(self.run.store), 0.0
        while True:
            newest = book.all()[-1]
            if newest.state == "done":
                return newest
            if not newest.is_open or waited_s > OPERATION_TIMEOUT_S:
                raise self.run.failure(f"operation {newest.number} ({newest.kind}) is {newest.state}: {newest.error}")
            watching.wait(0.1)
            waited_s += 0.1

    def drain(self, watching: Watching, wanted: int) -> None:
        """Wait until every event that was sent is in the totals, and some epochs more: repeats would come then."""
        watching.look = self.look
        sink, waited_s = self.run.folder / SINK_FOLDER, 0.0
        while waited_s < DRAIN_TIMEOUT_S and _newest_count(sink) < wanted:
            watching.wait(2.0)
            waited_s += 2.0
        watching.wait(3.0)

    def compared_epochs(self) -> int:
        """How many epochs were computed by more than one replica: a comparison of nothing proves nothing."""
        return len(self._compared)


def events_since(store: Store, from_us: int) -> Iterator[StoreEvent]:
    """The events of a store from a moment on."""
    after = 0
    while found := store.events(after_id=after):
        yield from (one for one in found if one[1] >= from_us)
        after = found[-1][0]


def total_rows(sink: Path) -> Iterator[TotalRow]:
    """All rows that were published, in their order."""
    reader = Reader(sink)
    for epoch in reader.epochs():
        table = reader.table(epoch)
        yield from zip(*(table[name].to_pylist() for name in ("customer", "events", "total")), strict=True)


def _newest_count(sink: Path) -> int:
    newest: dict[str, int] = {}
    for customer, events, _ in total_rows(sink):
        newest[customer] = max(events, newest.get(customer, 0))
    return sum(newest.values())
