"""Replicas' words about themselves, for tests of decisions."""

from __future__ import annotations

from lockstep.store.protocols import Progress

NOW_US = 1_700_000_000_000_000
S = 1_000_000


def said(
    replica: str,
    epoch: int,
    *,
    state: str = "running",
    moved_ago_s: float = 0.0,
    said_ago_s: float = 0.0,
    epoch_s: float = 0.1,
    working_on: int = -1,
    active_ago_s: float | None = None,
) -> Progress:
    """What ``replica`` said so many seconds before ``NOW_US``."""
    return Progress(
        replica,
        incarnation=1,
        pid=1,
        state=state,
        epoch=epoch,
        epoch_s=epoch_s,
        working_on=working_on,
        active_us=0 if active_ago_s is None else NOW_US - round(active_ago_s * S),
        updated_us=NOW_US - round(said_ago_s * S),
        moved_us=NOW_US - round(moved_ago_s * S),
        process="1",
    )
