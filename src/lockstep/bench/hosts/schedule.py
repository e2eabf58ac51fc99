"""What happens to a cluster in a run of chaos: drawn by a seed, nothing twice in a row."""

from __future__ import annotations

import random

TAKES_S = {
    "host": 100.0,
    "cable": 70.0,
    "leader": 50.0,
    "coordinator": 50.0,
    "member": 45.0,
    "broker": 50.0,
    "disk": 75.0,
}
"""About how long each of them takes, with the quiet time before and after it."""


def schedule(seed: int, minutes: float) -> tuple[str, ...]:
    """Events for about so many minutes; at least two.

    >>> schedule(7, 5)
    ('leader', 'cable', 'member', 'disk', 'host')
    >>> schedule(7, 5) == schedule(7, 5)
    True
    """
    chance, chosen, left_s = random.Random(seed), list[str](), minutes * 60  # noqa: S311  (not a secret)
    while left_s > 0 or len(chosen) < 2:
        name = chance.choice([one for one in TAKES_S if one not in chosen[-1:]])
        chosen.append(name)
        left_s -= TAKES_S[name]
    return tuple(chosen)
