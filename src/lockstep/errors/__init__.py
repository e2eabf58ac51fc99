"""Everything Lockstep raises on purpose: one tree, each error with a code that `lockstep explain` knows."""

from __future__ import annotations

from lockstep.errors.tree import (
    ConnectError,
    EnvironmentError_,
    ExpressionError,
    FunctionError,
    LockstepError,
    PlaceError,
    PlanError,
    RunError,
    StoreError,
    carried_by_spark,
    from_wire,
)

__all__ = [
    "ConnectError",
    "EnvironmentError_",
    "ExpressionError",
    "FunctionError",
    "LockstepError",
    "PlaceError",
    "PlanError",
    "RunError",
    "StoreError",
    "carried_by_spark",
    "from_wire",
]
