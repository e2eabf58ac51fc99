"""How a job is, at a glance: what `run` shows while it runs and `status` tells from outside."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import psutil

from lockstep.clock import US_PER_S
from lockstep.config import RunSettings
from lockstep.control.status.health import Event, Health, History, Limits, histories, judge_health
from lockstep.errors import ConnectError
from lockstep.runtime.desired_run import DESIRED, RUN_BEGAN, last_run
from lockstep.runtime.replica_environments import environment_text
from lockstep.store.dead_letters import DeadLetters
from lockstep.store.protocols import Published, Store

RUN_SETTINGS = "run-settings"
"""Fact: the settings of the newest run, the job's own options and the command line's included."""
SPARES = "spares"
"""Fact: the spares of the newest run, as {"pid", "ready", "host"}."""
LATENCY_WINDOW_S = 60.0
RATE_WINDOW_S = 10.0
_EPOCHS_LOOKED_BACK = 600
"""A minute at the shortest epoch interval."""
_LATE_EPOCHS = 20
"""Publications are noted a moment after they happen, by different replicas: the newest few are read again."""
_EVENTS_MAX = 10_000
_LETTERS_AGAIN_S = 30.0
"""Until dead letters are counted again after brokers that have them did not answer."""


@dataclass(frozen=True)
class Overview:
    """One look at a job. ``events`` are those since the look before."""

    head_epoch: int
    head_time_us: int | None
    published_epoch: int
    """The newest published epoch, -1 if there is none."""
    health: Health
    rows_per_s: float
    latency_ms: dict[str, float]
    """p50, p99, max and count over the last minute."""
    events: tuple[Event, ...]
    held: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The sources that wait, since they are ahead in event time: of which other one, by how many microseconds."""
    dead_letters: int = 0
    """How many wait for somebody."""


class Watcher:
    """Looks at a job's store again and again, and reads only what is new."""

    def __init__(self, store: Store, dead_letters: DeadLetters) -> None:
        self._store = store
        self._dead_letters = dead_letters
        self._desired: str | None = None
        self._limits = _limits(run_settings(store))
        self._began_us = int(store.fact(RUN_BEGAN) or 0)
        self._last_event = 0
        self._history: dict[str, History] = {}
        self._published: dict[int, Published] = {}
        self._environments: dict[tuple[str, int], str] = {}
        self._letters = 0
        self._letters_again_s = 0.0

    def look(self, now_us: int) -> Overview:
        """The job as it is now."""
        self._follow_changes()
        head = self._store.head()
        head_epoch = head.epoch if head else -1
        events = self._new_events()
        self._history = histories(events, self._history)
        published = self._recent(head_epoch, now_us)
        newest = max(published, key=lambda one: one.published_us, default=None)
        health = judge_health(
            self._store.progress(),
            self._history,
            head_epoch,
            max(self._began_us, newest.published_us if newest is not None else 0),
            now_us,
            limits=self._limits,
            pid_exists=psutil.pid_exists,
        )
        return Overview(
            head_epoch=head_epoch,
            head_time_us=head.epoch_time_us if head else None,
            published_epoch=max(self._published, default=-1),
            health=self._with_environments(health),
            rows_per_s=rows_per_s(published, now_us),
            latency_ms=latency_ms([one for one in published if one.published_us >= now_us - _us(LATENCY_WINDOW_S)]),
            events=tuple(events),
            held=head.held if head else {},
            dead_letters=self._letters_waiting(),
        )

    def _with_environments(self, health: Health) -> Health:
        """Replicas with what they run in: asked once for each process."""
        said: dict[tuple[str, int], str] = {}
        for one in health.replicas:
            known = self._environments.get((one.replica, one.pid), "")
            said[one.replica, one.pid] = known or environment_text(self._store, one.replica, one.pid)
        self._environments = said
        found = [replace(one, environment=said[one.replica, one.pid]) for one in health.replicas]
        return replace(health, replicas=tuple(found))

    def _follow_changes(self) -> None:
        """An operation may have changed what is wanted since the look before."""
        desired = self._store.fact(DESIRED)
        if desired != self._desired:
            self._desired, self._limits = desired, _limits(run_settings(self._store))

    def _letters_waiting(self) -> int:
        """How many letters wait, as far as is known: brokers that are away must not hold up whoever looks."""
        if time.monotonic() >= self._letters_again_s:
            try:
                self._letters = self._dead_letters.open()
            except ConnectError:
                self._letters_again_s = time.monotonic() + _LETTERS_AGAIN_S
        return self._letters

    def _new_events(self) -> list[Event]:
        """Events of this run that were not seen yet."""
        events = self._store.events(self._last_event, _EVENTS_MAX)
        if events:
            self._last_event = events[-1][0]
        return [event for event in events if event[1] >= self._began_us]

    def _recent(self, head_epoch: int, now_us: int) -> list[Published]:
        """What was published within the last minute, and the newest however old it is."""
        newest = max(self._published, default=-1)
        first = newest - _LATE_EPOCHS if newest >= 0 else head_epoch - _EPOCHS_LOOKED_BACK
        for one in self._store.published(max(0, first), head_epoch):
            self._published[one.epoch] = one
        newest = max(self._published, default=-1)
        oldest_us = now_us - _us(LATENCY_WINDOW_S)
        self._published = {
            epoch: one for epoch, one in self._published.items() if one.published_us >= oldest_us or epoch == newest
        }
        return list(self._published.values())


def run_settings(store: Store) -> RunSettings:
    """The settings that the job is to have now; those that this release does not know are passed over."""
    order = last_run(store)
    held = order.settings.get("run", {}) if order is not None else json.loads(store.fact(RUN_SETTINGS) or "{}")
    return RunSettings.model_validate({key: value for key, value in held.items() if key in RunSettings.model_fields})


def _limits(settings: RunSettings) -> Limits:
    return Limits(
        wanted=settings.replicas,
        lead_epochs_max=settings.lead_epochs_max,
        # A waiting replica reports with every heartbeat at least; one that is silent this long has left the set.
        silence_max_s=max(settings.lag_timeout_s, 3 * settings.heartbeat_interval_s),
        publication_max_s=3 * settings.heartbeat_interval_s,
    )


def spares(store: Store) -> list[dict[str, Any]]:
    """The spares whose processes are there: a supervisor that was killed cannot take its word back."""
    return [one for one in json.loads(store.fact(SPARES) or "[]") if one.get("host") or psutil.pid_exists(one["pid"])]


def _us(seconds: float) -> int:
    return round(seconds * US_PER_S)


def rows_per_s(published: Sequence[Published], now_us: int) -> float:
    """Rows read per second of late: those published after the first epoch of the window, over the time since it.

    >>> one, two = (Published(e, "r0", e * US_PER_S, 500, None, None, 0.1) for e in (1, 2))
    >>> rows_per_s([one, two], 3 * US_PER_S), rows_per_s([], 3 * US_PER_S)
    (250.0, 0.0)

    Where records come too seldom for that, the last minute counts instead: a trickle is not nothing.

    >>> trickle = [Published(e, "r0", e * US_PER_S, int(e == 20), None, None, 0.1) for e in range(51)]
    >>> rows_per_s(trickle, 50 * US_PER_S)
    0.02

    Where epochs take longer than the window, the newest one counts, over the time since it was begun.

    >>> rows_per_s([Published(7, "r0", 60 * US_PER_S, 90_000, None, None, 25.0)], 80 * US_PER_S)
    2000.0
    """
    in_order = sorted(published, key=lambda one: one.published_us)
    window = [one for one in in_order if one.published_us >= now_us - _us(RATE_WINDOW_S)]
    if not any(one.records for one in window[1:]):
        window = in_order
    if len(window) > 1:
        begun_us, rows = window[0].published_us, sum(one.records for one in window[1:])
    elif in_order:
        begun_us, rows = in_order[-1].published_us - _us(in_order[-1].epoch_s), in_order[-1].records
    else:
        return 0.0
    return rows * US_PER_S / max(1, max(now_us, in_order[-1].published_us) - begun_us)


def latency_ms(published: Sequence[Published]) -> dict[str, float]:
    """p50, p99, max and count: the age of each epoch's oldest record when it was published.

    >>> latency_ms([Published(e, "r0", 1000 * (e + 100), 1, 1000 * 100, None, 0.1) for e in range(1, 101)])
    {'p50': 50.0, 'p99': 99.0, 'max': 100.0, 'count': 100}
    """
    ages = sorted(
        (one.published_us - one.ingested_oldest_us) / 1000 for one in published if one.ingested_oldest_us is not None
    )
    if not ages:
        return {"count": 0}
    ranks = {name: ages[math.ceil(share * len(ages)) - 1] for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1))}
    return {**ranks, "count": len(ages)}
