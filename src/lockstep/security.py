"""How hosts trust each other: a shared token, TLS, and which addresses may be listened on.

Light on purpose, like ``credentials.py``: replicas import it on their way to their first epoch.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import secrets
import ssl
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lockstep.credentials import hide_secrets, write_private
from lockstep.errors import EnvironmentError_

TOKEN_VARIABLE = "LOCKSTEP_TOKEN"  # noqa: S105 - a name, not a token
TOKEN_BYTES = 32
_TOKEN = re.compile(r"[A-Za-z0-9_-]{32,512}")
"""What may stand in a header as it is, and is too long to be guessed."""


def default_token_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a host keeps its token.

    Not in the project's ``.lockstep``: people remove that folder to begin anew, and copy and archive projects; the
    token belongs to the host, and all its jobs use the same one.

    >>> default_token_file({"XDG_CONFIG_HOME": "/home/ann/.config"}).as_posix()
    '/home/ann/.config/lockstep/token'
    """
    home = environ.get("XDG_CONFIG_HOME", "")
    return (Path(home) if home else Path.home() / ".config") / "lockstep" / "token"


def new_token() -> str:
    """A token that nobody can guess; from now on this process tells it nobody.

    >>> len(new_token())
    43
    """
    return _known(secrets.token_urlsafe(TOKEN_BYTES))


def write_token(path: Path, token: str, *, replace: bool) -> None:
    """Keep a token where its owner alone can read it; one that is there stays unless it is to be replaced."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(temporary, token + "\n")
        if replace:
            temporary.replace(path)
        else:
            # A link, not a rename: two who make one at the same time must end with the same.
            os.link(temporary, path)
    except FileExistsError:
        raise EnvironmentError_(
            "LS0030",
            f"there is a token in {path} already",
            why="hosts with another token than the rest are refused by them, so it is not replaced by accident.",
            hint="copy it to the other hosts; `lockstep token --replace` makes another one.",
        ) from None
    except OSError as error:
        raise EnvironmentError_(
            "LS0030",
            f"no token can be written to {path}",
            why=f"{error.strerror or error}.",
            hint="name a file in a folder that you may write: lockstep token --file FILE.",
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def load_token(path: Path | None = None, environ: Mapping[str, str] = os.environ) -> str | None:
    """The token of this host: from the variable, else from the file. None if it has none.

    A file that is named has to be there; the usual one need not.

    >>> load_token(environ={"LOCKSTEP_TOKEN": "k" * 43}) == "k" * 43
    True
    """
    if said := environ.get(TOKEN_VARIABLE, "").strip():
        return _checked(said, f"the variable {TOKEN_VARIABLE}")
    wanted = path or default_token_file(environ)
    if path is None and not wanted.exists():
        return None
    return _checked(_read_private(wanted), str(wanted))


def _read_private(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise EnvironmentError_(
                    "LS0031",
                    f"the token in {path} is not private",
                    why=f"its mode is {mode:04o}: others on this host can read it, and whoever has it is obeyed.",
                    hint=f"`lockstep token --replace` makes a new one, which the other hosts need too; if nobody can "
                    f"have read it, chmod 600 {path}.",
                )
            return file.read(4096).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise EnvironmentError_(
            "LS0031", f"the token in {path} cannot be read", why=f"{error}.", hint="make one with `lockstep token`."
        ) from None


def _checked(token: str, where: str) -> str:
    _known(token)
    if _TOKEN.fullmatch(token) is None:
        raise EnvironmentError_(
            "LS0031",
            f"what stands in {where} is no token",
            why="a token has 32 characters or more, of letters, digits, - and _.",
            hint="make one with `lockstep token`, and copy the file as it is.",
        )
    return token


def _known(token: str) -> str:
    """Whoever knows a token tells nobody."""
    hide_secrets({"token": token})
    return token


def is_same_token(given: str, token: str) -> bool:
    """Whether a token is the right one, in a time that does not depend on how much of it is right, nor on its length.

    >>> is_same_token("open sesame", "open sesame"), is_same_token("open", "open sesame")
    (True, False)
    """
    one, other = (hashlib.sha256(text.encode(errors="surrogateescape")).digest() for text in (given, token))
    return hmac.compare_digest(one, other)


def is_loopback(host: str) -> bool:
    """Whether an address reaches this host alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, True, False, False)
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def check_listening(host: str, *, has_token: bool, asks_for_certificates: bool) -> None:
    """Refuse to listen where other hosts can connect and nobody would be asked who they are.

    >>> check_listening("127.0.0.1", has_token=False, asks_for_certificates=False)
    >>> check_listening("10.0.0.7", has_token=True, asks_for_certificates=False)
    >>> check_listening("10.0.0.7", has_token=False, asks_for_certificates=False)
    Traceback (most recent call last):
    lockstep.errors.tree.EnvironmentError_: LS0032 10.0.0.7 may not be listened on like this
      why:  other hosts can connect to it, and without a token or certificates anybody there could read state and give orders.
      try:  make a token with `lockstep token` and copy its file to every host, or give all hosts certificates of one authority.
    """  # noqa: E501 - the lines are long in the message, too
    if is_loopback(host) or has_token or asks_for_certificates:
        return
    raise EnvironmentError_(
        "LS0032",
        f"{host or 'every address of this host'} may not be listened on like this",
        why="other hosts can connect to it, and without a token or certificates anybody there could read state and "
        "give orders.",
        hint="make a token with `lockstep token` and copy its file to every host, or give all hosts certificates of "
        "one authority.",
    )


@dataclass(frozen=True)
class TlsFiles:
    """Files in PEM: a host's certificate and its key, and the authority that has signed those of all hosts."""

    certificate: Path
    key: Path
    authority: Path

    def for_serving(self) -> ssl.SSLContext:
        """For a server that takes no connection without a certificate of the authority."""
        context = self._context(ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = ssl.CERT_REQUIRED
        return context

    def for_asking(self) -> ssl.SSLContext:
        """For a client: the server's certificate has to be of the authority, and for the name that was asked for."""
        return self._context(ssl.Purpose.SERVER_AUTH)

    def _context(self, purpose: ssl.Purpose) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(purpose, cafile=str(self.authority))
            context.load_cert_chain(str(self.certificate), str(self.key))
        except (OSError, ValueError) as error:
            raise EnvironmentError_(
                "LS0033",
                "the certificate of this host cannot be used",
                why=f"{error} ({self.certificate}, {self.key}, {self.authority}).",
                hint="all three files are PEM; the key belongs to the certificate and has no passphrase.",
            ) from None
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        return context
