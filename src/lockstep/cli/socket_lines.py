"""Lines from TCP connections: taken as fast as the caller keeps them, never faster, and in bounded memory.

One thread, and no queue: while the caller writes to disk nobody reads, the kernel's buffers fill, and TCP slows the
sender down. What came meanwhile is one batch at the next call: the slower the disk, the larger the groups.
"""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType

BATCH_BYTES_MAX = 4 * 2**20
"""A batch is one durable append: large enough to be worth its sync, small enough to stay out of memory's way."""
LINE_BYTES_MAX = 2**20
"""A line without an end must not fill the memory: the rest of such a line is skipped."""
PEERS_MAX = 64
"""Further connections wait in the kernel until one of these ends: each may hold a batch's share and an open line."""
CONNECT_TIMEOUT_S = 3.0
BACK_OFF_S = 0.2
BACK_OFF_MAX_S = 10.0
_CUT = 200
"""How much of a refused line is kept: enough to recognise it."""


@dataclass(frozen=True)
class Refused:
    """A line that is no record, and why."""

    line: bytes
    reason: str


@dataclass
class Gathered:
    """What came since the last call."""

    lines: list[bytes] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)


class LineSplitter:
    """Bytes in, whole lines out; holds at most ``line_bytes_max`` bytes of the line that has not ended.

    >>> splitter = LineSplitter()
    >>> splitter.feed(b"one\\ntwo\\r\\nthr"), splitter.feed(b"ee\\n"), splitter.rest
    ([b'one', b'two'], [b'three'], b'')
    """

    def __init__(self, line_bytes_max: int = LINE_BYTES_MAX) -> None:
        self.rest = b""
        self.refused: list[Refused] = []
        self._line_bytes_max = line_bytes_max
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ended in ``chunk``, without their ends; those too long are in ``refused``."""
        *whole, self.rest = (self.rest + chunk).split(b"\n")
        if self._skipping and whole:
            self._skipping = False
            del whole[0]
        kept = []
        for line in whole:
            if len(line) > self._line_bytes_max:
                self._refuse(line)
            else:
                kept.append(line.removesuffix(b"\r"))
        if self._skipping:
            self.rest = b""
        elif len(self.rest) > self._line_bytes_max:
            self._refuse(self.rest)
            self._skipping, self.rest = True, b""
        return kept

    def _refuse(self, line: bytes) -> None:
        self.refused.append(Refused(line[:_CUT], f"the line is longer than {self._line_bytes_max:,} bytes."))


class Stop:
    """Ctrl-C and SIGTERM as something that ``select`` sees: nothing is torn out of the middle of its work."""

    def __init__(self) -> None:
        self.wanted = False
        self._woken, self._wake = socket.socketpair()

    def fileno(self) -> int:
        """Readable once a stop is wanted."""
        return self._woken.fileno()

    def ask(self) -> None:
        """Stop at the next place where nothing is under way."""
        self.wanted = True
        self._wake.send(b"x")

    def wait(self, seconds: float) -> bool:
        """Sleep, unless a stop is wanted first; whether it is."""
        select.select([self], [], [], seconds)
        return self.wanted

    def close(self) -> None:
        """Give the pair back."""
        self._woken.close()
        self._wake.close()


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """A stop that the first Ctrl-C or SIGTERM asks for; a second one ends the process as usual."""
    stop = Stop()
    before = {int(number): signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, before[number])
        stop.ask()

    for number in before:
        signal.signal(number, handle)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        stop.close()


class _Peer:
    def __init__(self, connection: socket.socket, name: str) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.name = name
        self.splitter = LineSplitter()

    def fileno(self) -> int:
        return self.connection.fileno()


class SocketLines:
    """Lines from one connection that is made again when it breaks, or (``listen``) from all that come in."""

    def __init__(self, host: str, port: int, stop: Stop, say: Callable[[str], None], *, listen: bool, once: bool):
        self._address = (host, port)
        self._stop = stop
        self._say = say
        self._once = once
        self._peers: list[_Peer] = []
        self._back_off_s = BACK_OFF_S
        self._tried = False
        self._had_one = False
        self._listener: socket.socket | None = None
        if listen:
            # An address with colons is IPv6; create_server does not find that out by itself.
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._listener = socket.create_server(self._address, family=family)
            self._say(f"listening on {_named(self._listener.getsockname())}; Ctrl-C ends")

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._peers)

    def batches(self) -> Iterator[Gathered]:
        """What comes, a batch at a time, until a stop is wanted (or, with ``once``, the connection has ended)."""
        while not self._stop.wanted and not (self._once and self._had_one and not self._peers):
            if not self._peers and self._listener is None and not self._connect():
                continue
            gathered = self._gather()
            if gathered.lines or gathered.refused:
                yield gathered
        yield self._ended()

    def close(self) -> None:
        """Close every connection."""
        for peer in self._peers:
            peer.connection.close()
        if self._listener is not None:
            self._listener.close()

    def _connect(self) -> bool:
        # One that accepts and closes at once is not asked without a pause either.
        if self._tried and self._stop.wait(self._back_off_s):
            return False
        if self._tried:
            self._back_off_s = min(2 * self._back_off_s, BACK_OFF_MAX_S)
        self._tried = True
        try:
            connection = socket.create_connection(self._address, timeout=CONNECT_TIMEOUT_S)
        except OSError as error:
            said = error.strerror or str(error)
            self._say(f"cannot connect to {_named(self._address)}: {said}; again in {self._back_off_s:.1f} s")
            return False
        self._add(connection, _named(self._address), f"connected to {_named(self._address)}; Ctrl-C ends")
        return True

    def _add(self, connection: socket.socket, name: str, said: str) -> None:
        self._peers.append(_Peer(connection, name))
        self._had_one = True
        self._say(said)

    def _gather(self) -> Gathered:
        """Wait for something, then take all that is there, up to the bound."""
        gathered = Gathered()
        size, wait_s = 0, None
        while size < BATCH_BYTES_MAX and not self._stop.wanted:
            listening = [self._listener] if self._listener is not None and len(self._peers) < PEERS_MAX else []
            waiting: list[Stop | socket.socket | _Peer] = [self._stop, *listening, *self._peers]
            ready = select.select(waiting, [], [], wait_s)[0]
            if not ready:
                break
            wait_s = 0.0
            for one in ready:
                if isinstance(one, _Peer):
                    # A share for each, so that a fast sender does not keep the others waiting.
                    size += self._receive(one, gathered, BATCH_BYTES_MAX // max(1, len(self._peers)))
                elif isinstance(one, socket.socket):
                    connection, address = one.accept()
                    self._add(connection, _named(address), f"{_named(address)} connected")
            if not self._peers:
                break
        return gathered

    def _receive(self, peer: _Peer, gathered: Gathered, bytes_max: int) -> int:
        try:
            chunk = peer.connection.recv(bytes_max)
        except BlockingIOError:
            return 0
        except OSError as error:
            self._leave(peer, gathered, f"lost: {error.strerror or error}", broken=True)
            return 0
        if not chunk:
            self._leave(peer, gathered, "closed by the other side", broken=False)
            return 0
        self._back_off_s = BACK_OFF_S
        gathered.lines += peer.splitter.feed(chunk)
        gathered.refused += peer.splitter.refused
        peer.splitter.refused = []
        return len(chunk)

    def _leave(self, peer: _Peer, gathered: Gathered, said: str, *, broken: bool) -> None:
        """A line without an end is one if the sender ended the connection, and half of one if it broke."""
        if peer.splitter.rest and broken:
            gathered.refused.append(Refused(peer.splitter.rest[:_CUT], "the connection broke within the line."))
        elif peer.splitter.rest:
            gathered.lines.append(peer.splitter.rest.removesuffix(b"\r"))
        peer.connection.close()
        self._peers.remove(peer)
        again = "" if self._once or self._listener else f"; again in {self._back_off_s:.1f} s"
        self._say(f"connection to {peer.name} {said}{again}")

    def _ended(self) -> Gathered:
        """At the end: lines that have not ended are kept as what they are."""
        gathered = Gathered()
        for peer in self._peers:
            if peer.splitter.rest:
                gathered.refused.append(Refused(peer.splitter.rest[:_CUT], "the reading was stopped within the line."))
        return gathered


def _named(address: tuple[object, ...]) -> str:
    return f"{address[0]}:{address[1]}"
