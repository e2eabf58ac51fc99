"""Many replicas: supervise them, judge divergence, keep what is still needed."""

from __future__ import annotations

from lockstep.control.run import prepare_run, run_job

__all__ = ["prepare_run", "run_job"]
