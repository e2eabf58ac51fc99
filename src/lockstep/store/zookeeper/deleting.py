"""Deleting a job's nodes, so that it can be repeated wherever it was cut off.

The format of the job's store is changed first: from then on nobody opens it, older releases neither, and the job is
still listed. Then everything below goes, the deepest first, and the format last.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from lockstep.store.names import checked_name
from lockstep.store.zookeeper.address import Address
from lockstep.store.zookeeper.client import Call, change, create, leave, shared
from lockstep.store.zookeeper.part import DELETED, FORMAT_NODE

HOSTS_NODE = "deleted-at"
"""The hosts that have something of the job: whoever repeats a deletion cannot ask the job's store any more."""


def begin_deleting(address: Address, job: str, hosts: Collection[str]) -> None:
    """From now on nobody opens the job's store; nothing happens if that was said before, or there is none.

    Another process that has it open notices when it opens it anew.
    """
    with _calling(address) as call:
        root = _root(address, job)
        path, noted = f"{root}/{FORMAT_NODE}", json.dumps(sorted(hosts)).encode()
        while (found := call.look(path)) is not None and int(found.value) != DELETED:
            call.put(change(path, str(DELETED).encode(), found.version), create(f"{root}/{HOSTS_NODE}", noted))
            call.again()
        call.client.prepared.discard(root)


def hosts_to_ask(address: Address, job: str) -> list[str]:
    """The hosts that were named when the deletion began; none once all of them have been asked."""
    with _calling(address) as call:
        found = call.look(f"{_root(address, job)}/{HOSTS_NODE}")
        return list(json.loads(found.value)) if found is not None else []


def is_being_deleted(address: Address, job: str) -> bool:
    """Whether somebody has begun to delete it."""
    with _calling(address) as call:
        found = call.look(f"{_root(address, job)}/{FORMAT_NODE}")
        return found is not None and int(found.value) == DELETED


def delete_nodes(address: Address, job: str) -> None:
    """Remove all of a job that :func:`begin_deleting` was called for."""
    root = _root(address, job)
    for paths in reversed(_levels(address, root)):
        with _calling(address) as call:
            call.forget([path for path in paths if path != f"{root}/{FORMAT_NODE}"])
    with _calling(address) as call:
        call.forget([f"{root}/{FORMAT_NODE}"])
        call.forget([root])
        call.client.prepared.discard(root)


def _levels(address: Address, root: str) -> list[list[str]]:
    """All nodes below a job's, by their depth. Thousands of them: many are asked for at once."""
    levels, paths = [], [root]
    while paths:
        with _calling(address) as call:
            found = call.children_all(paths)
        paths = [f"{path}/{name}" for path, names in zip(paths, found, strict=True) for name in names]
        if paths:
            levels.append(paths)
    return levels


def _root(address: Address, job: str) -> str:
    return f"{address.root}/jobs/{checked_name('job', job)}"


@contextmanager
def _calling(address: Address) -> Iterator[Call]:
    user = object()
    try:
        yield Call(shared(address.hosts, id(user)))
    finally:
        leave(address.hosts, id(user))
