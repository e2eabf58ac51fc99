"""The life of an epoch as OpenTelemetry spans: one trace an epoch, in which each replica has a span with its parts.

An extra, and telemetry: spans wait in a bounded queue for a thread of their own, and are dropped and counted where a
collector is away or slow. No epoch waits for it, and none fails by it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.connect.remote.paths import AnyPath
from lockstep.errors import LockstepError, RunError
from lockstep.store.protocols import Entry, Holder

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

QUEUED_MAX = 512
"""Epochs that wait to be sent: about a minute of small ones. Beyond, they are dropped and counted."""
SENT_MAX = 64
"""Epochs in one request."""
EXPORT_TIMEOUT_S = 5.0
CLOSING_S = 2.0
"""How long the last ones may take when a replica ends."""
TOLD_EVERY_S = 60.0
SEAL, COMMIT = "seal", "commit"
_COMMITS = "commits"


@dataclass(frozen=True)
class Span:
    """A time with a name; ``name`` is "" for the whole epoch."""

    name: str
    begun_us: int
    ended_us: int


@dataclass
class EpochTimes:
    """When what began in one epoch of one stage."""

    entry: Entry
    batch: int
    begun: list[tuple[str, int]] = field(default_factory=list)
    """(step, when), in order."""
    done_us: int = 0
    published: bool = False
    """Whether it was published from here."""
    committed_us: int = 0
    """When Spark had committed it, 0 if that is not known."""

    def spans(self) -> Iterator[Span]:
        """The whole, and its parts one after the other: ``seal`` is from the epoch's time until Spark has begun it.

        >>> times = EpochTimes(Entry(7, 100, {}), 7, [("run", 130), ("digest", 150), ("publish out", 152)], 160)
        >>> [(one.name, one.begun_us, one.ended_us) for one in times.spans()]
        [('', 100, 160), ('seal', 100, 130), ('run', 130, 150), ('digest', 150, 152), ('publish out', 152, 160)]
        """
        steps = [*self.begun, ("", self.done_us)]
        first_us = steps[0][1]
        # Clocks of two hosts differ a little: what another one sealed may seem to be later than its beginning here.
        sealed_us = min(self.entry.epoch_time_us, first_us)
        last_us = max(self.done_us, self.committed_us)
        yield Span("", sealed_us, last_us)
        yield Span(SEAL, sealed_us, first_us)
        for (name, begun_us), (_, ended_us) in pairwise(steps):
            yield Span(name, begun_us, ended_us)
        if self.committed_us:
            yield Span(COMMIT, self.done_us, last_us)


def trace_id(job: str, epoch: int) -> int:
    """The same in all replicas, so that what they did with an epoch is one trace.

    >>> trace_id("logins", 7) == trace_id("logins", 7) != trace_id("logins", 8)
    True
    """
    return int.from_bytes(hashlib.blake2b(f"{job}\0{epoch}".encode(), digest_size=16).digest())


def span_id(trace: int, who: str, name: str) -> int:
    """A span's own number, from what it is about."""
    return int.from_bytes(hashlib.blake2b(f"{trace}\0{who}\0{name}".encode(), digest_size=8).digest())


def check_traces(address: str) -> None:
    """LS0675 if epochs are to be traced and what that needs is not installed."""
    if address and not _is_installed():
        raise RunError(
            "LS0675",
            f'epochs cannot be traced to "{address}"',
            why="OpenTelemetry's SDK and its OTLP exporter are not installed here.",
            hint='pip install "lockstep[telemetry]", or leave traces out of [run].',
        )


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


class Tracing:
    """Sends the spans of a replica's epochs to a collector, from a thread of its own."""

    def __init__(self, exporter: SpanExporter, job: str, holder: Holder, note: Callable[[str, str], None]) -> None:
        self._exporter = exporter
        self._job, self._holder = job, holder
        self._note = note
        self._waiting: queue.Queue[tuple[int, EpochTimes] | None] = queue.Queue(QUEUED_MAX)
        self._counting = threading.Lock()
        self.dropped = 0
        """Epochs whose spans nobody got."""
        self._told = 0
        self._tell_again_us = 0
        self._thread = threading.Thread(target=self._send_all, name="traces", daemon=True)
        self._thread.start()

    def add(self, stage: int, times: EpochTimes) -> None:
        """Send this soon, or never: whoever computes epochs does not wait."""
        try:
            self._waiting.put_nowait((stage, times))
        except queue.Full:
            self._drop(1)

    def close(self) -> None:
        """Send what waits, if that is possible at once."""
        while not self._said_over():
            # The thread has to hear that it is over: the oldest makes room for that.
            with suppress(queue.Empty):
                self._waiting.get_nowait()
                self._drop(1)
        self._thread.join(CLOSING_S)

    def _said_over(self) -> bool:
        try:
            self._waiting.put_nowait(None)
        except queue.Full:
            return False
        return True

    def _drop(self, epochs: int) -> None:
        with self._counting:
            self.dropped += epochs

    def _send_all(self) -> None:
        is_over = False
        while not is_over:
            found = [self._waiting.get()]
            with suppress(queue.Empty):
                while len(found) < SENT_MAX:
                    found.append(self._waiting.get_nowait())
            is_over = None in found
            self._send([one for one in found if one is not None])
        with suppress(Exception):
            self._exporter.shutdown()

    def _send(self, epochs: Sequence[tuple[int, EpochTimes]]) -> None:
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = [span for stage, times in epochs for span in self._spans(stage, times)]
        try:
            sent = not spans or self._exporter.export(spans) is SpanExportResult.SUCCESS
        except Exception:  # whatever goes wrong in a library or at a collector: no epoch is to notice
            sent = False
        self._drop(0 if sent else len(epochs))
        self._tell()

    def _tell(self) -> None:
        """Now and then, how many were dropped."""
        if self.dropped == self._told or wall_us() < self._tell_again_us:
            return
        self._tell_again_us = wall_us() + round(TOLD_EVERY_S * US_PER_S)
        with suppress(LockstepError):
            self._note("traces-dropped", f"{self.dropped - self._told} epochs: the collector is away or slow")
        self._told = self.dropped

    def _spans(self, stage: int, times: EpochTimes) -> Iterator[ReadableSpan]:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, TraceFlags

        who, epoch = f"{self._holder}/{stage}", times.entry.epoch
        trace = trace_id(self._job, epoch)
        names = {"service.name": f"lockstep/{self._job}", "service.instance.id": self._holder.replica}
        resource = Resource(names)

        def context(name: str) -> SpanContext:
            return SpanContext(trace, span_id(trace, who, name), is_remote=False, trace_flags=TraceFlags(1))

        for number, span in enumerate(times.spans()):
            yield ReadableSpan(
                span.name or f"epoch {epoch}",
                context(f"{number} {span.name}" if span.name else ""),
                parent=context("") if span.name else None,
                resource=resource,
                attributes=None if span.name else self._attributes(stage, times),
                start_time=span.begun_us * 1000,
                end_time=span.ended_us * 1000,
            )

    def _attributes(self, stage: int, times: EpochTimes) -> Mapping[str, str | int | bool]:
        return {
            "lockstep.job": self._job,
            "lockstep.epoch": times.entry.epoch,
            "lockstep.replica": self._holder.replica,
            "lockstep.incarnation": self._holder.incarnation,
            "lockstep.stage": stage,
            "lockstep.records": times.entry.records,
            "lockstep.sealed_by": times.entry.sealed_by,
            "lockstep.published": times.published,
        }


def tracing(address: str, job: str, holder: Holder, note: Callable[[str, str], None]) -> Tracing | None:
    """Whoever sends spans to a collector; None if nobody wants them, or what it needs is not on this host."""
    if not address:
        return None
    if not _is_installed():
        note("traces-off", 'this host has no OpenTelemetry: pip install "lockstep[telemetry]"')
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    # What is dropped is an event; the exporter would say it in the log too, three lines for each attempt.
    logging.getLogger(OTLPSpanExporter.__module__).setLevel(logging.CRITICAL)
    exporter = OTLPSpanExporter(endpoint=f"{address.rstrip('/')}/v1/traces", timeout=EXPORT_TIMEOUT_S)
    return Tracing(exporter, job, holder, note)


class StageTraces:
    """Notes the times of one stage's epochs. An epoch is sent when the next one begins: then it is committed."""

    def __init__(self, tracing: Tracing | None, stage: int, checkpoint: AnyPath, clock: Clock = wall_us) -> None:
        self._tracing = tracing
        self._stage = stage
        self._commits = checkpoint / _COMMITS if isinstance(checkpoint, Path) else None
        """Only on a disk: asking a store far away would cost a call an epoch."""
        self._clock = clock
        self._times: EpochTimes | None = None

    def begin(self, entry: Entry, batch: int) -> None:
        """Spark calls with this epoch."""
        if self._tracing is not None:
            self.send()
            self._times = EpochTimes(entry, batch)

    def step(self, name: str) -> None:
        """This is done from now on. What is tried again and again is one part."""
        if self._times is not None and (not self._times.begun or self._times.begun[-1][0] != name):
            self._times.begun.append((name, self._clock()))

    def done(self, *, published: bool) -> None:
        """Everything is done, and Spark may commit."""
        if self._times is not None:
            self._times.done_us, self._times.published = self._clock(), published

    def send(self) -> None:
        """What is known of the epoch before; one that failed half-way is not told, it is computed again."""
        times, self._times = self._times, None
        if self._tracing is None or times is None or not times.done_us:
            return
        if self._commits is not None:
            with suppress(OSError):
                times.committed_us = (self._commits / str(times.batch)).stat().st_mtime_ns // 1000
        self._tracing.add(self._stage, times)
