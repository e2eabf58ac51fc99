"""Whether a replica that has just joined should take another seed: a pure function of what was measured."""

from __future__ import annotations

SEEDS_MAX = 3
"""Seeds of one start. Each is taken because the one before was old when its first epoch was computed; if that is so
three times, taking one is what takes long, and computing is the way."""


def is_new_seed_cheaper(lag_epochs: int, epoch_s: float, seed_s: float) -> bool:
    """Whether another seed brings a replica to the head sooner than computing all that it lacks.

    ``epoch_s`` is what an epoch takes here, ``seed_s`` what the last seed took, from stopping the queries to the first
    epoch after it. The head seals an epoch in the time of three (``pacing.SLACK_CATCHING_UP``), so whoever computes
    back to back arrives after ``lag x epoch_s x 3/2``. With a new seed it lacks what was sealed meanwhile, ``seed_s /
    (3 x epoch_s)`` epochs, and arrives after ``seed_s x 3/2``. What is left to compare:

    >>> is_new_seed_cheaper(40, epoch_s=0.5, seed_s=3.0), is_new_seed_cheaper(4, epoch_s=0.5, seed_s=3.0)
    (True, False)
    """
    return lag_epochs * epoch_s > seed_s
