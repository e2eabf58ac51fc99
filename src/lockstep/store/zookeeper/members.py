"""What the members of an ensemble say of themselves: each is asked `srvr`, which it answers by default."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from lockstep.store.zookeeper.address import Address

ASK_S = 1.0
"""How long a member has for its answer: a living one needs milliseconds."""
_ANSWER_BYTES_MAX = 16_384
_AT_ONCE = 8


@dataclass(frozen=True)
class Member:
    """One member, as it answered; ``mode`` is empty if it did not, or does not serve."""

    address: str
    mode: str = ""
    """leader, follower, observer or standalone."""
    version: str = ""
    took_ms: float = 0.0
    trouble: str = ""


def members(address: Address) -> list[Member]:
    """All members that an address names, asked side by side: none is waited for longer than :data:`ASK_S`."""
    named = address.hosts.split(",")
    with ThreadPoolExecutor(min(_AT_ONCE, len(named)), "zookeeper-members") as pool:
        return list(pool.map(_asked, named))


def _asked(address: str) -> Member:
    host, _, port = address.rpartition(":")
    begun_s = time.monotonic()
    try:
        said = _answer(host, int(port))
    except (OSError, OverflowError) as error:
        return Member(address, trouble=str(error) or type(error).__name__)
    found = figures(said)
    took_ms = (time.monotonic() - begun_s) * 1000
    trouble = "" if "Mode" in found else (said.strip()[:100] or "it said nothing")
    return Member(address, found.get("Mode", ""), found.get("Zookeeper version", "").split("-")[0], took_ms, trouble)


def _answer(host: str, port: int) -> str:
    deadline_s = time.monotonic() + ASK_S
    said = b""
    with socket.create_connection((host, port), timeout=ASK_S) as connection:
        connection.sendall(b"srvr")
        while len(said) < _ANSWER_BYTES_MAX and (left_s := deadline_s - time.monotonic()) > 0:
            connection.settimeout(left_s)
            if not (part := connection.recv(4096)):
                break
            said += part
    return said.decode(errors="replace")


def figures(said: str) -> Mapping[str, str]:
    """The lines of an answer.

    >>> figures("Zookeeper version: 3.9.3-c26634f\\nMode: leader\\n")["Mode"]
    'leader'
    """
    pairs = [line.partition(":") for line in said.splitlines()]
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}
