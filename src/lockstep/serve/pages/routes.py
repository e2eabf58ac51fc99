"""The pages over HTTP: for people, whole without JavaScript, and strict about what a browser may run."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from importlib.resources import files
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from lockstep.control.operations.verbs import Manner
from lockstep.errors import LockstepError
from lockstep.serve.desk import Desk
from lockstep.serve.monitoring.metrics import Metrics
from lockstep.serve.pages import confirm
from lockstep.serve.pages.forms import COOKIE, FIELD, KEY_FIELD, FormTokens
from lockstep.serve.pages.frame import Page, document
from lockstep.serve.pages.live import LivePages
from lockstep.serve.pages.more import error_page
from lockstep.serve.pages.parts import path
from lockstep.serve.pages.site import Site
from lockstep.serve.problems import status_of
from lockstep.serve.service import Service

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not "no-referrer": browsers then send forms without their origin, and the door refuses them.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}
ASSETS = {"pages.css": "text/css", "pages.js": "text/javascript"}
_ASSET_S = 3600
_FORM_BYTES_MAX = 10_000
_STATUSES = {"LS0780": 403, "LS0781": 422, "LS0782": 404, "LS0783": 404, "LS0784": 503}


def page_routes(desk: Desk) -> Sequence[BaseRoute]:
    """All pages of a service, and its metrics: both from the same looks at jobs."""
    return _Pages(Site(desk), desk.service).routes()


class _Pages:
    def __init__(self, site: Site, service: Service) -> None:
        self._site = site
        self._service = service
        self._live = LivePages(site)
        self._tokens = FormTokens()
        self._metrics = Metrics(site.looks)

    def routes(self) -> Sequence[BaseRoute]:
        """In the order in which they are tried."""
        return [
            *(Route(f"/static/{name}", _asset(name, kind)) for name, kind in ASSETS.items()),
            Route("/live{path:path}", self._updates),
            Route("/jobs/{job}/ask/{verb}", self._confirm, methods=["GET"]),
            Route("/jobs/{job}/ask/{verb}", self._ask, methods=["POST"]),
            Route("/jobs/{job}/operations/{number:int}/ask/{verb}", self._confirm, methods=["GET"]),
            Route("/jobs/{job}/operations/{number:int}/ask/{verb}", self._settle, methods=["POST"]),
            Route("/metrics", self._scrape),
            Route("/", self._page),
            Route("/hosts", self._page),
            Route("/cluster", self._page),
            Route("/jobs/{rest:path}", self._page),
        ]

    def _page(self, request: Request) -> Response:
        return _shown(lambda: self._site.page(request.url.path, request.query_params))

    def _scrape(self, request: Request) -> Response:
        body, kind = self._metrics.text(request.headers.get("accept", ""))
        return Response(body, headers={**HEADERS, "Content-Type": kind})

    async def _updates(self, request: Request) -> Response:
        try:
            self._live.check_room()
        except LockstepError as error:
            return _answer(error_page(error, _status(error)))
        updates = self._live.updates(request.path_params["path"], request.query_params, request.is_disconnected)
        return StreamingResponse(updates, media_type="text/event-stream", headers=HEADERS)

    def _confirm(self, request: Request) -> Response:
        cookie = request.cookies.get(COOKIE) or self._tokens.new_cookie()
        hidden = {FIELD: self._tokens.token(cookie), KEY_FIELD: secrets.token_urlsafe(16)}
        job, verb, number = _asked(request)
        response = _shown(lambda: self._site.confirmation(job, verb, number, hidden))
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    async def _ask(self, request: Request) -> Response:
        values = await _values(request)

        def act() -> str:
            job, name, _ = _asked(request)
            self._check(request, values)
            verb = confirm.VERBS.get(name)
            if verb is None:
                raise confirm.unknown_verb(name)
            manner = Manner(asked_by=_caller(request), key=values.get(KEY_FIELD, ""))
            number = verb.ask(self._service.verbs(job), values, manner)
            return path("jobs", job) if number is None else path("jobs", job, "operations", number)

        return await run_in_threadpool(_moved, act)

    async def _settle(self, request: Request) -> Response:
        values = await _values(request)

        def act() -> str:
            job, name, number = _asked(request)
            self._check(request, values)
            if name not in ("commit", "rollback") or number is None:
                raise confirm.unknown_verb(name)
            self._service.verbs(job).settle(number, "commit" if name == "commit" else "rollback")
            return path("jobs", job, "operations", number)

        return await run_in_threadpool(_moved, act)

    def _check(self, request: Request, values: dict[str, str]) -> None:
        self._tokens.check(request.cookies.get(COOKIE, ""), values.get(FIELD, ""))


def _asked(request: Request) -> tuple[str, str, int | None]:
    found = request.path_params
    return found["job"], found["verb"], found.get("number")


def _caller(request: Request) -> str:
    """Who asks, as the operation will say it."""
    caller = getattr(request.state, "caller", None)
    return getattr(caller, "name", "") or "somebody at a page"


async def _values(request: Request) -> dict[str, str]:
    """The fields of a form. Of one that is too large, none: then its secret is missing too."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _FORM_BYTES_MAX:
            return {}
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))


def _shown(make: Callable[[], Page]) -> Response:
    try:
        return _answer(make())
    except LockstepError as error:
        return _answer(error_page(error, _status(error)))


def _moved(act: Callable[[], str]) -> Response:
    """Done, and to be seen elsewhere: loading that page again does not do it again."""
    try:
        return RedirectResponse(act(), status_code=303, headers=HEADERS)
    except LockstepError as error:
        return _answer(error_page(error, _status(error)))


def _status(error: LockstepError) -> int:
    return _STATUSES.get(error.code) or status_of(error)


def _answer(page: Page) -> Response:
    return HTMLResponse(document(page), page.status, headers=HEADERS)


def _asset(name: str, kind: str) -> Callable[[Request], Response]:
    body = files("lockstep.serve.pages").joinpath("static", name).read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {**HEADERS, "Cache-Control": f"max-age={_ASSET_S}", "ETag": tag}

    def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type=kind, headers=headers)

    return answer
