"""A connection to Postgres: made when needed, made again when lost, and its errors in words."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeVar

from lockstep.credentials import hide_secrets
from lockstep.errors import ConnectError

if TYPE_CHECKING:
    from psycopg import Connection

PATIENCE_S = 30.0
"""How long a server that is away (restarting, failing over, full of connections) is tried again."""
LOCK_TIMEOUT_S = 10
IDLE_TIMEOUT_S = 5
"""A replica that stands still inside a transaction holds the sink's lock: the server ends its session then."""
CONNECT_TIMEOUT_S = 5
_RETRY_S = 0.05
_RETRY_S_MAX = 1.0
_SESSION = (
    "SET timezone = 'UTC'",
    "SET datestyle = 'ISO'",
    f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'",
    f"SET idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'",
    # Whatever the server's default: an epoch that was acknowledged is on disk.
    "SET synchronous_commit = on",
)
_DEFAULTS = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
"""A server whose cable was pulled is noticed within about ten seconds. What the user says comes first."""

_PASSING_CLASSES = ("08", "40", "57", "53")
"""Connection, serialization and deadlock, operator intervention, resources: another attempt may succeed."""
_PASSING = ("55P03",)
"""A lock that was not to be had."""
_LASTING = ("53100",)
_REFUSED = ("authentication failed", "no password supplied", "does not exist", "no pg_hba.conf entry", "not permitted")
"""What a server says to someone it does not know; a connection that fails has no code to go by."""

Result = TypeVar("Result")


def run(connection: Connection, query: str, values: Sequence[Any] = ()) -> Any:
    """Execute a statement; its cursor."""
    return connection.execute(query.encode(), values)


class Server:
    """The one connection of a sink's working side."""

    def __init__(self, server: str, password_env: str, patience_s: float = PATIENCE_S) -> None:
        self._server = server
        self._password_env = password_env
        self._patience_s = patience_s
        self._connection: Connection | None = None

    def patiently(self, act: Callable[[Connection], Result]) -> Result:
        """Do it; after a loss of the connection or a passing trouble again from its beginning, up to the patience.

        ``act`` has to begin with a look at what holds: the attempt that was lost may have been committed.
        """
        import_psycopg()
        import psycopg

        deadline_s, wait_s = time.monotonic() + self._patience_s, _RETRY_S
        while True:
            try:
                return act(self._connected())
            except psycopg.Error as error:
                passing = self._is_lost(error) or is_passing(error.sqlstate)
                if self._connection is not None and self._connection.closed:
                    self.close()
                if not passing or time.monotonic() > deadline_s:
                    raise explained(error, self._patience_s) from None
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _RETRY_S_MAX)

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_lost(self, error: Exception) -> bool:
        import psycopg

        if self._connection is not None:
            return self._connection.closed
        # Another kind of error is about the address itself.
        return isinstance(error, psycopg.OperationalError) and not any(word in str(error) for word in _REFUSED)

    def _connected(self) -> Connection:
        if self._connection is None:
            import psycopg
            from psycopg.conninfo import conninfo_to_dict

            given = conninfo_to_dict(self._server)
            more: dict[str, Any] = {name: value for name, value in _DEFAULTS.items() if name not in given}
            more |= {"application_name": given.get("application_name", "lockstep")}
            if self._password_env:
                more["password"] = _password(self._password_env)
            hide_secrets({"password": os.environ.get("PGPASSWORD", "")})
            # Statements are not kept prepared: behind a pooler the next one may reach another session.
            connection = psycopg.connect(self._server, autocommit=True, prepare_threshold=None, **more)
            for statement in _SESSION:
                run(connection, statement)
            self._connection = connection
        return self._connection


def import_psycopg() -> None:
    """LS0531 if the client is not installed."""
    if find_spec("psycopg") is None:
        raise ConnectError(
            "LS0531",
            "the Postgres sink needs psycopg",
            why="it is not installed with Lockstep itself.",
            hint='pip install "lockstep[postgres]"',
        )


def is_passing(sqlstate: str | None) -> bool:
    """Whether the same act may succeed a moment later.

    >>> is_passing("57P01"), is_passing("40001"), is_passing("53100"), is_passing("22003"), is_passing(None)
    (True, True, False, False, False)
    """
    code = sqlstate or ""
    return code not in _LASTING and (code in _PASSING or code.startswith(_PASSING_CLASSES))


def explained(error: Exception, patience_s: float) -> ConnectError:
    """What a client's error means for a job. The server's own words never contain the password."""
    code = str(getattr(error, "sqlstate", None) or "")
    said = " ".join(str(error).split())
    if code == "53100":
        return ConnectError(
            "LS0508",
            "the Postgres server has no space left",
            why=f"it says: {said}. Nothing of this epoch became visible.",
            hint="make room; the epoch is published by the next attempt.",
        )
    if code == "55P03":
        return ConnectError(
            "LS0511",
            f"a table in Postgres has been locked for {patience_s:g} s",
            why=f"another session holds it: {said}.",
            hint="end that transaction (pg_stat_activity shows it); the epoch is published by the next attempt.",
        )
    if code.startswith(("22", "23", "54")) or "cannot contain NUL" in said:
        return ConnectError(
            "LS0515",
            "a row does not fit its table in Postgres",
            why=f"it says: {said}.",
            hint="change or filter such rows before the sink; text in Postgres holds no character 0.",
        )
    if not code or is_passing(code):
        return ConnectError(
            "LS0533",
            "the Postgres server cannot be reached",
            why=f"it was tried for up to {patience_s:g} s; the last answer: {said}.",
            hint="check the address, the user and pg_hba.conf; the epoch is published by the next attempt.",
        )
    return ConnectError(
        "LS0509", "Postgres refused", why=f"it says: {said} ({code}).", hint="the user needs the rights to the table."
    )


def _password(variable: str) -> str:
    value = os.environ.get(variable, "")
    if not value:
        raise ConnectError(
            "LS0532",
            f"the environment variable {variable} is not set",
            why="password_env= says that the password of the Postgres sink is in it.",
            hint=f"set {variable} where `lockstep run` is started, on every host.",
        )
    hide_secrets({"password": value})
    return value
