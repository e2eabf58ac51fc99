"""The service as an ASGI app: routes put together around one :class:`~lockstep.serve.service.Service`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from lockstep import __version__
from lockstep.errors import LockstepError
from lockstep.serve.desk import Desk
from lockstep.serve.guard import Guard
from lockstep.serve.limits import Budget, Limits
from lockstep.serve.models import Problem
from lockstep.serve.pages.routes import page_routes
from lockstep.serve.problems import on_crash, on_http_error, on_invalid_request, on_lockstep_error
from lockstep.serve.routes import ingest, jobs, looks, operations, state, system
from lockstep.serve.service import Service
from lockstep.serve.tokens import Sessions, TokenBook

API = "/api/v1"
PAGES: tuple[Callable[[Desk], Sequence[BaseRoute]], ...] = (page_routes,)
"""Routes for people rather than programs (pages, metrics), each made for a desk. They are not in /openapi.json."""
_ABOUT = """\
Jobs of a Lockstep project: submit, look at and change them, and feed them records. Errors are
`application/problem+json` with a code; `lockstep explain CODE` says more. Times are microseconds since 1970."""


def create_app(
    service: Service, book: TokenBook | None = None, limits: Limits | None = None, *, needs_token: bool = False
) -> Starlette:
    """The app; it closes the service when it is shut down.

    While there are no tokens (or no ``book`` of them), everybody who reaches the app by a name of this host may do
    everything; with ``needs_token`` nobody may do anything. ``app.state`` has the ``service``, the ``desk`` and the
    ``sessions``, for routes that are made elsewhere.
    """
    limits = limits or Limits()
    book = book or TokenBook(service.home / "no-tokens.json")
    sessions, desk = Sessions(book), Desk(service, limits)
    app = FastAPI(
        title="Lockstep",
        version=__version__,
        description=_ABOUT,
        openapi_url="/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=_closing(desk),
        middleware=[Middleware(Guard, book, sessions, limits, needs_token=needs_token)],
        # Two ways of writing one address are two addresses for a rule about paths.
        redirect_slashes=False,
    )
    app.state.service, app.state.desk, app.state.sessions = service, desk, sessions
    app.add_exception_handler(LockstepError, on_lockstep_error)
    app.add_exception_handler(RequestValidationError, on_invalid_request)
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(Exception, on_crash)
    _mount(app, desk, sessions, Budget(limits.streams, "open streams and waits"))
    for make in PAGES:
        app.router.routes.extend(make(desk))
    return app


def _mount(app: FastAPI, desk: Desk, sessions: Sessions, long_ones: Budget) -> None:
    app.include_router(system.routes(desk))
    app.include_router(system.logins(sessions))
    app.include_router(system.cluster_routes(desk), prefix=API)
    app.include_router(jobs.routes(desk), prefix=API)
    app.include_router(operations.routes(desk, long_ones), prefix=API)
    app.include_router(looks.routes(desk, long_ones), prefix=API)
    app.include_router(state.routes(desk), prefix=API)
    app.include_router(ingest.routes(desk), prefix=API)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]


def _closing(desk: Desk) -> Callable[[FastAPI], Any]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            desk.close()

    return lifespan


def _document(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        parts = made.setdefault("components", {})
        parts.setdefault("schemas", {})["Problem"] = Problem.model_json_schema()
        parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        made["security"] = [{"token": []}, {}]
        app.openapi_schema = made
    return app.openapi_schema
