"""The door of the service: who asks, whether a browser was tricked into asking, how often and how much.

An ASGI app in front of the app. Routes find the caller in ``request.state.caller``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from math import ceil
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lockstep.errors import LockstepError, ServiceError
from lockstep.security import is_loopback
from lockstep.serve import tokens
from lockstep.serve.limits import Limits, Rate, too_large, too_many
from lockstep.serve.problems import problem
from lockstep.serve.tokens import Caller, Sessions, TokenBook

COOKIE = "lockstep_session"
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/login", "/logout"})
"""For those who have not said who they are: probes, and people about to say it."""
STATIC = "/static/"
"""Style sheets and scripts of the pages: the same for everybody."""
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_JOB = re.compile(r"/api/v1/jobs/[^/]+")
_INGEST = re.compile(r"/api/v1/ingest/[^/]+")


class Guard:
    """Lets through what may pass. Until a token is made, everybody on this host may do everything, but no web page may.

    With ``needs_token``, since the service can be reached from elsewhere, nobody may without one.
    """

    def __init__(
        self, app: ASGIApp, book: TokenBook, sessions: Sessions, limits: Limits, *, needs_token: bool = False
    ) -> None:
        self._app, self._book, self._sessions, self._limits = app, book, sessions, limits
        self._needs_token = needs_token
        self._rate = Rate(limits.requests_per_s, limits.requests_burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            refusal = self._refusal(scope)
        except LockstepError as error:
            refusal = problem(error)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._app(scope, _bounded(scope, receive, self._bytes_max(scope)), send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, method, path = Headers(scope=scope), scope["method"], scope["path"]
        is_open = path in OPEN_PATHS or path.startswith(STATIC)
        caller, by_token = self._caller(headers)
        if not by_token:
            # A token is not sent by a browser that some page has made ask; everything else may be.
            check_site(scope, headers, has_tokens=self._has_tokens)
        if caller is None and not is_open:
            return _unknown(headers, method, path)
        state = scope.setdefault("state", {})
        state["caller"] = caller
        who = caller.name if caller is not None else str((scope.get("client") or ("",))[0])
        if (wait_s := self._rate.wait_s(who)) and path not in ("/healthz", "/readyz"):
            error = too_many("too many requests", f"a caller has {self._limits.requests_per_s:.0f} a second.")
            return problem(error, headers={"Retry-After": str(ceil(wait_s))})
        needed = scope_needed(method, path)
        if caller is not None and not is_open and not caller.may(needed):
            return problem(_not_allowed(caller, needed))
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self._bytes_max(scope):
            return problem(too_large(self._bytes_max(scope)))
        return None

    @property
    def _has_tokens(self) -> bool:
        return self._needs_token or self._book.is_used

    def _caller(self, headers: Headers) -> tuple[Caller | None, bool]:
        """Who asks, and whether they have shown a token with this very request."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and token:
            return self._book.find(token.strip()), True
        if not self._has_tokens:
            return Caller("", "submit"), False
        session = cookie(headers)
        return (self._sessions.find(session) if session else None), False

    def _bytes_max(self, scope: Scope) -> int:
        path = scope["path"]
        if scope["method"] == "POST" and path == "/api/v1/jobs":
            return self._limits.bundle_bytes
        return self._limits.ingest_bytes if _INGEST.fullmatch(path) else self._limits.request_bytes


def scope_needed(method: str, path: str) -> tokens.Scope:
    """What somebody must be allowed to do for a request.

    >>> scope_needed("GET", "/api/v1/jobs"), scope_needed("POST", "/api/v1/jobs/a/stop")
    ('read', 'operate')
    >>> scope_needed("POST", "/api/v1/jobs"), scope_needed("DELETE", "/api/v1/jobs/a")
    ('submit', 'submit')
    """
    if method in _SAFE:
        return "read"
    if (method, path) == ("POST", "/api/v1/jobs") or (method == "DELETE" and _JOB.fullmatch(path)):
        return "submit"
    return "operate"


def check_site(scope: Scope, headers: Headers, *, has_tokens: bool) -> None:
    """Refuse what a page of somebody else has made a browser ask.

    Such a page can have the browser connect here by a name of its own that leads to this host (DNS rebinding): then the
    Host header has that name. Or it can have a form sent here: then Origin and Sec-Fetch-Site say so.
    """
    host = headers.get("host", "")
    if not has_tokens and not is_loopback(_name(host)):
        raise _cross_site(f"the request was for {host!r}", "without tokens, only names of this host are answered.")
    if scope["method"] in _SAFE:
        return
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        raise _cross_site(f"the request came from a page of {origin}", "only the service's own pages may change jobs.")
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
        raise _cross_site("the request came from another site", "only the service's own pages may change jobs.")


def cookie(headers: Headers | Mapping[str, str]) -> str:
    """The id of the browser's session, empty if it has none."""
    try:
        found = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return found.value if found is not None else ""


def _name(host: str) -> str:
    """The name in a Host header, without the port.

    >>> _name("127.0.0.1:8470"), _name("[::1]:8470"), _name("localhost")
    ('127.0.0.1', '::1', 'localhost')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _unknown(headers: Headers, method: str, path: str) -> Response:
    """Programs are told, people are asked."""
    if method == "GET" and "text/html" in headers.get("accept", "") and not path.startswith("/api/"):
        return RedirectResponse("/login", status_code=303)
    error = ServiceError(
        "LS0768",
        "the service does not know who asks",
        why="there was no token with the request, or it is not (or no longer) a valid one.",
        hint="`lockstep service-token create NAME` makes one; send it as `Authorization: Bearer TOKEN`, or set "
        "LOCKSTEP_SERVICE_TOKEN for commands.",
    )
    return problem(error, headers={"WWW-Authenticate": 'Bearer realm="lockstep"'})


def _not_allowed(caller: Caller, needed: tokens.Scope) -> ServiceError:
    return ServiceError(
        "LS0769",
        f'the token "{caller.name}" may not do this',
        why=f"it has the scope {caller.scope}, and this needs {needed}.",
        hint=f"make one with `lockstep service-token create NAME --scope {needed}`.",
    )


def _cross_site(fact: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0770", fact, why=why, hint="open the service by its own address, or send a token (`Authorization: Bearer`)."
    )


def _bounded(scope: Scope, receive: Receive, bytes_max: int) -> Receive:
    """The request's body, as long as it is not larger than it may be; its announced length was checked before."""
    del scope
    seen = 0

    async def counted() -> Message:
        nonlocal seen
        message: dict[str, Any] = dict(await receive())
        seen += len(message.get("body", b""))
        if seen > bytes_max:
            raise too_large(bytes_max)
        return message

    return counted
