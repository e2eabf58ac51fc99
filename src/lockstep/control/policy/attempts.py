"""What was tried, and whether it helped: an action that did not is not tried again for a day."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lockstep.clock import US_PER_S

REMEMBERED_US = 24 * 3600 * US_PER_S
ACTIONS_MAX = 64
"""More different actions than a job has; should it have more, the oldest are forgotten."""


@dataclass
class Attempts:
    """Actions that did not help, and since when that is known.

    >>> attempts = Attempts()
    >>> attempts.did_not_help("replace r1", 1_000)
    >>> attempts.is_useless("replace r1", 2_000), attempts.is_useless("replace r1", 1_000 + REMEMBERED_US)
    (True, False)
    """

    useless_us: dict[str, int] = field(default_factory=dict)

    def did_not_help(self, action: str, now_us: int) -> None:
        """Remember it."""
        self.useless_us.pop(action, None)
        self.useless_us[action] = now_us
        while len(self.useless_us) > ACTIONS_MAX:
            del self.useless_us[next(iter(self.useless_us))]

    def is_useless(self, action: str, now_us: int) -> bool:
        """Whether it was tried within the last day, and did not help."""
        known_us = self.useless_us.get(action)
        return known_us is not None and now_us - known_us < REMEMBERED_US

    def to_json(self) -> dict[str, int]:
        """As plain data."""
        return dict(self.useless_us)

    @staticmethod
    def from_json(kept: Mapping[str, Any]) -> Attempts:
        """As it was kept."""
        return Attempts({action: int(at_us) for action, at_us in kept.items()})
