"""Whether the service lives, and whether it can answer."""

from __future__ import annotations

from fastapi import APIRouter

from lockstep.serve.service import Service


def routes(service: Service) -> APIRouter:
    """``/healthz`` and ``/readyz``."""
    router = APIRouter(tags=["service"])

    @router.get("/healthz")
    def healthz() -> dict[str, str]:
        """The process lives."""
        return {"status": "ok"}

    @router.get("/readyz")
    def readyz() -> dict[str, int | str]:
        """The store answers."""
        return {"status": "ready", "jobs": len(service.jobs())}

    return router
