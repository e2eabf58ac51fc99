"""A replica killed in one of the crash windows of the life of an epoch: where no kill from outside can aim at."""

from __future__ import annotations

from random import Random
from typing import ClassVar

import psutil

from lockstep.agent.processes import kill_tree
from lockstep.chaos.actions.processes import continue_all, stopped_below, victim
from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob
from lockstep.faults.orders import Harm, Orders, Window, WindowOrder
from lockstep.store.protocols import state_stage

REACHED_S_MAX = 15.0
"""Every epoch passes every window, and a heartbeat makes one every second: by then it was reached, or never is."""
SEEDED_S_MAX = 60.0
"""A replica takes its seed last, after its JVM is up."""
STOPPED_S_MAX = 30.0
"""The supervisor ends it after ``lag_timeout_s``; if it does not, the run has to go on all the same."""
LEADING_SHARE = 0.5


class CrashWindow(Action):
    """kill -9 of a replica's whole tree, by itself, in a window."""

    requires = frozenset({Need.OTHER_REPLICA, Need.FAULTS})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = REACHED_S_MAX
    weight = 0.5
    window: ClassVar[Window]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order; every second time only where this replica is the first there, if it ever is."""
        one = victim(running, draw)
        leading = draw.random() < LEADING_SHARE
        orders = Orders(running.orders)
        order = WindowOrder(f"{self.name}-{draw.getrandbits(40):010x}", self.window, replica=one.name, leading=leading)
        orders.give(order)
        where = f"{one.name} is to be killed {_words(self.window)}"
        return Deed(
            f"{where}, where it is the first" if leading else where,
            replica=one.name,
            data={"order": order.name, "window": self.window.value, "leading": leading},
            lasts_s=REACHED_S_MAX,
            undo=lambda: _take_back(orders, order.name),
            happened=lambda: orders.obeyed(order.name) is not None,
        )


class InsideTransaction(CrashWindow):
    """Its entry is written and not committed: nobody may ever see it."""

    name = "crash-inside-transaction"
    title = "kill -9 a replica inside the transaction that seals an epoch"
    window = Window.INSIDE_TRANSACTION


class StopInTransaction(Action):
    """It can neither go on nor be asked to: whoever wants to write the store waits for it."""

    name = "stop-in-transaction"
    title = "SIGSTOP a replica inside a transaction of the store, whose write lock it holds: the others must go on"
    requires = frozenset({Need.OTHER_REPLICA, Need.FAULTS})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = REACHED_S_MAX + STOPPED_S_MAX
    weight = 0.5

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order; whoever is still stopped at the end is let go on."""
        one = victim(running, draw)
        orders = Orders(running.orders)
        name = f"{self.name}-{draw.getrandbits(40):010x}"
        orders.give(WindowOrder(name, Window.INSIDE_TRANSACTION, Harm.STOP, replica=one.name))

        def stopped() -> list[psutil.Process]:
            obeyed = orders.obeyed(name)
            return stopped_below(obeyed.pid) if obeyed is not None else []

        def undo() -> None:
            orders.take_back(name)
            continue_all(stopped()[::-1])

        return Deed(
            f"{one.name} is to be stopped while it holds the store's write lock",
            replica=one.name,
            data={"order": name, "window": Window.INSIDE_TRANSACTION.value},
            lasts_s=self.lasts_s_max,
            undo=undo,
            happened=lambda: orders.obeyed(name) is not None,
            ended=lambda: not stopped(),
        )


class SealedNotRun(CrashWindow):
    """Its entry is in the ledger; whoever sealed it computes nothing any more."""

    name = "crash-sealed-not-run"
    title = "kill -9 a replica when it has sealed an epoch and not run it"
    window = Window.SEALED_NOT_RUN


class RunNoDigest(CrashWindow):
    """Computed, and nobody knows."""

    name = "crash-run-no-digest"
    title = "kill -9 a replica when it has run an epoch and reported no digest"
    window = Window.RUN_NO_DIGEST


class DigestNotPublished(CrashWindow):
    """Its digest is in the store, its rows are nowhere."""

    name = "crash-digest-not-published"
    title = "kill -9 a replica when it has reported an epoch's digest and not published it"
    window = Window.DIGEST_NOT_PUBLISHED


class BetweenTwoSinks(CrashWindow):
    """One sink has the epoch, the next does not."""

    name = "crash-between-two-sinks"
    title = "kill -9 a replica when it has published an epoch to one sink and not to the next"
    window = Window.BETWEEN_TWO_SINKS

    def missing(self, running: RunningJob) -> str | None:
        """There have to be two sinks."""
        if (reason := super().missing(running)) is not None:
            return reason
        head = running.store.head()
        digests = running.store.digests(max(0, head.epoch - 1)) if head is not None else []
        sinks = {one.sink for one in digests if state_stage(one.sink) is None}
        return None if len(sinks) > 1 else "the job has one sink"


class PublishedNotNoted(CrashWindow):
    """The sinks have it, the store does not know."""

    name = "crash-published-not-noted"
    title = "kill -9 a replica when it has published an epoch and not told the store"
    window = Window.PUBLISHED_NOT_NOTED


class PublishedNotCommitted(CrashWindow):
    """The sinks have it, its own checkpoint does not: it is replayed."""

    name = "crash-published-not-committed"
    title = "kill -9 a replica when it has published an epoch and Spark has not committed it"
    window = Window.PUBLISHED_NOT_COMMITTED


class SeedingHalfDone(Action):
    """Killed once to make it take a seed, and again in the middle of that."""

    name = "crash-seeding-half-done"
    title = "kill -9 a replica, and again when it is being seeded: its old checkpoint is gone, the new one not in place"
    requires = frozenset({Need.OTHER_REPLICA, Need.FAULTS})
    takes = frozenset({Part.REPLICA})
    lasts_s_max = SEEDED_S_MAX
    weight = 0.5

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order, then kill it."""
        one = victim(running, draw)
        orders = Orders(running.orders)
        order = WindowOrder(f"{self.name}-{draw.getrandbits(40):010x}", Window.SEEDING_HALF_DONE, replica=one.name)
        orders.give(order)
        kill_tree(one.pid)
        return Deed(
            f"kill -9 of all of {one.name} ({one.pid}), and again when it is half seeded",
            replica=one.name,
            data={"order": order.name, "pid": one.pid},
            lasts_s=SEEDED_S_MAX,
            undo=lambda: _take_back(orders, order.name),
            happened=lambda: orders.obeyed(order.name) is not None,
        )


def _take_back(orders: Orders, name: str) -> None:
    orders.take_back(name)


def _words(window: Window) -> str:
    """As a part of a sentence.

    >>> _words(Window.DIGEST_NOT_PUBLISHED)
    'at "digest, not published"'
    """
    return f'at "{window.value.replace("-not-", ", not ").replace("-no-", ", no ").replace("-", " ")}"'


ACTIONS: tuple[Action, ...] = (
    InsideTransaction(),
    StopInTransaction(),
    SealedNotRun(),
    RunNoDigest(),
    DigestNotPublished(),
    BetweenTwoSinks(),
    PublishedNotNoted(),
    PublishedNotCommitted(),
    SeedingHalfDone(),
)
