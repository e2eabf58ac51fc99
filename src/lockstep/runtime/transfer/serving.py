"""Snapshots over HTTP, as a plain function that any server can mount.

========  =========================  ===========================================================
method    path                       what it does
========  =========================  ===========================================================
PUT       offers/OFFER               begin to take a snapshot: {"job", "replica", "incarnation"}
GET       offers/OFFER               the manifest; 202 while the snapshot is taken
GET       offers/OFFER/files/NUMBER  a file by its place in the manifest, from where Range says
DELETE    offers/OFFER               the reader has all of it
========  =========================  ===========================================================

OFFER is a random name that the reader chooses, so that asking twice after a lost answer makes one offer. No path of a
file is ever taken from a question. Every question shows the token; refusals have a Lockstep error as their body.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from lockstep.errors import LockstepError
from lockstep.runtime.transfer.manifest import Wanted, is_offer, refused
from lockstep.runtime.transfer.offers import Offers
from lockstep.security import is_same_token

PREFIX = "/seeding/"
CHUNK_BYTES = 256 * 1024
_QUESTION_BYTES_MAX = 64 * 1024
_RANGE = re.compile(r"bytes=(\d{1,18})-")
_STATUS = {"LS0661": 409, "LS0663": 400, "LS0665": 404, "LS0666": 503}
"""What a refusal is in HTTP; any other is 500."""


def _pieces(*pieces: bytes) -> Generator[bytes]:
    yield from pieces


@dataclass(frozen=True)
class Answer:
    """What the server sends back. ``headers`` has the length of the body; whoever stops early closes the body."""

    status: int
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Length": "0"})
    body: Generator[bytes] = field(default_factory=_pieces)


def answer(
    offers: Offers, token: str | None, method: str, path: str, headers: Mapping[str, str], body: IO[bytes]
) -> Answer:
    """Answer one question. ``token`` None: the server asks for certificates, or listens on loopback alone."""
    given = {name.lower(): value for name, value in headers.items()}
    if token is not None and not is_same_token(given.get("authorization", ""), f"Bearer {token}"):
        # The body was not read, so nothing else can follow on this connection.
        plain = {"Content-Length": "0", "WWW-Authenticate": "Bearer", "Connection": "close"}
        return Answer(401, plain)
    name, _, rest = path.removeprefix(PREFIX + "offers/").partition("/")
    if not path.startswith(PREFIX + "offers/") or not is_offer(name):
        return Answer(404, {"Content-Length": "0", "Connection": "close"})
    try:
        return _routed(offers, method, name, rest, given, body)
    except LockstepError as error:
        return _said(_STATUS.get(error.code, 500), error.to_wire().encode(), **{"Connection": "close"})


def _routed(offers: Offers, method: str, name: str, rest: str, headers: Mapping[str, str], body: IO[bytes]) -> Answer:
    if method == "PUT" and not rest:
        offers.ask(name, _wanted(headers, body))
        return Answer(202)
    if method == "DELETE" and not rest:
        offers.end(name)
        return Answer(204, {})
    if method == "GET" and not rest:
        return _manifest(offers, name)
    if method == "GET" and (number := re.fullmatch(r"files/(\d{1,9})", rest)):
        return _file(offers, name, int(number.group(1)), headers.get("range", "bytes=0-"))
    return Answer(405, {"Content-Length": "0", "Connection": "close"})


def _wanted(headers: Mapping[str, str], body: IO[bytes]) -> Wanted:
    length = headers.get("content-length", "")
    if not length.isdecimal() or int(length) > _QUESTION_BYTES_MAX:
        raise refused("a question says how long it is, and is short")
    try:
        return Wanted(**json.loads(body.read(int(length))))
    except (ValueError, TypeError) as error:
        raise refused(f"a question that does not parse: {error}") from None


def _manifest(offers: Offers, name: str) -> Answer:
    offer = offers.find(name)
    if offer.failure is not None:
        raise offer.failure
    if offer.manifest is None:
        return Answer(202)
    return _said(200, offer.manifest.encode(), **{"Content-Type": "application/json"})


def _file(offers: Offers, name: str, number: int, wanted: str) -> Answer:
    offer = offers.find(name)
    path, asked = offer.file(number), _RANGE.fullmatch(wanted)
    if path is None:
        return Answer(404)
    size = path.stat().st_size
    first = int(asked.group(1)) if asked else size
    if first >= size:
        return Answer(416, {"Content-Length": "0", "Content-Range": f"bytes */{size}"})
    span = {"Content-Length": str(size - first), "Content-Range": f"bytes {first}-{size - 1}/{size}"}
    return Answer(206, span, _read(path, first, lambda: offers.find(name)))


def _read(path: Path, first: int, renew: Callable[[], object]) -> Generator[bytes]:
    """A file from a byte on, with little of it in memory; while it is read the offer stays."""
    with path.open("rb") as file:
        file.seek(first)
        while data := file.read(CHUNK_BYTES):
            yield data
            renew()


def _said(status: int, data: bytes, **headers: str) -> Answer:
    return Answer(status, {"Content-Length": str(len(data)), **headers}, _pieces(data))
