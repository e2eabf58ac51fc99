"""Many replicas: supervise them, judge divergence, keep what is still needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lockstep.control.check import check_job as check_job
    from lockstep.control.run import prepare_run as prepare_run
    from lockstep.control.run import run_job as run_job

__all__ = ["check_job", "prepare_run", "run_job"]
_HOMES = {"check_job": "check", "prepare_run": "run", "run_job": "run"}


def __getattr__(name: str) -> Any:
    """Loaded when asked for: these load PySpark, which takes a second, and `lockstep status` needs none of it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"lockstep.control.{_HOMES[name]}"), name)
