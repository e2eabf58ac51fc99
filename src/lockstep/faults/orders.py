"""Orders as files: plain JSON, written whole or not at all, claimed by an atomic rename.

A folder of orders has four rooms. ``orders`` holds what is to be obeyed; whoever moves a file from there to ``claimed``
obeys it, so nobody else does; ``obeyed`` says who did, where and when, written *before* the deed, which may be the last
thing that process does; ``refused`` keeps what could not be read.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from lockstep.clock import wall_us
from lockstep.errors import RunError

PENDING, CLAIMED, OBEYED, REFUSED = "orders", "claimed", "obeyed", "refused"
TIMES_LIMIT = 10_000
"""Most times that one order may be obeyed: each leaves a file."""


class Window(StrEnum):
    """The moments in the life of an epoch at which a crash could lose or repeat something."""

    INSIDE_TRANSACTION = "inside-transaction"
    """The entry is written and not committed: this process holds the store's write lock."""
    SEALED_NOT_RUN = "sealed-not-run"
    RUN_NO_DIGEST = "run-no-digest"
    DIGEST_NOT_PUBLISHED = "digest-not-published"
    BETWEEN_TWO_SINKS = "between-two-sinks"
    PUBLISHED_NOT_NOTED = "published-not-noted"
    """In the sinks, but the store has not been told yet."""
    PUBLISHED_NOT_COMMITTED = "published-not-committed"
    SEEDING_HALF_DONE = "seeding-half-done"
    """The old checkpoint is gone, the new one not yet in its place."""


class Harm(StrEnum):
    """What is done at a window."""

    KILL = "kill"
    """kill -9 of the whole replica: driver, JVM and Python workers."""
    KILL_DRIVER = "kill-driver"
    KILL_JVM = "kill-jvm"
    KILL_WORKERS = "kill-workers"
    STOP = "stop"
    """SIGSTOP of the whole replica: it holds whatever it held, and does nothing until somebody lets it go on."""
    PAUSE = "pause"
    """The thread that got there waits; the rest of the replica goes on."""


@dataclass(frozen=True)
class WindowOrder:
    """Do something to a replica when it reaches a window. Obeyed once."""

    kind: ClassVar[str] = "window"
    name: str
    window: Window
    harm: Harm = Harm.KILL
    replica: str = ""
    """Whose; empty for whoever comes first."""
    from_epoch: int = 0
    leading: bool = False
    """Only where this replica is the one that seals or publishes, not where it repeats what another has done."""
    pause_s: float = 0.0

    def __post_init__(self) -> None:
        _check_name(self.name)
        # What came from a file are plain words; these raise ValueError for one that is none of them.
        object.__setattr__(self, "window", Window(self.window))
        object.__setattr__(self, "harm", Harm(self.harm))


@dataclass(frozen=True)
class StoreOrder:
    """Delay or fail operations of the store, until a time. The real operation stands behind it."""

    kind: ClassVar[str] = "store"
    name: str
    until_us: int
    operations: tuple[str, ...] = ("*",)
    """Names of methods of the store; ``*`` for all of them."""
    replica: str = ""
    """Whose; empty for everybody, the supervisor too."""
    delay_s: float = 0.0
    error: str = ""
    """LS0404 (disk full) or LS0413 (locked): what a store says when it cannot for a while. Empty: none."""
    after: bool = False
    """Whether the operation is carried out before it fails: done, and nobody was told."""
    chance: float = 1.0
    times_max: int | None = None
    """How many operations it hits, counted over all processes."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        object.__setattr__(self, "operations", tuple(self.operations))
        if self.error not in ("", "LS0404", "LS0413"):
            raise ValueError(f'error "{self.error}": a store that is busy or full says LS0404 or LS0413')
        if not 0 <= self.chance <= 1:
            raise ValueError(f"chance {self.chance}: it is between 0 and 1")
        if self.times_max is not None and not 0 < self.times_max <= TIMES_LIMIT:
            raise ValueError(f"times_max {self.times_max}: it is between 1 and {TIMES_LIMIT}")


Order = WindowOrder | StoreOrder
_KINDS: Mapping[str, type[WindowOrder] | type[StoreOrder]] = {"window": WindowOrder, "store": StoreOrder}


@dataclass(frozen=True)
class Obeyed:
    """Who obeyed an order, and where."""

    name: str
    window: str
    replica: str
    epoch: int
    pid: int
    at_us: int


class Orders:
    """The orders in one folder, from both sides: who gives them and who obeys them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     orders = Orders(Path(folder))
    ...     orders.give(WindowOrder("first", Window.DIGEST_NOT_PUBLISHED, replica="r0"))
    ...     print([order.name for order in orders.pending()])
    ...     print(orders.claim("first"), orders.claim("first"))
    ['first']
    True False
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for room in (PENDING, CLAIMED, OBEYED, REFUSED):
            (folder / room).mkdir(parents=True, exist_ok=True)
        self._known: dict[str, Order] = {}

    def give(self, order: Order) -> None:
        """Let it be obeyed from now on. A name is used once."""
        if any((self.folder / room / f"{order.name}.json").exists() for room in (PENDING, CLAIMED)):
            raise RunError("LS0671", f'there was an order "{order.name}" already', hint="give it another name.")
        _write_whole(self.folder / PENDING / f"{order.name}.json", {"kind": order.kind, **asdict(order)})

    def take_back(self, name: str) -> bool:
        """Let it not be obeyed any more; False if it was claimed already."""
        return self.claim(name)

    def pending(self) -> list[Order]:
        """What is to be obeyed now, by name."""
        paths = sorted(path for path in (self.folder / PENDING).iterdir() if path.suffix == ".json")
        found = [self._read(path) for path in paths]
        return [order for order in found if order is not None]

    def claim(self, name: str) -> bool:
        """Whether it is ours to obey: an atomic rename, so at most one process is told yes."""
        try:
            (self.folder / PENDING / f"{name}.json").rename(self.folder / CLAIMED / f"{name}.json")
        except FileNotFoundError:
            return False
        return True

    def claim_one_of(self, order: StoreOrder) -> bool:
        """Whether one more operation may be hit by an order with a number of times."""
        for number in range(order.times_max or 0):
            try:
                handle = os.open(self.folder / CLAIMED / f"{order.name}.{number}", os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue
            os.close(handle)
            return True
        return False

    def note_obeyed(self, name: str, window: Window, replica: str, epoch: int) -> None:
        """Say that it is being obeyed, before it is: the deed may be the end of this process."""
        done = Obeyed(name, window.value, replica, epoch, os.getpid(), wall_us())
        _write_whole(self.folder / OBEYED / f"{name}.json", asdict(done))

    def obeyed(self, name: str) -> Obeyed | None:
        """Who obeyed it, None if nobody has yet."""
        try:
            return Obeyed(**json.loads((self.folder / OBEYED / f"{name}.json").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None

    def _read(self, path: Path) -> Order | None:
        # Orders are never changed once given, so each is read once.
        if path.stem not in self._known:
            try:
                self._known[path.stem] = _parsed(path.read_text(encoding="utf-8"), path.stem)
            except FileNotFoundError:
                return None
            except (ValueError, TypeError, KeyError) as error:
                self._refuse(path, error)
                return None
        return self._known[path.stem]

    def _refuse(self, path: Path, error: Exception) -> None:
        """An order that means nothing must not end a replica: it is put away, and said."""
        print(f"LS0671 the order {path} cannot be read: {error}", file=sys.stderr, flush=True)
        try:
            path.rename(self.folder / REFUSED / path.name)
        except FileNotFoundError:
            return  # somebody else has put it away


def _parsed(text: str, name: str) -> Order:
    body: dict[str, Any] = json.loads(text)
    kind = _KINDS[body.pop("kind")]
    if unknown := sorted(set(body) - {one.name for one in fields(kind)}):
        raise ValueError(f"unknown fields: {', '.join(unknown)}")
    if body.get("name") != name:
        raise ValueError(f'its name is "{body.get("name")}", its file\'s "{name}"')
    return kind(**body)


def _check_name(name: str) -> None:
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise ValueError(f'order "{name}": a name has letters, digits, - and _')


def _write_whole(path: Path, body: Mapping[str, Any]) -> None:
    temporary = path.with_name(f"{path.stem}.{secrets.token_hex(4)}.tmp")
    temporary.write_text(json.dumps(body), encoding="utf-8")
    temporary.replace(path)
