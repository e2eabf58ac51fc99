"""Where a store in ZooKeeper is: ``zookeeper://host:port,host:port/path``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lockstep.errors import StoreError

SCHEME = "zookeeper://"
PORT = 2181
ROOT = "/lockstep"
_HOST = r"[A-Za-z0-9_.-]+(?::[0-9]{1,5})?"
_ADDRESS = re.compile(rf"({_HOST}(?:,{_HOST})*)((?:/[A-Za-z0-9_.-]+)*)/?")


@dataclass(frozen=True)
class Address:
    """The members of an ensemble, and the path below which everything of Lockstep is."""

    hosts: str
    root: str


def parsed(address: str) -> Address:
    """The parts of an address; LS0420 if it is none.

    >>> parsed("zookeeper://a:2181,b/lockstep")
    Address(hosts='a:2181,b:2181', root='/lockstep')
    >>> parsed("zookeeper://a:2182").root
    '/lockstep'
    """
    match = _ADDRESS.fullmatch(address.removeprefix(SCHEME))
    if match is None or any(part in {".", ".."} for part in match[2].split("/")):
        raise StoreError(
            "LS0420",
            f'"{address}" is not an address of a ZooKeeper ensemble',
            why="it is zookeeper://HOST:PORT,HOST:PORT,.../PATH.",
            hint='store = "zookeeper://h1:2181,h2:2181,h3:2181/lockstep" in lockstep.toml.',
        )
    hosts = [host if ":" in host else f"{host}:{PORT}" for host in match[1].split(",")]
    return Address(",".join(hosts), match[2] or ROOT)
