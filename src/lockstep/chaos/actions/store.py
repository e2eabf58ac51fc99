"""The store made slow, made to fail, and locked. The first two by the injected layer, the last one for real."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from random import Random

from lockstep.chaos.vocabulary import Action, Deed, Need, Part, RunningJob
from lockstep.clock import US_PER_S, wall_us
from lockstep.faults.orders import Orders, StoreOrder
from lockstep.store.opening import address_in, lock_file

SLOW_S = (3.0, 10.0)
DELAY_S = (0.005, 0.08)
"""For each operation; an epoch needs about a dozen."""
FAILING_S = (0.5, 4.0)
LOCKED_S = (1.0, 8.0)
"""Well below the 30 s for which SQLite waits."""
WRITES = (
    "seal", "begin_at", "trim", "drop_items", "acquire", "release", "begin", "retire", "report", "remove",
    "add_digests", "add_published", "add_divergence", "judge", "add_observed", "add_event",
    "put_fact_if_absent", "set_fact", "swap_fact",
)  # fmt: skip
"""The operations that write."""
ERRORS = {"LS0404": "disk full", "LS0413": "locked"}


class DelayStore(Action):
    """Every operation takes longer."""

    name = "delay-store"
    title = "delay every operation of the store, for everybody or for one replica"
    requires = frozenset({Need.ALL_REPLICAS, Need.FAULTS})
    takes = frozenset({Part.STORE})
    lasts_s_max = SLOW_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order."""
        who = _who(running, draw)
        delay_s, lasts_s = round(draw.uniform(*DELAY_S), 3), round(draw.uniform(*SLOW_S), 1)
        order = StoreOrder(_name(self, draw), _until_us(lasts_s), replica=who, delay_s=delay_s)
        return _given(running, order, f"every operation {delay_s * 1000:.0f} ms slower", lasts_s)


class FailStore(Action):
    """Operations fail as SQLite's do; some were carried out all the same."""

    name = "fail-store"
    title = "fail operations of the store (locked, disk full) by chance, before or after they were carried out"
    requires = frozenset({Need.ALL_REPLICAS, Need.FAULTS})
    takes = frozenset({Part.STORE})
    lasts_s_max = FAILING_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order."""
        who = _who(running, draw)
        error, lasts_s = draw.choice(sorted(ERRORS)), round(draw.uniform(*FAILING_S), 1)
        chance, after = draw.choice((0.05, 0.3, 1.0)), draw.random() < 0.5
        order = StoreOrder(_name(self, draw), _until_us(lasts_s), replica=who, error=error, after=after, chance=chance)
        when = "after they were carried out" if after else "before they are carried out"
        return _given(running, order, f"{chance:.0%} of operations fail ({ERRORS[error]}) {when}", lasts_s)


class LockStore(Action):
    """Somebody holds the write lock of the real file: a backup, a person with a database shell."""

    name = "lock-store"
    title = "hold the write lock of the job's SQLite file for seconds, from another process"
    requires = frozenset({Need.ALL_REPLICAS})
    takes = frozenset({Part.STORE})
    lasts_s_max = LOCKED_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Begin a transaction and leave it."""
        path = lock_file(address_in(running.store_folder), running.job)
        assert path is not None, "chaos runs over an embedded store"
        lasts_s = round(draw.uniform(*LOCKED_S), 1)
        connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
        connection.execute("BEGIN IMMEDIATE")
        return Deed(f"{path.name} is locked for writing for {lasts_s} s", lasts_s=lasts_s, undo=_let_go(connection))


class FillStore(Action):
    """What a full disk does to the store, where no disk can be filled: reading goes on, nothing can be written."""

    name = "fill-store"
    title = "fail every write to the store as on a full disk, for everybody (injected; fill-disk fills a real one)"
    requires = frozenset({Need.ALL_REPLICAS, Need.FAULTS})
    takes = frozenset({Part.STORE})
    lasts_s_max = FAILING_S[1]

    def begin(self, running: RunningJob, draw: Random) -> Deed:
        """Give the order."""
        lasts_s = round(draw.uniform(*FAILING_S), 1)
        order = StoreOrder(_name(self, draw), _until_us(lasts_s), WRITES, error="LS0404")
        return _given(running, order, "no write succeeds (disk full)", lasts_s)


def _let_go(connection: sqlite3.Connection) -> Callable[[], None]:
    def undo() -> None:
        connection.execute("ROLLBACK")
        connection.close()

    return undo


def _who(running: RunningJob, draw: Random) -> str:
    """One replica, or in one case of three everybody, the supervisor too."""
    return draw.choice([*(one.name for one in running.spare_replicas()), ""])


def _name(action: Action, draw: Random) -> str:
    return f"{action.name}-{draw.getrandbits(40):010x}"


def _until_us(lasts_s: float) -> int:
    """The order ends by itself, should chaos be killed before it takes it back."""
    return wall_us() + round(lasts_s * US_PER_S)


def _given(running: RunningJob, order: StoreOrder, what: str, lasts_s: float) -> Deed:
    orders = Orders(running.orders)
    orders.give(order)
    return Deed(
        f"for {order.replica or 'everybody'} {what}, for {lasts_s} s",
        data={"order": order.name, "for": order.replica, "delay_s": order.delay_s, "error": order.error},
        lasts_s=lasts_s,
        undo=lambda: _end(orders, order.name),
    )


def _end(orders: Orders, name: str) -> None:
    orders.take_back(name)


ACTIONS: tuple[Action, ...] = (DelayStore(), FailStore(), FillStore(), LockStore())
