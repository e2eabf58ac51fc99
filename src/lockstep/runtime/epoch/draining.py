"""Bringing a replica's queries to rest between two epochs, all of them after the same one.

The stages are first held; then those behind run up to the foremost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql.streaming import StreamingQuery

from lockstep.runtime.epoch.drain_flag import forget_answers, held
from lockstep.runtime.epoch.stage_progress import StageProgress

_POLL_S = 0.05


def drain(flag: Path, queries: Sequence[StreamingQuery], stage_progress: StageProgress, deadline_s: float) -> None:
    """Return when no query computes and all stand after the same epoch, or at the deadline."""
    flag.touch()
    _await(lambda: held(flag) >= len(queries), queries, deadline_s)
    target = stage_progress.newest_epoch
    if stage_progress.at.epoch < target:
        flag.write_text(str(target), encoding="utf-8")
        _await(lambda: stage_progress.at.epoch >= target, queries, deadline_s)
        # Spark commits an epoch after its function returned: only then does a source ask for the next, and is held.
        forget_answers(flag)
        _await(lambda: held(flag) >= len(queries), queries, deadline_s)


def _await(holds: Callable[[], bool], queries: Sequence[StreamingQuery], deadline_s: float) -> None:
    while not holds() and all(query.isActive for query in queries) and time.monotonic() < deadline_s:
        time.sleep(_POLL_S)
