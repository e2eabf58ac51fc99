"""Windows with every kind of trigger and lateness, against a model that looks at one window at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.keyed.operator import TimeKind
from lockstep.keyed.windows.assigners import Assigner, Everything, Regular
from lockstep.keyed.windows.operator import WindowOperator
from lockstep.plan.triggers import AT_WATERMARK, EACH_EPOCH, UPDATES, Firing, Trigger
from tests.unit.keyed.turns_for_windows import Epoch, Event, Result, any_epochs, listing, results_of

Bounds = tuple[int | None, int | None]
WindowsOf = Callable[[int | None], list[Bounds]]

COUNT_3 = Firing(count=3)
EVERY_10 = Firing(every_us=10)
EVERY_5_EVENT = Firing(every_us=5, time="event")
TRIGGERS = {
    "at the watermark": AT_WATERMARK,
    "at the watermark, purging": Trigger(purge=True),
    "updates": UPDATES,
    "updates, purging": Trigger(at_end=False, early=EACH_EPOCH, purge=True),
    "on count": Trigger(at_end=False, early=COUNT_3, late=COUNT_3),
    "on count, purging": Trigger(at_end=False, early=COUNT_3, late=COUNT_3, purge=True),
    "every": Trigger(early=EVERY_10, late=EVERY_10),
    "every of event time": Trigger(early=EVERY_5_EVENT, late=EVERY_5_EVENT, purge=True),
    "early and late": Trigger(early=EVERY_10, late=Firing(count=1)),
    "early by both": Trigger(early=Firing(every_us=10, count=2), late=Firing(every_us=10)),
}
ASSIGNERS: dict[str, tuple[Assigner, WindowsOf]] = {
    "tumbling": (Regular(10, 10, 3), lambda at_us: _scanned(at_us, 10, 10, 3)),
    "sliding": (Regular(12, 5, 0), lambda at_us: _scanned(at_us, 12, 5, 0)),
    "global": (Everything(), lambda at_us: [(None, None)]),
}


def _scanned(at_us: int | None, size: int, every: int, offset: int) -> list[Bounds]:
    """By trying every number that could be a start."""
    if at_us is None:
        return []
    starts = [start for start in range(at_us - size + 1, at_us + 1) if (start - offset) % every == 0]
    return [(start, start + size) for start in starts]


@pytest.mark.parametrize("trigger", TRIGGERS)
@settings(max_examples=25, deadline=None)
@given(
    epochs=any_epochs(),
    assigner=st.sampled_from(sorted(ASSIGNERS)),
    by=st.sampled_from([("event", 0), ("event", 6), ("event", 20), ("epoch", 0)]),
)
def test_windows_give_what_the_model_gives(
    trigger: str, assigner: str, by: tuple[TimeKind, int], epochs: list[Epoch]
) -> None:
    clock, lateness = by
    made, windows_of = ASSIGNERS[assigner]
    operator = WindowOperator(made, TRIGGERS[trigger], lateness, clock, *listing())
    results, late, left = results_of(operator, epochs)
    model = Model(epochs, TRIGGERS[trigger], lateness, clock, windows_of)
    assert sorted(results, key=repr) == sorted(model.results(), key=repr)
    assert sorted(late, key=repr) == sorted(model.late, key=repr)
    if assigner != "global":
        assert left.cells == {}, "a window that is over leaves nothing behind"


class Model:
    """What comes of whole histories: first who is in which window, then each window for itself."""

    def __init__(
        self, epochs: Sequence[Epoch], trigger: Trigger, lateness: int, clock: TimeKind, windows_of: WindowsOf
    ) -> None:
        self.epochs = epochs
        self.trigger = trigger
        self.lateness = lateness
        self.clock = clock
        self.windows: dict[tuple[str | None, Bounds], list[tuple[int, Event]]] = {}
        self.late: list[tuple[int, Event]] = []
        for number, epoch in enumerate(epochs):
            for event in sorted(epoch.events, key=lambda one: (one.at_us is not None, one.at_us or 0)):
                self._place(number, event, windows_of(event.at_us if clock == "event" else epoch.time_us))

    def now(self, number: int) -> float:
        watermark = self.epochs[number].watermark_us
        return (
            self.epochs[number].time_us if self.clock == "epoch" else float("-inf") if watermark is None else watermark
        )

    def _place(self, number: int, event: Event, bounds: list[Bounds]) -> None:
        open_ones = [one for one in bounds if one[1] is None or one[1] + self.lateness > self.now(number)]
        for one in open_ones:
            self.windows.setdefault((event.key, one), []).append((number, event))
        if not open_ones:
            self.late.append((number, event))

    def results(self) -> list[Result]:
        return [
            result for (key, bounds), held in self.windows.items() for result in _Life(self, key, bounds).live(held)
        ]


@dataclass
class _Life:
    """One window through all epochs."""

    model: Model
    key: str | None
    bounds: Bounds
    seen: list[Event] = field(default_factory=list)
    new: int = 0
    alarms: set[tuple[str, int]] = field(default_factory=set)
    given: list[Result] = field(default_factory=list)

    def live(self, held: list[tuple[int, Event]]) -> list[Result]:
        trigger, end = self.model.trigger, self.bounds[1]
        before = float("-inf")
        for number in range(len(self.model.epochs)):
            now = self.model.now(number)
            rung = self._rings(number)
            if end is not None and before < end <= now:
                if trigger.at_end and self.seen and (self.new or not trigger.purge):
                    self._give(number, "on_time")
            elif rung and self.new:
                self._give(number, "late" if end is not None and now >= end else "early")
            if end is not None and now >= end + self.model.lateness:
                if self.new and trigger.at_end:
                    self._give(number, "late")
                assert not any(epoch >= number for epoch, _ in held), "nothing comes after that"
                break
            self._records(number, [event for epoch, event in held if epoch == number])
            before = now
        return self.given

    def _records(self, number: int, events: list[Event]) -> None:
        end = self.bounds[1]
        ended = end is not None and self.model.now(number) >= end
        firing = self.model.trigger.late if ended else self.model.trigger.early
        for event in events:
            self.seen.append(event)
            self.new += 1
            if firing is not None and firing.every_us:
                self._set(number, firing, event, ended=ended)
            if firing is not None and firing.count and self.new >= firing.count:
                self._give(number, "late" if ended else "early")
        if events and self.new and firing is not None and firing.each_epoch:
            self._give(number, "late" if ended else "early")

    def _set(self, number: int, firing: Firing, event: Event, *, ended: bool) -> None:
        epoch, interval = self.model.epochs[number], firing.every_us or 0
        if firing.time == "processing":
            clock, base = "epoch", epoch.time_us
        else:
            known = [at for at in (event.at_us, epoch.watermark_us) if at is not None]
            if not known:
                return
            clock, base = "event", max(known)
        at = (base // interval + 1) * interval
        end = self.bounds[1]
        if ended or end is None or clock != self.model.clock or at < end:
            self.alarms.add((clock, at))

    def _rings(self, number: int) -> bool:
        epoch = self.model.epochs[number]
        now = {"epoch": epoch.time_us, "event": epoch.watermark_us}
        rung = {alarm for alarm in self.alarms if now[alarm[0]] is not None and alarm[1] <= (now[alarm[0]] or 0)}
        self.alarms -= rung
        return bool(rung)

    def _give(self, number: int, timing: str) -> None:
        ordered = sorted(self.seen, key=lambda one: (one.at_us is not None, one.at_us or 0))
        values = tuple(event.value for event in ordered)
        self.given.append(Result(number, self.key, *self.bounds, values, timing))
        self.new = 0
        if self.model.trigger.purge:
            self.seen = []
