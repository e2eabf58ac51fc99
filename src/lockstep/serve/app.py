"""The service as an ASGI app: routes put together around one :class:`~lockstep.serve.service.Service`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import BaseRoute

from lockstep.errors import LockstepError
from lockstep.serve.pages.routes import page_routes
from lockstep.serve.problems import on_lockstep_error
from lockstep.serve.routes import system
from lockstep.serve.service import Service

API = "/api/v1"
PAGES: tuple[Callable[[Service], Sequence[BaseRoute]], ...] = (page_routes,)
"""Routes for people rather than programs (pages, metrics), each made for a service. They are not in /openapi.json."""


def create_app(service: Service) -> Starlette:
    """The app. ``app.state.service`` is the service, for routes that are made elsewhere."""
    app = FastAPI(title="Lockstep", version="1", openapi_url="/openapi.json", docs_url=None, redoc_url=None)
    app.state.service = service
    app.add_exception_handler(LockstepError, on_lockstep_error)
    app.include_router(system.routes(service))
    for make in PAGES:
        app.router.routes.extend(make(service))
    return app
