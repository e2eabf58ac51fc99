"""How long whoever calls a store is willing to wait for another process's transaction.

Most callers have time: a transaction takes milliseconds, and failing an epoch because a disk was slow costs more than
waiting. Those who keep the job going, the supervisor and the sealer, have not: a stopped process may hold the lock for
ever, and they are the ones who see to it that it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PATIENCE_S = 30.0
"""For everybody who said nothing else."""
_patience_s: ContextVar[float] = ContextVar("patience_s", default=PATIENCE_S)


def patience_s() -> float:
    """How long the thread that asks is willing to wait."""
    return _patience_s.get()


@contextmanager
def patience(seconds: float) -> Iterator[None]:
    """No store call of this thread waits longer inside the ``with`` block: it fails with LS0413 instead.

    >>> with patience(3.0):
    ...     patience_s()
    3.0
    >>> patience_s()
    30.0
    """
    before = _patience_s.set(seconds)
    try:
        yield
    finally:
        _patience_s.reset(before)
