"""What a test writes as input: lists of records, one for each epoch, with things between them that happen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lockstep.durations import Duration, duration_us
from lockstep.errors import RunError

Record = Mapping[str, Any]
Instant = str | datetime
"""A point in time: ISO 8601 text or a datetime; without a zone it is UTC."""

EVERY_US = 1_000_000
"""From one epoch to the next, unless the test says otherwise."""


@dataclass(frozen=True)
class Happening:
    """Something that happens between two epochs, or in place of one: :data:`HEARTBEAT`, :data:`CRASH`."""

    name: str

    def __repr__(self) -> str:
        return self.name


HEARTBEAT = Happening("HEARTBEAT")
"""An epoch without records: time moves on, nothing comes."""
CRASH = Happening("CRASH")
"""Every replica dies with the epoch before this published and not committed, and comes back from its checkpoint."""


@dataclass(frozen=True)
class Clock:
    """When the next epoch is: at a point in time, or so long after the epoch before."""

    at_us: int | None = None
    wait_us: int | None = None

    def __repr__(self) -> str:
        return f"wait({self.wait_us} us)" if self.at_us is None else f"at({_shown(self.at_us)})"


Timeline = Sequence[Any]
"""The input of one source: a list of records for each epoch, and HEARTBEAT, CRASH, ``at`` and ``wait``.

Not typed more closely: a list of different things that is made outside the call would be a list of objects.
"""


def at(instant: Instant) -> Clock:
    """Put the next epoch at this point of epoch time.

    >>> at("2026-01-01T00:00:05Z")
    at(2026-01-01T00:00:05Z)
    """
    return Clock(at_us=instant_us(instant))


def wait(duration: Duration) -> Clock:
    """Let so much epoch time pass before the next epoch.

    >>> wait("5 seconds")
    wait(5000000 us)
    """
    return Clock(wait_us=duration_us(duration))


def instant_us(instant: Instant) -> int:
    """Microseconds since 1970.

    >>> instant_us("1970-01-01 00:00:01")
    1000000
    """
    parsed = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    aware = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    since = aware - datetime.fromtimestamp(0, UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


@dataclass
class EpochPlan:
    """What a test wants of one epoch."""

    records: dict[str, Sequence[Record]] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    crash: bool = False
    at_us: int = 0


def planned(timelines: Mapping[str, Timeline], start_us: int, every_us: int = EVERY_US) -> list[EpochPlan]:
    """The epochs of all timelines side by side: epoch 0 has the first list of each, and so on.

    >>> epochs = planned({"a": [[{"n": 1}], CRASH, wait("5 s"), HEARTBEAT], "b": [[{"n": 2}]]}, start_us=0)
    >>> [(sorted(epoch.records), epoch.at_us, epoch.crash) for epoch in epochs]
    [(['a', 'b'], 0, True), (['a'], 5000000, False)]
    """
    epochs: list[EpochPlan] = []
    for source, timeline in timelines.items():
        _add(epochs, source, timeline)
    before_us = start_us - every_us
    for number, epoch in enumerate(epochs):
        epoch.at_us = _time(epoch.clock, before_us, every_us, start_us, first=number == 0)
        if number and epoch.at_us <= before_us:
            raise _wrong(
                f"epoch {number} is put at {_shown(epoch.at_us)}, which is not after epoch {number - 1}",
                f"that one is at {_shown(before_us)}, and epoch time only goes forward.",
            )
        before_us = epoch.at_us
    return epochs


def _add(epochs: list[EpochPlan], source: str, timeline: Timeline) -> None:
    number, clock = 0, Clock()
    for item in timeline:
        if isinstance(item, Clock):
            clock = item
        elif item is CRASH:
            if number == 0:
                raise _wrong(f'the input of "{source}" begins with CRASH', "a crash comes after an epoch.")
            epochs[number - 1].crash = True
        else:
            if number == len(epochs):
                epochs.append(EpochPlan())
            _fill(epochs[number], source, item, clock, number)
            number, clock = number + 1, Clock()
    if clock != Clock():
        raise _wrong(f'the input of "{source}" ends with {clock}', "it says when the next epoch is: add HEARTBEAT.")


def _fill(epoch: EpochPlan, source: str, item: object, clock: Clock, number: int) -> None:
    if item is HEARTBEAT:
        records: Sequence[Record] = ()
    elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
        records = item
    else:
        raise _wrong(
            f'the input of "{source}" has {item!r} for epoch {number}',
            "an epoch is a list of records, or HEARTBEAT; beside them there may be CRASH, at(...) and wait(...).",
        )
    epoch.records[source] = records
    if clock == Clock():
        return
    if epoch.clock not in (Clock(), clock):
        raise _wrong(f"epoch {number} is put at two times: {epoch.clock} and {clock}", "all sources share one clock.")
    epoch.clock = clock


def _time(clock: Clock, before_us: int, every_us: int, start_us: int, *, first: bool) -> int:
    if clock.at_us is not None:
        return clock.at_us
    if clock.wait_us is not None:
        return (start_us if first else before_us) + clock.wait_us
    return before_us + every_us


def _shown(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat().replace("+00:00", "Z")


def _wrong(fact: str, why: str) -> RunError:
    return RunError("LS0640", fact, why=why, hint="see docs/guide/testing.md.")
