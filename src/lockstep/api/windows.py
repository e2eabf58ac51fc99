"""Windows as people write them."""

from __future__ import annotations

from lockstep.durations import Duration, duration_us
from lockstep.plan.windows import Sliding, Tumbling


def tumbling(size: Duration) -> Tumbling:
    """Windows of event time that follow each other: every record is in exactly one.

    >>> str(tumbling("1 minute"))
    'tumbling 1 minute'
    """
    return Tumbling(duration_us(size))


def sliding(size: Duration, *, every: Duration) -> Sliding:
    """Windows of event time of one size that begin every so often: a record is in ``size / every`` of them.

    >>> str(sliding("1 minute", every="10 seconds"))
    'sliding 1 minute every 10 seconds'
    """
    return Sliding(duration_us(size), duration_us(every))
