"""Whether the service lives and can answer, and how a browser says who its user is."""

from __future__ import annotations

from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from lockstep.serve import models
from lockstep.serve.desk import Desk
from lockstep.serve.guard import COOKIE, cookie
from lockstep.serve.routes.documents import PROBLEMS
from lockstep.serve.tokens import SESSION_S, Sessions

LOGIN_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Lockstep</title>
<style>:root {{ color-scheme: light dark }} body {{ font: 16px system-ui; max-width: 30em; margin: 4em auto }}</style>
<h1>Lockstep</h1><form method="post" action="/login"><p>{said}</p>
<p><label>Token <input name="token" type="password" autocomplete="current-password" required autofocus></label>
<button>Log in</button></p><p>Made by <code>lockstep service-token create NAME</code>.</p></form></html>
"""


def routes(desk: Desk) -> APIRouter:
    """``/healthz`` and ``/readyz``."""
    router = APIRouter(tags=["service"], responses=PROBLEMS)

    @router.get("/healthz")
    def is_alive() -> models.Ready:
        """The process lives. It asks nothing of the store."""
        return models.Ready(status="ok", jobs=-1)

    @router.get("/readyz")
    def is_ready() -> models.Ready:
        """The store answers."""
        return models.Ready(status="ready", jobs=len(desk.service.jobs()))

    return router


def cluster_routes(desk: Desk) -> APIRouter:
    """``/cluster``."""
    router = APIRouter(tags=["service"], responses=PROBLEMS)

    @router.get("/cluster")
    def get_cluster() -> models.Cluster:
        """What the jobs run on: whether the store and its members answer, who coordinates each job, hosts, executors.

        It is answered, too, while the store does not.
        """
        return desk.cluster()

    return router


def logins(sessions: Sessions) -> APIRouter:
    """``/login`` and ``/logout``, for people."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    def login_page() -> Response:
        return HTMLResponse(LOGIN_PAGE.format(said="Who are you?"))

    @router.post("/login")
    async def log_in(request: Request) -> Response:
        given = parse_qs((await request.body()).decode(errors="replace"), max_num_fields=10).get("token", [""])[0]
        session = sessions.begin(given.strip())
        if session is None:
            return HTMLResponse(LOGIN_PAGE.format(said="That is not a valid token."), status_code=401)
        response = RedirectResponse("/", status_code=303)
        is_secure = request.url.scheme == "https"
        response.set_cookie(
            COOKIE, session, max_age=SESSION_S, httponly=True, samesite="strict", secure=is_secure, path="/"
        )
        return response

    @router.post("/logout")
    def log_out(request: Request) -> Response:
        sessions.end(cookie(request.headers))
        response = RedirectResponse("/login", status_code=303)
        response.delete_cookie(COOKIE)
        return response

    return router
