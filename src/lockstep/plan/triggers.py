"""When a window gives a result, as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.durations import duration_text
from lockstep.errors import PlanError
from lockstep.plan.windows import WindowTime


@dataclass(frozen=True)
class Firing:
    """Gives results again and again: after an interval, after so many records, or in every epoch with new ones.

    >>> str(Firing(every_us=10_000_000)), str(Firing(count=100)), str(Firing(each_epoch=True))
    ('every 10 seconds', 'on 100 records', 'in every epoch')
    """

    every_us: int | None = None
    time: WindowTime = "processing"
    count: int | None = None
    each_epoch: bool = False

    def __post_init__(self) -> None:
        if self.every_us is not None and self.every_us <= 0:
            raise _never(f"the interval of a trigger is {self.every_us} microseconds", 'ls.every("10 seconds")')
        if self.count is not None and (type(self.count) is not int or self.count <= 0):
            raise _never(f"a trigger fires on {self.count!r} records", "ls.on_count(100)")
        if self.every_us is None and self.count is None and not self.each_epoch:
            raise _never("a trigger was given neither an interval nor a count", 'ls.early(every="10 seconds")')

    def __str__(self) -> str:
        clock = "" if self.time == "processing" else " of event time"
        parts = [f"every {duration_text(self.every_us)}{clock}"] if self.every_us is not None else []
        parts += [f"on {self.count} record{'s' if self.count != 1 else ''}"] if self.count is not None else []
        return " or ".join(parts) or "in every epoch"


EACH_EPOCH = Firing(each_epoch=True)


@dataclass(frozen=True)
class Trigger:
    """When a window gives results: when it ends, before (``early``), and after (``late``, within allowed lateness).

    ``purge`` empties the window whenever it has given a result.

    >>> str(Trigger(early=Firing(count=10), purge=True))
    'at the watermark, early on 10 records, purging'
    """

    at_end: bool = True
    early: Firing | None = None
    late: Firing = EACH_EPOCH
    purge: bool = False

    def __str__(self) -> str:
        if not self.at_end:
            base = str(self.early)
        else:
            base = "at the watermark" + (f", early {self.early}" if self.early is not None else "")
        late = f", late {self.late}" if self.late not in (EACH_EPOCH, self.early) else ""
        return base + late + (", purging" if self.purge else "")


AT_WATERMARK = Trigger()
"""One final result when the window ends, and with allowed lateness another in each epoch with late records."""

UPDATES = Trigger(at_end=False, early=EACH_EPOCH)
"""The new result of every window that an epoch has changed."""


def trigger_json(trigger: Trigger) -> dict[str, Any]:
    """The trigger as plain data."""
    return {
        "at_end": trigger.at_end,
        "early": None if trigger.early is None else _firing_json(trigger.early),
        "late": _firing_json(trigger.late),
        "purge": trigger.purge,
    }


def _firing_json(firing: Firing) -> dict[str, Any]:
    return {
        "every_us": firing.every_us,
        "time": firing.time,
        "count": firing.count,
        "each_epoch": firing.each_epoch,
    }


def _never(fact: str, example: str) -> PlanError:
    return PlanError("LS0160", fact, why="it would never fire.", hint=f"write it like {example}.")
