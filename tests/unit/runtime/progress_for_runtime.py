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
) -> Progress:
    """What ``replica`` said so many seconds before ``NOW_US``."""
    return Progress(
        replica,
        incarnation=1,
        pid=1,
        state=state,
        epoch=epoch,
        epoch_s=epoch_s,
        updated_us=NOW_US - round(said_ago_s * S),
        moved_us=NOW_US - round(moved_ago_s * S),
    )
