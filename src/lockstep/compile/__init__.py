"""From a plan to Spark DataFrames: one `lower` function per step, found by dispatch."""

from __future__ import annotations

from lockstep.compile.job import Compiled, compile_job

__all__ = ["Compiled", "compile_job"]
