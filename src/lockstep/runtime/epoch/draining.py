"""Bringing a replica's queries to rest between two epochs, all of them after the same one.

The stages are first held; then those behind run up to the foremost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol

from pyspark.sql.streaming import StreamingQuery

from lockstep.runtime.epoch.drain_flag import forget_answers, held
from lockstep.runtime.epoch.stage_progress import StageProgress
from lockstep.runtime.steps import Pause, Step, Steps, run

HALT, RELEASE, ASK = "halt", "release", "ask"
_POLL_S = 0.05


class Queries(Protocol):
    """The queries of a replica, one for each stage: Spark's, or those of a simulation."""

    def hold(self) -> None:
        """From now on none begins an epoch; each answers when it would have."""

    def release(self, last: int) -> None:
        """Let them compute up to this epoch."""

    def ask(self) -> None:
        """Forget what they answered; those that are held answer again."""

    def are_held(self) -> bool:
        """Whether all have answered."""

    def are_active(self) -> bool:
        """Whether none has ended."""


def drain_steps(
    queries: Queries,
    stage_progress: StageProgress,
    deadline_s: float,
    elapsed_s: Callable[[], float] = time.monotonic,
) -> Steps[bool]:
    """Whether all queries rest after the same epoch; not if one has ended, or at the deadline."""

    def until(holds: Callable[[], bool]) -> Steps[None]:
        while not holds() and queries.are_active() and elapsed_s() < deadline_s:
            yield Pause(_POLL_S)

    yield Step(HALT, queries.hold)
    yield from until(queries.are_held)
    target = stage_progress.newest_epoch
    if stage_progress.at.epoch < target:
        yield Step(RELEASE, partial(queries.release, target))
        yield from until(lambda: stage_progress.at.epoch >= target)
        # Spark commits an epoch after its function returned: only then does a source ask for the next, and is held.
        yield Step(ASK, queries.ask)
        yield from until(queries.are_held)
    return queries.are_held() and stage_progress.at.epoch >= target


class SparkQueries:
    """The queries of a process of ours, whose sources see a flag."""

    def __init__(self, flag: Path, queries: Sequence[StreamingQuery]) -> None:
        self._flag = flag
        self._queries = queries

    def hold(self) -> None:
        """An empty flag: their sources answer no epoch any more."""
        self._flag.touch()

    def release(self, last: int) -> None:
        """A number in the flag: they answer up to that one."""
        self._flag.write_text(str(last), encoding="utf-8")

    def ask(self) -> None:
        """Remove their answers."""
        forget_answers(self._flag)

    def are_held(self) -> bool:
        """Whether there is an answer of each."""
        return held(self._flag) >= len(self._queries)

    def are_active(self) -> bool:
        """Whether Spark still runs all."""
        return all(query.isActive for query in self._queries)


def drain(flag: Path, queries: Sequence[StreamingQuery], stage_progress: StageProgress, deadline_s: float) -> None:
    """Return when no query computes and all stand after the same epoch, or at the deadline."""
    run(drain_steps(SparkQueries(flag, queries), stage_progress, deadline_s))
