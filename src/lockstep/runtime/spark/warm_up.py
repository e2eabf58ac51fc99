"""Warming a replica up before it takes its seed.

The first epochs of a JVM take seconds: classes are loaded, code is generated and compiled, Python workers are forked. A
replica that joins others does that on the newest epoch's records, computed a few times into nowhere, and only then
takes its seed; so it joins a second or two behind instead of ten. The queries that count are started before the seed
too (``waiting.py``).
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lockstep.compile.job import Compiled
from lockstep.errors import LockstepError
from lockstep.runtime.epoch.output import through_driver
from lockstep.runtime.spark.waiting import started
from lockstep.runtime.state.checkpoint import standing
from lockstep.runtime.state.digests import state_digest

EPOCHS_MIN = 8
"""By then an epoch takes about twice what it will take in the end, down from fifty times."""
EPOCHS_MAX = 24
"""The warmer it is, the sooner it has caught up. For a replica that is missed only if that does not take long:"""
MORE_S = 6.0
WARM_UP_S_MAX = 60.0
"""However far it is by then: epochs that take so long gain little from a warm JVM, and one may never end."""
_POLL_S = 0.02
ROWS_MAX = 4096
"""Rows of a rehearsed epoch that are brought here; of a larger one they are only counted."""


def nowhere(key: str, step: str, facts: dict[str, Any]) -> None:
    """Dead letters of a rehearsal: they are written when the epoch counts."""


def warm_up(
    compiled: Compiled, folder: Path, should_stop: Callable[[], bool], is_missed: Callable[[], bool] = lambda: True
) -> bool:
    """Run ``compiled``, whose sources repeat the newest epoch, some times with a throw-away checkpoint.

    Of that only the logs of its first epoch are left in ``folder``; returns whether they are there.
    """
    shutil.rmtree(folder, ignore_errors=True)
    done: list[int] = []

    def rehearse(frame: DataFrame, batch: int) -> None:
        if through_driver(frame, compiled, ROWS_MAX) is None:
            frame.count()
        done.append(batch)

    query = started(compiled, folder, rehearse)
    begun_s = time.monotonic()
    while query.isActive and not should_stop() and (spent_s := time.monotonic() - begun_s) < WARM_UP_S_MAX:
        if is_enough(len(done), spent_s, is_missed=is_missed()):
            break
        time.sleep(_POLL_S)
    # The batch commits after its function returned; a stop inside it would be noisy.
    time.sleep(10 * _POLL_S)
    query.stop()
    if (error := query.exception()) is not None:
        # Not fatal here: if the job itself fails, the epochs that count will say so with all that belongs to it.
        print(f"warming up failed: {error}", file=sys.stderr, flush=True)
    elif not should_stop():
        _read_state(compiled.frame.sparkSession, folder)
    return _only_logs(folder)


def is_enough(epochs: int, spent_s: float, *, is_missed: bool) -> bool:
    """Whether a process that has rehearsed so many epochs in so long is warm; a spare is not missed yet.

    >>> is_enough(8, 3.0, is_missed=True), is_enough(8, 7.0, is_missed=True), is_enough(8, 7.0, is_missed=False)
    (False, True, False)
    """
    return epochs >= EPOCHS_MAX or (is_missed and epochs >= EPOCHS_MIN and spent_s > MORE_S)


def _read_state(session: SparkSession, folder: Path) -> None:
    """Take a digest of the state that the rehearsal left: the first takes a second, and epochs wait for it."""
    try:
        at = standing(folder)
        if at is not None and at.batch >= 0:
            state_digest(session, folder, at.batch)
    except (PySparkException, Py4JError, LockstepError, OSError) as error:
        print(f"the state of the rehearsal was not read: {error}", file=sys.stderr, flush=True)


def _only_logs(folder: Path) -> bool:
    kept = {folder / "metadata", folder / "offsets" / "0", folder / "commits" / "0"}
    for path in [*folder.rglob("*")]:
        if path.is_file() and path not in kept:
            path.unlink()
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir() and path.name not in ("offsets", "commits"):
            shutil.rmtree(path)
    return all(path.exists() for path in kept)
