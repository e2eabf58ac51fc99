"""From a plan to Spark DataFrames: one `lower` function per step, found by dispatch."""

from __future__ import annotations

from lockstep.compile import bolts as bolts
from lockstep.compile import explode as explode
from lockstep.compile import joins as joins
from lockstep.compile import processes as processes
from lockstep.compile import rolling as rolling
from lockstep.compile import windowed as windowed
from lockstep.compile.job import Compiled, compile_job

__all__ = ["Compiled", "compile_job"]
