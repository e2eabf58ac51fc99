"""A run without a terminal: plain lines for a log, or JSON lines for a program."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING, TextIO

from lockstep.cli.output import iso_text, rate_text, span_text, time_text, waiting_text
from lockstep.clock import wall_us
from lockstep.control.status.event_words import event_text, is_divergence
from lockstep.control.status.report import overview_json

if TYPE_CHECKING:
    from lockstep.control.status.health import Event, ReplicaHealth
    from lockstep.control.status.overview import Overview

PLAIN_STATUS_INTERVAL_S = 5.0
JSON_STATUS_INTERVAL_S = 1.0
_RULE = "!" * 78


class PlainLines:
    """One line every few seconds, and one for every event, on stderr."""

    interval_s = 0.5

    def __init__(self, job: str) -> None:
        self._job = job
        self._next_s = 0.0
        self._state = ""

    def begin(self) -> None:
        """Nothing has to be prepared."""

    def show(self, overview: Overview) -> None:
        """Write new events; and the state if it has changed or is due."""
        for event in overview.events:
            _to_stderr(_event_lines(event))
        changed = overview.health.state != self._state
        if changed or time.monotonic() >= self._next_s:
            self._next_s, self._state = time.monotonic() + PLAIN_STATUS_INTERVAL_S, overview.health.state
            self.say(status_line(self._job, overview))

    def say(self, text: str) -> None:
        """Write a line with the time."""
        _to_stderr(f"{time_text(wall_us())[:-4]} {text}")

    def end(self, last: Overview) -> None:
        """Write the last events."""
        for event in last.events:
            _to_stderr(_event_lines(event))


class JsonLines:
    """A status every second and each event, one JSON document a line."""

    interval_s = 0.5

    def __init__(self, job: str, stream: TextIO) -> None:
        self._job = job
        self._stream = stream
        self._next_s = 0.0

    def begin(self) -> None:
        """Nothing has to be prepared."""

    def show(self, overview: Overview) -> None:
        """Write new events, and the status if it is due."""
        for event in overview.events:
            self.write("event", event_json(event))
        if time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + JSON_STATUS_INTERVAL_S
            self.write("status", overview_json(self._job, overview))

    def say(self, text: str) -> None:
        """Write a message for people."""
        self.write("message", {"text": text})

    def end(self, last: Overview) -> None:
        """Write how it ended."""
        self._next_s = 0.0
        self.show(last)

    def write(self, kind: str, body: dict[str, object]) -> None:
        """One line, at once: whoever reads the pipe waits for it."""
        document = {"type": kind, "at": iso_text(wall_us()), **body}
        self._stream.write(json.dumps(document, default=str, ensure_ascii=False) + "\n")
        self._stream.flush()


def status_line(job: str, overview: Overview) -> str:
    """The job in one line."""
    health = overview.health
    parts = [f"{job} {health.state}"]
    if overview.head_epoch >= 0:
        parts.append(f"epoch {overview.head_epoch}")
        parts.append(f"{rate_text(overview.rows_per_s)} rows/s")
    if overview.latency_ms.get("count"):
        p50, p99 = (span_text(overview.latency_ms[name]) for name in ("p50", "p99"))
        parts.append(f"latency p50 {p50} p99 {p99}")
    if overview.dead_letters:
        parts.append(f"{overview.dead_letters} dead letters")
    if overview.held:
        parts.append(waiting_text(overview.held))
    replicas = "; ".join(_replica_words(one) for one in health.replicas)
    why = f" ({health.reason})" if health.state in ("degraded", "stalled") else ""
    return f"{', '.join(parts)}{why}: {replicas}"


def _replica_words(one: ReplicaHealth) -> str:
    if one.starting_s is not None:
        return f"{one.replica} {one.state} for {one.starting_s:.0f} s"
    behind = f", {one.lag_epochs} behind" if one.lag_epochs else ""
    restarts = f", {one.restarts} restarts" if one.restarts else ""
    return f"{one.replica} {one.state} at {one.epoch}{behind}{restarts}"


def _event_lines(event: Event) -> str:
    line = f"{time_text(event[1])[:-4]} {event_text(event)}"
    return f"{_RULE}\nREPLICAS DISAGREE\n{line}\n{_RULE}" if is_divergence(event) else line


def event_json(event: Event) -> dict[str, object]:
    """An event for a program."""
    _, at_us, kind, replica, text = event
    return {"happened": iso_text(at_us), "kind": kind, "replica": replica, "text": text}


def _to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
