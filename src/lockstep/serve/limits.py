"""How much one caller may ask: sizes, rates, and what the service keeps in memory at a time."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lockstep.errors import ServiceError


@dataclass(frozen=True)
class Limits:
    """Bounds of one service."""

    request_bytes: int = 256 * 1024
    """A request that is neither a bundle nor records."""
    bundle_bytes: int = 32 * 2**20
    """A job's code, packed."""
    ingest_bytes: int = 16 * 2**20
    """Records in one request: a few times what one durable append is worth."""
    ingest_bytes_at_once: int = 64 * 2**20
    """Records that all requests together have in memory."""
    backlog_records: int = 5_000_000
    """Records of a journal that no job has read yet; then whoever sends more has to wait."""
    requests_per_s: float = 100.0
    """For each caller, on average."""
    requests_burst: int = 400
    streams: int = 100
    """Requests that are open for long at the same time: streams of events, waits for an operation."""
    wait_s: float = 60.0
    """The longest ``?wait=``."""


class Rate:
    """A bucket for each caller: so many requests at once, so many a second in the long run.

    >>> now = [0.0]
    >>> rate = Rate(per_s=1.0, burst=2, elapsed_s=lambda: now[0])
    >>> [rate.wait_s("ann") for _ in range(3)], rate.wait_s("bob")
    ([0.0, 0.0, 1.0], 0.0)
    >>> now[0] = 1.0
    >>> rate.wait_s("ann")
    0.0
    """

    CALLERS_MAX = 10_000
    """Addresses are forgotten beyond this, those first that have not asked for longest."""

    def __init__(self, per_s: float, burst: int, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._elapsed_s = per_s, burst, elapsed_s
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait_s(self, caller: str) -> float:
        """Take one request; 0 if it is allowed, else after how many seconds one will be."""
        now_s = self._elapsed_s()
        with self._lock:
            left, at_s = self._buckets.pop(caller, (float(self._burst), now_s))
            left = min(float(self._burst), left + (now_s - at_s) * self._per_s)
            allowed = left >= 1
            self._buckets[caller] = (left - 1 if allowed else left, now_s)
            if len(self._buckets) > self.CALLERS_MAX:
                self._buckets.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


class Budget:
    """So much of something at a time, for all callers together."""

    def __init__(self, most: int, what: str) -> None:
        self._most, self._what = most, what
        self._used = 0
        self._lock = threading.Lock()

    @contextmanager
    def using(self, amount: int) -> Iterator[None]:
        """Have so much of it; LS0767 at once if there is not enough left."""
        with self._lock:
            if self._used and self._used + amount > self._most:
                raise too_many(f"the service is busy with {self._used:,} {self._what}", f"at most {self._most:,} fit.")
            self._used += amount
        try:
            yield
        finally:
            with self._lock:
                self._used -= amount


def too_many(fact: str, why: str) -> ServiceError:
    """Not now, but soon."""
    return ServiceError("LS0767", fact, why=why, hint="send the same again after the seconds of Retry-After.")


def too_large(bytes_max: int) -> ServiceError:
    """More than is taken in one request."""
    return ServiceError(
        "LS0766",
        "the request is too large",
        why=f"at most {bytes_max:,} bytes are taken here.",
        hint="send records in several requests; leave data files out of a job's folder.",
    )
