"""Talking to an ensemble: one client for each process, calls that end within the caller's patience.

A connection that is lost in the middle of a write leaves open whether the write was carried out. No code here guesses:
:meth:`Call.put` says that it does not know, and whoever called it reads again and decides by what is there. That is
the same thing to do as after a conflict, so every write is a loop: read, decide, put if nothing has changed.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lockstep.errors import StoreError
from lockstep.store.patience import patience_s

if TYPE_CHECKING:
    from kazoo.client import KazooClient

SESSION_S = 4.0
"""How long the ensemble hears nothing from a process before its leases are gone. Four seconds is the least that a
server with ZooKeeper's default settings agrees to; an election takes below one, and sessions outlive it."""
REQUEST_BYTES_MAX = 1_000_000
"""A server cuts the connection of whoever sends more than jute.maxbuffer, 1,048,575 bytes unless it is set."""
AT_ONCE = 500
"""Requests under way for one call: bounds what a server and this process have in memory."""
_AGAIN_S = 0.01
_OPERATION_BYTES = 100
"""What an operation takes on the wire besides its path and its value, generously."""


def library() -> Any:
    """kazoo, LS0423 if it is not installed."""
    try:
        import kazoo.client
        import kazoo.exceptions
        import kazoo.handlers.threading
        import kazoo.retry
    except ImportError as error:
        raise StoreError(
            "LS0423",
            "ZooKeeper's client is not installed",
            why=f"a store in ZooKeeper needs the package kazoo ({error}).",
            hint="pip install 'lockstep[zookeeper]'",
        ) from error
    return kazoo


def connection_retry() -> Any:
    """When to ask the members again, after none of them served: after 20 ms, and 2 % longer each time, up to 0.1 s.

    So the pause before the next look is 20 ms and 2 % of the time it has lasted so far: an election of half a second is
    found over within 30 ms. That counts several times, since an epoch goes through several processes one after the
    other. Members that stay away are asked ten times a second from the fourth second on.
    """
    return library().retry.KazooRetry(max_tries=-1, delay=0.02, backoff=1.02, max_jitter=0.1, max_delay=0.1)


@dataclass(frozen=True)
class Node:
    """A node as it was read."""

    value: bytes
    version: int
    created: int
    """When it was made, in the ensemble's own order of all changes."""
    session: int
    """Whose node it is, if it goes with a session; 0 if not."""
    modified_us: int = 0
    """When it was changed last, by the clock of whoever led the ensemble then."""


@dataclass(frozen=True)
class Operation:
    """One part of a :meth:`Call.put`."""

    kind: str
    path: str
    value: bytes = b""
    version: int = -1


def check(path: str, version: int) -> Operation:
    """Nothing is put unless the node has this version."""
    return Operation("check", path, version=version)


def create(path: str, value: bytes = b"") -> Operation:
    """Make a node; nothing is put if it is there."""
    return Operation("create", path, value)


def create_ephemeral(path: str, value: bytes) -> Operation:
    """Make a node that goes with this process's session."""
    return Operation("ephemeral", path, value)


def change(path: str, value: bytes, version: int) -> Operation:
    """Give a node a new value, if it still has this version."""
    return Operation("set", path, value, version)


def delete(path: str, version: int = -1) -> Operation:
    """Remove a node, if it is there and has this version."""
    return Operation("delete", path, version=version)


@dataclass(frozen=True)
class Outcome:
    """What became of a :meth:`Call.put`."""

    done: bool
    at: int = -1
    """The operation that was refused; -1 if nobody knows what became of it."""
    reason: str = ""
    """Why: the name of ZooKeeper's error."""


_REFUSALS = ("NodeExistsError", "NoNodeError", "BadVersionError", "NotEmptyError")
_NOT_REACHED = ("RolledBackError", "RuntimeInconsistency")


class Client:
    """The connection of one process to one ensemble; see :func:`shared`."""

    def __init__(self, hosts: str) -> None:
        kazoo = library()
        self.hosts = hosts
        self.users: set[int] = set()
        self.prepared: set[str] = set()
        """Jobs whose nodes are known to be there."""
        self._watches: dict[str, Watch] = {}
        self._lock = threading.Lock()
        self._begun = False
        quiet = logging.getLogger("lockstep.zookeeper")
        quiet.setLevel(logging.CRITICAL + 1)  # every lost connection, many times a second; calls tell what failed
        self.kazoo: KazooClient = kazoo.client.KazooClient(
            hosts=hosts,
            timeout=SESSION_S,
            connection_retry=connection_retry(),
            logger=quiet,
        )

    def begin(self) -> None:
        """Start to connect, once; calls wait for it."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self.kazoo.start_async()

    def session(self) -> int:
        """The session that nodes of this process go with; 0 while there is none."""
        known = self.kazoo.client_id
        return int(known[0]) if known else 0

    def watch(self, path: str) -> Watch:
        """The watch of a path; one for all threads that wait for it."""
        with self._lock:
            return self._watches.setdefault(path, Watch(path))

    def forget(self, watch: Watch) -> None:
        """What it waited for is there."""
        with self._lock:
            self._watches.pop(watch.path, None)

    def end(self) -> None:
        """End the session: leases of this process are free at once."""
        with suppress(Exception):  # kazoo raises what it likes if a server does not answer; the session ends by itself
            self.kazoo.stop()
        with suppress(Exception):
            self.kazoo.close()


class Watch:
    """Wakes those who wait for a node to appear or to go; also when the connection is lost and they have to look."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._waiting: set[threading.Event] = set()
        self._lock = threading.Lock()

    def joined(self) -> threading.Event:
        """An event that is set when there is reason to look; to be asked for before looking."""
        event = threading.Event()
        with self._lock:
            self._waiting.add(event)
        return event

    def left(self, event: threading.Event) -> None:
        """Whoever waited does not any more."""
        with self._lock:
            self._waiting.discard(event)

    def __call__(self, _event: object) -> None:
        """What kazoo calls, once for each time that it was armed."""
        with self._lock:
            for event in self._waiting:
                event.set()


class Call:
    """One operation of a store: its requests, all within the patience with which it began."""

    def __init__(self, client: Client, seconds: float | None = None) -> None:
        self.client = client
        self._seconds = patience_s() if seconds is None else seconds
        self._deadline_s = time.monotonic() + self._seconds
        client.begin()

    def again(self) -> None:
        """Before another attempt: LS0421 if there is no time for it."""
        if time.monotonic() >= self._deadline_s:
            raise self._no_answer("what it tried to change was changed by others, again and again")

    def look(self, path: str) -> Node | None:
        """The node at a path as it is now, None if there is none."""
        return self.look_all([path])[0]

    def look_all(self, paths: Sequence[str]) -> list[Node | None]:
        """Several nodes. Not older than the newest change that was acknowledged to anybody before this call."""
        found: list[Node | None] = []
        for first in range(0, len(paths), AT_ONCE):
            found += map(_node, self._read(partial(_ask_each, "get_async", paths[first : first + AT_ONCE])))
        return found

    def value(self, path: str) -> Node:
        """A node that is there since the store was made."""
        found = self.look(path)
        if found is None:
            raise _refused(f"{path} is missing: somebody removed it")
        return found

    def children(self, path: str) -> list[str]:
        """The names below a path, in no order; none if there is no such path."""
        return self.children_all([path])[0]

    def children_all(self, paths: Sequence[str]) -> list[list[str]]:
        """The names below each of several paths."""
        found: list[list[str]] = []
        for first in range(0, len(paths), AT_ONCE):
            answers = self._read(partial(_ask_each, "get_children_async", paths[first : first + AT_ONCE]))
            found += [list(names or []) for names in answers]
        return found

    def is_there(self, path: str, watch: Watch) -> bool:
        """Whether there is such a node; the watch is told when it appears, changes or goes."""
        return self._read(lambda kazoo: [kazoo.exists_async(path, watch=watch)], fresh=False)[0] is not None

    def put(self, *operations: Operation) -> Outcome:
        """Carry out all of them or none. If it is not done, look again and decide."""
        size = sum(len(one.path) + len(one.value) + _OPERATION_BYTES for one in operations)
        if size > REQUEST_BYTES_MAX:
            raise _too_large(operations[-1].path, size)
        try:
            results = self._answers(lambda kazoo: [_transaction(kazoo, operations).commit_async()])[0]
        except _Lost:
            time.sleep(_AGAIN_S)
            return Outcome(done=False)
        for at, result in enumerate(results):
            if isinstance(result, Exception) and type(result).__name__ not in _NOT_REACHED:
                if type(result).__name__ not in _REFUSALS:
                    raise _refused(f"{operations[at].path}: {type(result).__name__} {result}")
                return Outcome(done=False, at=at, reason=type(result).__name__)
        return Outcome(done=True)

    def forget(self, paths: Sequence[str]) -> None:
        """Remove nodes that may be gone already."""
        for first in range(0, len(paths), AT_ONCE):
            self._read(partial(_ask_each, "delete_async", paths[first : first + AT_ONCE]), fresh=False)

    def make(self, path: str, value: bytes = b"") -> None:
        """A node that stays, and those above it, unless they are there."""
        parts = path.strip("/").split("/")
        for depth in range(1, len(parts) + 1):
            above = "/" + "/".join(parts[:depth])
            while not self.put(create(above, value if depth == len(parts) else b"")).done:
                if self.look(above) is not None:
                    break
                self.again()

    def _read(self, ask: Callable[[Any], list[Any]], *, fresh: bool = True) -> list[Any]:
        """Answers to requests that may be repeated; None for a node that is not there."""

        def in_order(kazoo: Any) -> list[Any]:
            # A member may be behind the others. What follows a sync in the same session is not answered before it.
            return [*([kazoo.sync_async("/")] if fresh else []), *ask(kazoo)]

        while True:
            try:
                return self._answers(in_order)[1 if fresh else 0 :]
            except _Lost as lost:
                if time.monotonic() >= self._deadline_s:
                    raise self._no_answer(str(lost)) from lost
                time.sleep(_AGAIN_S)

    def _answers(self, ask: Callable[[Any], list[Any]]) -> list[Any]:
        kazoo = library()
        gone = (
            kazoo.exceptions.ConnectionLoss,
            kazoo.exceptions.SessionExpiredError,
            kazoo.exceptions.ConnectionClosedError,
            kazoo.exceptions.OperationTimeoutError,
            kazoo.exceptions.SessionMovedError,
            kazoo.handlers.threading.KazooTimeoutError,
        )
        found: list[Any] = []
        try:
            for asked in ask(self.client.kazoo):
                try:
                    found.append(asked.get(timeout=max(0.0, self._deadline_s - time.monotonic())))
                except kazoo.exceptions.NoNodeError:
                    found.append(None)
        except gone as error:
            raise _Lost(type(error).__name__) from error
        except kazoo.exceptions.KazooException as error:
            raise _refused(f"{type(error).__name__} {error}") from error
        return found

    def _no_answer(self, why: str) -> StoreError:
        return StoreError(
            "LS0421",
            f"the coordination service did not answer for {self._seconds:g} seconds",
            why=f"ZooKeeper at {self.client.hosts}: {why}.",
            hint="see whether most members of the ensemble run and can be reached from here; nothing is lost.",
        )


class _Lost(Exception):
    """No answer came, and none will: whether a write was carried out is not known."""


def _ask_each(request: str, paths: Sequence[str], kazoo: Any) -> list[Any]:
    return [getattr(kazoo, request)(path) for path in paths]


def _node(read: tuple[bytes, Any] | None) -> Node | None:
    if read is None:
        return None
    value, stat = read
    return Node(value, stat.version, stat.czxid, stat.ephemeralOwner or 0, stat.mtime * 1000)


def _transaction(kazoo: Any, operations: Sequence[Operation]) -> Any:
    made = kazoo.transaction()
    for one in operations:
        if one.kind == "check":
            made.check(one.path, one.version)
        elif one.kind == "set":
            made.set_data(one.path, one.value, one.version)
        elif one.kind == "delete":
            made.delete(one.path, one.version)
        else:
            made.create(one.path, one.value, ephemeral=one.kind == "ephemeral")
    return made


def _too_large(path: str, size: int) -> StoreError:
    return StoreError(
        "LS0422",
        f"{size:,} bytes are too large for the coordination service, at {path}",
        why=f"ZooKeeper takes at most {REQUEST_BYTES_MAX:,} bytes in one request; nothing of it was written.",
        hint="seal smaller epochs (records_per_epoch_max), or read fewer and larger files.",
    )


def _refused(what: str) -> StoreError:
    return StoreError(
        "LS0424",
        "the coordination service refused a request",
        why=f"{what}.",
        hint="see whether the path in the store's address is Lockstep's own and may be written.",
    )


_clients: dict[str, Client] = {}
_clients_lock = threading.Lock()


def shared(hosts: str, user: int) -> Client:
    """This process's client of an ensemble; ``user`` is one of those for whom it stays open."""
    with _clients_lock:
        client = _clients.get(hosts)
        if client is None:
            client = _clients[hosts] = Client(hosts)
        client.users.add(user)
        return client


def leave(hosts: str, user: int) -> None:
    """``user`` needs it no longer; the last one ends it."""
    with _clients_lock:
        client = _clients.get(hosts)
        if client is None:
            return
        client.users.discard(user)
        if client.users:
            return
        del _clients[hosts]
    client.end()


def _begin_anew() -> None:
    """In a child after ``fork``: the parent's threads are not here, its connection and session are not ours."""
    global _clients_lock
    _clients_lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_begin_anew)
