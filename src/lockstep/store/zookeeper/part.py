"""What all parts of a job's store in ZooKeeper have in common: where its nodes are, and how it calls."""

from __future__ import annotations

import time

from lockstep.clock import Clock
from lockstep.errors import StoreError
from lockstep.store.names import checked_name
from lockstep.store.zookeeper.address import Address
from lockstep.store.zookeeper.client import Call, Client, leave, shared

FORMAT = 1
FORMAT_NODE = "format"
DELETED = 1_000_000
"""The format of a store that is being deleted: no release opens it, and older ones say that it is a newer one's."""
FOLDERS = ("entries", "items", "leases", "replicas", "observed", "divergences", "facts")
TELEMETRY_FOLDERS = ("progress", "digests", "mismatches", "published")

LOOK_S = 1.0
"""How long a look of :meth:`Part._wait` may take, however short the wait: an answer takes milliseconds."""


class Part:
    """A job's nodes below the address's path. Nothing is connected before the first call, in whichever process."""

    def __init__(self, address: Address, job: str, clock: Clock) -> None:
        self._address = address
        self._job = job
        self._root = f"{address.root}/jobs/{checked_name('job', job)}"
        self._clock = clock

    def _at(self, *parts: object) -> str:
        return "/".join([self._root, *map(str, parts)])

    def _client(self) -> Client:
        return shared(self._address.hosts, id(self))

    def _call(self, seconds: float | None = None) -> Call:
        """An operation's requests; the job's nodes are there after this."""
        client = self._client()
        call = Call(client, seconds)
        if self._root not in client.prepared:
            self._prepare(call)
            client.prepared.add(self._root)
        return call

    def _prepare(self, call: Call) -> None:
        """Make the nodes of a job, once. The format comes last: whoever finds it finds everything."""
        found = call.look(self._at(FORMAT_NODE))
        if found is None:
            for folder in (*FOLDERS, *TELEMETRY_FOLDERS):
                call.make(self._at(folder))
            for name, value in (("head", b"-1"), ("floor", b"0"), ("events", b"0"), ("latency", b"")):
                call.make(self._at(name), value)
            call.make(self._at(FORMAT_NODE), str(FORMAT).encode())
        elif int(found.value) == DELETED:
            raise being_deleted(self._job)
        elif int(found.value) > FORMAT:
            raise StoreError(
                "LS0401",
                f"{self._root} was written by a newer Lockstep",
                why=f"it has format version {int(found.value)}; this Lockstep knows up to {FORMAT}.",
                hint="run the newer Lockstep, or use another path. Nothing was changed.",
            )

    def _wait(self, path: str, timeout_s: float, *, there: bool) -> bool:
        """Block until a node is there, or is not; False if ``timeout_s`` pass before. Woken by a watch."""
        deadline_s = time.monotonic() + timeout_s
        watch = self._client().watch(path)
        event = watch.joined()
        try:
            while True:
                event.clear()
                try:
                    if self._call(max(LOOK_S, deadline_s - time.monotonic())).is_there(path, watch) == there:
                        watch.left(event)
                        self._client().forget(watch)
                        return True
                except StoreError as error:
                    if error.code != "LS0421":
                        raise
                if not event.wait(max(0.0, deadline_s - time.monotonic())):
                    return False
        finally:
            watch.left(event)

    def _leave(self) -> None:
        leave(self._address.hosts, id(self))


def being_deleted(job: str) -> StoreError:
    """Somebody began to delete a job, and was cut off or is at it."""
    return StoreError(
        "LS0427",
        f'job "{job}" is being deleted',
        why="somebody has begun to delete it, and some of it is gone.",
        hint=f"`lockstep delete {job}` goes on with it; then a job of this name can begin anew.",
    )
