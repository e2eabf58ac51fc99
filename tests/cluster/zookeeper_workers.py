"""Processes that use a store in ZooKeeper while its servers are hurt; run with `python -m`."""

from __future__ import annotations

import json
import os
import sys
import time

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError

from lockstep.errors import StoreError
from lockstep.store.opening import open_store
from lockstep.store.protocols import Entry, Holder
from lockstep.store.zookeeper.client import connection_retry

JOB = "job"


def proposal(epoch: int, who: str = "") -> Entry:
    """What somebody proposes for an epoch; who it was can be seen."""
    return Entry(epoch, epoch, {"in": {"0": epoch}}, marks={who: 0} if who else {})


def seal(address: str, replica: str, seconds: float) -> None:
    """Seal at full speed, and say of each epoch when the answer came and whose proposal holds."""
    store = open_store(address, JOB)
    holder = store.begin(replica, os.getpid())
    until_s = time.monotonic() + seconds
    epoch = 0
    while time.monotonic() < until_s:
        held = store.seal(proposal(epoch, replica), holder)
        print(json.dumps([time.monotonic(), epoch, held.sealed_by, next(iter(held.marks))]), flush=True)
        epoch += 1
    store.close()


def write(hosts: str, seconds: float) -> None:
    """Make nodes at full speed with nothing but ZooKeeper's client, and say when each was there."""
    client = KazooClient(hosts, timeout=4.0, connection_retry=connection_retry())
    client.start(timeout=60)
    client.ensure_path("/plain")
    until_s, number = time.monotonic() + seconds, 0
    while time.monotonic() < until_s:
        try:
            client.create(f"/plain/{os.getpid()}-{number}")
        except NodeExistsError:
            pass  # the answer to an earlier attempt was lost
        except KazooException:
            time.sleep(0.01)
            continue
        print(json.dumps([time.monotonic(), number]), flush=True)
        number += 1
    client.stop()


def stand_still(address: str) -> None:
    """Take a lease and seal an epoch; after every line that comes, seal the next and say what was answered."""
    store = open_store(address, JOB)
    holder = store.begin("r0", os.getpid())
    print(store.acquire("leader", str(holder), 3600.0), flush=True)
    for epoch, _ in enumerate(sys.stdin):
        try:
            print(store.seal(proposal(epoch), holder).sealed_by, flush=True)
        except StoreError as error:
            print(error.code, flush=True)
    store.close()


def fork(address: str) -> None:
    """Use one store before and after a fork, in parent and child."""
    store = open_store(address, JOB)
    store.begin("r0", os.getpid())
    child = os.fork()
    if child == 0:
        store.seal(proposal(0), Holder("r0", 1))
        store.add_event("child", "was here")
        store.close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    store.seal(proposal(1), Holder("r0", 1))
    print(json.dumps([status, [one.epoch for one in store.entries(0, 9)], [one[2] for one in store.events()]]))
    store.close()


if __name__ == "__main__":
    mode, *given = sys.argv[1:]
    if mode == "seal":
        seal(given[0], given[1], float(given[2]))
    elif mode == "write":
        write(given[0], float(given[1]))
    else:
        {"stand-still": stand_still, "fork": fork}[mode](*given)
