"""The store of a replica that derives its epochs: the ledger is in a file of its own, and the shared one is told later.

Nothing that an epoch waits for asks the shared store: entries and observed event times are written and read here, what
is said about them (progress, digests, publications, events) waits in a queue. A thread puts the entries into the shared
ledger if they are absent there, so that people, retention and replicas that are seeded find them; where another replica
was first, it compares. Both must have derived the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from lockstep.clock import wall_us
from lockstep.errors import StoreError
from lockstep.store.database import Database
from lockstep.store.patience import patience
from lockstep.store.protocols import Digest, Entry, Holder, Item, Progress, Published, Store
from lockstep.store.sealing_rules import to_text
from lockstep.store.sqlite_store import LEDGER_FORMAT, SqliteStore
from lockstep.store.zookeeper.outbox import Outbox

LEDGER_FILE = "derived.db"
"""A replica's own ledger, in its folder."""
TELL_S = 0.25
"""How often the shared store is told, and asked what the others have told."""
TOLD_AT_ONCE = 100
CALL_S = 3.0
"""What one call of the telling thread may take; then it tries again."""
KEPT_EPOCHS = 200
"""Entries that stay here although the shared store has them."""
ORDER = "order"
"""The fact that says at which interval and from which topics epochs are derived."""
ORDER_START = "order-start"
"""The fact that says from when on."""


class LocalLedger(SqliteStore):
    """Entries and observed event times of one replica. No other replica writes here, so nothing has to be agreed on."""

    def put(self, entry: Entry, observed: Mapping[str, int | None] | None = None) -> None:
        """Keep an entry, and what its records said of event time if that is known."""
        with self._database.durable() as connection:
            connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (entry.epoch, to_text(entry)))
        if observed:
            self.add_observed(entry.epoch, observed)

    def belong_to(self, order: str) -> None:
        """Forget everything that was derived in another order: the job was begun anew."""
        if self.put_fact_if_absent(ORDER, order) == order:
            return
        with self._database.durable() as connection:
            for table in ("entries", "observed"):
                connection.execute(f"DELETE FROM {table}")  # noqa: S608 (our own tables)
        self.set_fact(ORDER, order)


def open_ledger(path: Path) -> LocalLedger:
    """A replica's own ledger, created if it is not there."""
    return LocalLedger(Database(path, LEDGER_FORMAT), wall_us)


class DerivedStore:
    """A :class:`~lockstep.store.protocols.Store`: what is not defined here is asked of the shared one."""

    def __init__(self, shared: Store, ledger: LocalLedger, holder: Holder) -> None:
        self._shared = shared
        self._ledger = ledger
        self._holder = holder
        self._outbox = Outbox(on_idle=lambda: None)
        self._told = Telling(shared, ledger, holder)

    def __getattr__(self, operation: str) -> Any:
        return getattr(self._shared, operation)

    def head(self) -> Entry | None:
        """The newest entry that is known here: derived, or told by another replica when last asked."""
        known = [one for one in (self._ledger.head(), self._told.head) if one is not None]
        return max(known, key=lambda one: one.epoch, default=None)

    def entry(self, epoch: int) -> Entry | None:
        """The entry of ``epoch`` if it was derived here."""
        return self._ledger.entry(epoch)

    def wait(self, epoch: int, timeout_s: float) -> Entry | None:
        """Block until ``epoch`` was derived here."""
        return self._ledger.wait(epoch, timeout_s)

    def seal(self, proposal: Entry, holder: Holder, items: Sequence[Item] = ()) -> Entry:
        """Keep what was derived, and have the others told. LS0425 if one of them has derived something else."""
        assert holder == self._holder and not items
        if self._told.disagreement is not None:
            raise self._told.disagreement
        self._ledger.put(proposal)
        self._told.soon()
        return proposal

    def add_observed(self, epoch: int, newest_us: Mapping[str, int | None]) -> None:
        """Keep the highest event time that an epoch's records had, per ``event_time`` step."""
        self._ledger.add_observed(epoch, newest_us)

    def observed(self, epoch: int) -> dict[str, int | None]:
        """What was kept for ``epoch``."""
        return self._ledger.observed(epoch)

    def report(self, progress: Progress) -> None:
        """Say it soon."""
        self._outbox.put("progress", partial(self._shared.report, progress), replaces=progress.replica)

    def add_digests(self, digests: Sequence[Digest]) -> None:
        """Say it soon."""
        self._outbox.put("digests", partial(self._shared.add_digests, digests))

    def add_published(self, published: Published) -> None:
        """Say it soon."""
        self._outbox.put("published", partial(self._shared.add_published, published))

    def add_event(self, kind: str, text: str, replica: str = "") -> None:
        """Say it soon."""
        self._outbox.put("events", partial(self._shared.add_event, kind, text, replica))

    def adopt(self, epoch: int, time_steps: Sequence[str], timeout_s: float) -> None:
        """Have the entry at whose cut the next epoch begins; a seed of another replica stands at one of its epochs.

        That replica may not have told it yet, so this waits. LS0426 if nobody tells it.
        """
        deadline_s = time.monotonic() + timeout_s
        while epoch >= 0 and not _is_whole(self._ledger.entry(epoch), self._ledger.observed(epoch), time_steps):
            entry, observed = self._shared.entry(epoch), self._shared.observed(epoch)
            if entry is not None and _is_whole(entry, observed, time_steps):
                self._ledger.put(entry, observed)
            elif time.monotonic() > deadline_s:
                raise _untold(epoch)
            else:
                time.sleep(TELL_S)

    def start(self) -> None:
        """Tell what an earlier start has left, and begin."""
        self._told.tell()
        self._told.start()

    def close(self) -> None:
        """Tell what is left, if that is possible at once."""
        with patience(CALL_S):
            self._told.stop()
            self._outbox.end()
            self._ledger.close()
            self._shared.close()


class Telling(threading.Thread):
    """Puts what was derived here into the shared ledger, or compares it with what another has put there."""

    def __init__(self, shared: Store, ledger: LocalLedger, holder: Holder) -> None:
        super().__init__(name="telling", daemon=True)
        self._shared = shared
        self._ledger = ledger
        self._holder = holder
        self._woken = threading.Event()
        self._ended = False
        self._compared: int | None = None
        self._trimmed = 0
        self.head: Entry | None = None
        """The newest entry of the shared ledger when it was last asked."""
        self.disagreement: StoreError | None = None

    def soon(self) -> None:
        """There is something to tell."""
        self._woken.set()

    def stop(self) -> None:
        """Tell what is left, once, and end."""
        self._ended = True
        self._woken.set()
        if self.is_alive():
            self.join(timeout=2 * CALL_S)

    def run(self) -> None:
        """Tell until stopped; a store that is away is asked again."""
        while True:
            self._woken.wait(TELL_S)
            self._woken.clear()
            ending = self._ended
            try:
                with patience(CALL_S):
                    self.tell()
            except StoreError as error:
                if error.code == "LS0405":
                    return  # another acts for this replica: whoever reports notices it too
            if ending:
                return
            if not self._ended:
                time.sleep(TELL_S)  # several epochs at once

    def tell(self) -> None:
        """Bring the shared ledger to where this one is."""
        self.head = self._shared.head()
        told = self.head.epoch if self.head is not None else -1
        self._compare_up_to(told)
        for entry in self._ledger.entries(told + 1, told + TOLD_AT_ONCE):
            # This entry's marks rest on it, so it is known by now.
            if observed := self._ledger.observed(entry.epoch - 1):
                self._shared.add_observed(entry.epoch - 1, observed)
            self._compare(self._shared.seal(entry, self._holder), entry)
            self._compared = entry.epoch
        self._trim(told)

    def _trim(self, told: int) -> None:
        """Forget what was told, but for the newest; a replica that is behind still needs what it stands at."""
        newest = self._ledger.head()
        floor = min(told, newest.epoch if newest is not None else -1) - KEPT_EPOCHS
        if floor - self._trimmed >= KEPT_EPOCHS:
            self._ledger.trim(floor)
            self._trimmed = floor

    def _compare_up_to(self, told: int) -> None:
        first = told + 1 if self._compared is None else self._compared + 1
        last = min(told, first + TOLD_AT_ONCE - 1)
        derived = {one.epoch: one for one in self._ledger.entries(first, last)}
        if derived:
            for held in self._shared.entries(min(derived), max(derived)):
                if held.epoch in derived:
                    self._compare(held, derived[held.epoch])
        newest = self._ledger.head()
        # What was not derived here yet is compared when it was.
        self._compared = max(first - 1, min(last, newest.epoch if newest is not None else -1))

    def _compare(self, held: Entry, derived: Entry) -> None:
        if what_counts(held) != what_counts(derived) and self.disagreement is None:
            self.disagreement = _disagree(held, derived)


def what_counts(entry: Entry) -> tuple[object, ...]:
    """What two replicas must derive alike of an epoch."""
    cut = {source: dict(positions) for source, positions in entry.cut.items()}
    times = {step: {name: tuple(one) for name, one in each.items()} for step, each in entry.partitions.items()}
    return (entry.epoch, entry.epoch_time_us, cut, dict(entry.marks), dict(entry.active_us), entry.records, times)


def _is_whole(entry: Entry | None, observed: Mapping[str, int | None], time_steps: Sequence[str]) -> bool:
    return entry is not None and all(step in observed for step in time_steps)


def _disagree(held: Entry, derived: Entry) -> StoreError:
    return StoreError(
        "LS0425",
        f"two replicas derived epoch {derived.epoch} differently",
        why=f"the ledger has {what_counts(held)[1:]}, here it is {what_counts(derived)[1:]}: the log has changed under "
        "them, or the job's code does not give the same result twice.",
        hint="see whether records were removed from a topic, or brokers lost some; run the job under a new name.",
    )


def _untold(epoch: int) -> StoreError:
    return StoreError(
        "LS0426",
        f"epoch {epoch} is not in the ledger yet",
        why="this replica starts from another's snapshot, and the other has died before it told where that epoch ends.",
        hint="nothing to do: it is tried again, and the other tells it when it is back.",
    )
