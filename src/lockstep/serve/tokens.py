"""Who may ask the service, and for what: tokens with a scope, of which only hashes are kept, and sessions of browsers.

Not the token that hosts show each other (``lockstep token``): that one is obeyed in everything and shared by machines;
these belong to people and programs, and each can be taken away.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.credentials import write_private
from lockstep.errors import ServiceError
from lockstep.security import default_token_file, new_token
from lockstep.store.names import checked_name

Scope = Literal["read", "operate", "submit"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""Each implies those before it: whoever may submit code may also change and look at jobs."""
TOKENS_MAX = 1_000
SESSION_S = 12 * 3600
SESSIONS_MAX = 1_000
_FILE = "service-tokens.json"


def default_tokens_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the tokens' hashes are kept: beside the token of the host, for the same reasons.

    >>> default_tokens_file({"XDG_CONFIG_HOME": "/home/ann/.config"}).as_posix()
    '/home/ann/.config/lockstep/service-tokens.json'
    """
    return default_token_file(environ).with_name(_FILE)


@dataclass(frozen=True)
class Token:
    """One that was made. The token itself is known to its owner alone: it is 256 random bits, so its hash is safe."""

    name: str
    scope: Scope
    sha256: str
    made_us: int


@dataclass(frozen=True)
class Caller:
    """Who asks."""

    name: str
    scope: Scope

    def may(self, scope: Scope) -> bool:
        """Whether the caller's scope covers this one.

        >>> Caller("ann", "operate").may("read"), Caller("ann", "operate").may("submit")
        (True, False)
        """
        return SCOPES.index(self.scope) >= SCOPES.index(scope)


class TokenBook:
    """The tokens in one file, which commands change while services read it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = TokenBook(Path(folder, "tokens.json"))
    ...     made = book.create("ann", "operate")
    ...     book.find(made), book.find("guess"), [one.name for one in book.all()]
    (Caller(name='ann', scope='operate'), None, ['ann'])
    """

    def __init__(self, path: Path, clock: Clock = wall_us) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self._tokens: tuple[Token, ...] = ()

    def all(self) -> tuple[Token, ...]:
        """All tokens, oldest first. The file is read again when it was changed."""
        with self._lock:
            try:
                status = self.path.stat()
            except FileNotFoundError:
                self._seen, self._tokens = None, ()
                return ()
            seen = (status.st_mtime_ns, status.st_size, status.st_ino)
            if seen != self._seen:
                self._tokens, self._seen = _parsed(self.path), seen
            return self._tokens

    @property
    def is_used(self) -> bool:
        """Whether tokens were ever made here: revoking the last one must not let everybody in."""
        return self.path.exists()

    def find(self, given: str) -> Caller | None:
        """Whose token this is. All are compared, each in a time that does not depend on how much of it is right."""
        digest = _digest(given)
        found = [one for one in self.all() if hmac.compare_digest(one.sha256, digest)]
        return Caller(found[0].name, found[0].scope) if found else None

    def create(self, name: str, scope: Scope) -> str:
        """Make a token; it is shown this once. LS0772 if there is one of that name."""
        checked_name("token", name)
        token = new_token()
        with self._changing() as tokens:
            if any(one.name == name for one in tokens):
                raise _refused(f'there is a token "{name}" already', "revoke it first, or give this one another name.")
            if len(tokens) >= TOKENS_MAX:
                raise _refused(f"there are {TOKENS_MAX:,} tokens", "revoke those that nobody uses.")
            tokens.append(Token(name, scope, _digest(token), self._clock()))
        return token

    def revoke(self, name: str) -> None:
        """Take a token away; services refuse it from their next request on. LS0772 if there is none."""
        with self._changing() as tokens:
            kept = [one for one in tokens if one.name != name]
            if len(kept) == len(tokens):
                there = ", ".join(one.name for one in tokens) or "none"
                raise _refused(f'there is no token "{name}"', f"those that were made are: {there}.")
            tokens[:] = kept

    @contextmanager
    def _changing(self) -> Iterator[list[Token]]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(f".{self.path.name}.lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                tokens = list(_parsed(self.path)) if self.path.exists() else []
                yield tokens
                text = json.dumps({"format": 1, "tokens": [asdict(one) for one in tokens]}, indent=2)
                temporary = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
                write_private(temporary, text + "\n")
                temporary.replace(self.path)
        except OSError as error:
            raise _refused(f"{self.path} cannot be written", f"{error.strerror or error}.") from None


class Sessions:
    """Browsers that have shown a token: a random id in a cookie, which stands for the token's name while it is valid.

    Kept in memory, and no more than :data:`SESSIONS_MAX`: after a restart of the service people show their token again.
    """

    def __init__(self, book: TokenBook, clock: Clock = wall_us) -> None:
        self._book, self._clock = book, clock
        self._sessions: dict[str, tuple[str, int]] = {}
        self._lock = threading.Lock()

    def begin(self, token: str) -> str | None:
        """The id of a new session; None if the token is not known."""
        caller = self._book.find(token)
        if caller is None:
            return None
        session = secrets.token_urlsafe(32)
        with self._lock:
            while len(self._sessions) >= SESSIONS_MAX:
                self._sessions.pop(next(iter(self._sessions)))
            self._sessions[_digest(session)] = (caller.name, self._clock() + SESSION_S * US_PER_S)
        return session

    def find(self, session: str) -> Caller | None:
        """Who began a session; None if it is over, or if its token was revoked meanwhile."""
        with self._lock:
            name, until_us = self._sessions.get(_digest(session), ("", 0))
        if until_us <= self._clock():
            return None
        return next((Caller(one.name, one.scope) for one in self._book.all() if one.name == name), None)

    def end(self, session: str) -> None:
        """Forget a session."""
        with self._lock:
            self._sessions.pop(_digest(session), None)


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()


def _parsed(path: Path) -> tuple[Token, ...]:
    try:
        return tuple(Token(**one) for one in json.loads(path.read_text(encoding="utf-8"))["tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        # Nobody is let in by a file that cannot be read, and nobody is locked out without being told why.
        raise _refused(f"the tokens in {path} cannot be read", f"{type(error).__name__}: {error}.") from None


def _refused(fact: str, why: str) -> ServiceError:
    return ServiceError("LS0772", fact, why=why, hint="`lockstep service-token list` shows the tokens.")
