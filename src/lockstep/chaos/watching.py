"""What an outsider sees: a reader that polls a sink, and which replicas were well when."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lockstep.clock import US_PER_S, wall_us
from lockstep.config import STORE_FOLDER
from lockstep.connect.protocols import Place, Publication, SinkSide
from lockstep.connect.registry import sink_side
from lockstep.plan.steps import Sink

POLL_S = 0.01


@dataclass(frozen=True)
class SeenEpoch:
    """One epoch as the reader saw it appear."""

    epoch: int
    seen_us: int
    oldest_us: int | None
    """Ingestion time of its oldest record, None for an epoch without records."""
    rows: int
    by: str
    """Who published it: replica and incarnation."""
    digest: str = ""

    @property
    def latency_s(self) -> float | None:
        """How long its oldest record had waited when it became visible."""
        return None if self.oldest_us is None else (self.seen_us - self.oldest_us) / US_PER_S


@dataclass
class Span:
    """A time in which a replica was well."""

    replica: str
    first_us: int
    last_us: int


class Reader(threading.Thread):
    """Polls the fences of one sink, as any consumer could, until it is stopped; also the one after the next."""

    def __init__(self, sink: Sink, project: Path, job: str) -> None:
        super().__init__(name="reader", daemon=True)
        self._place = Place(project, project / STORE_FOLDER, job)
        self._sink = sink
        self._ask_to_stop = threading.Event()
        self._seen_epochs: list[SeenEpoch] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        """Look for the next epoch again and again."""
        data = self._sink.spec.to_json()
        path = self._place.project / str(data.get("path") or data["database"])
        try:
            while not path.exists() and not self._ask_to_stop.wait(POLL_S):
                continue  # a reader that opens a database makes it, which is the job's to do
            side = sink_side(self._sink.spec, self._sink.id, self._place, self._sink.given)
            while not self._ask_to_stop.wait(POLL_S):
                self._look(side)
            side.close()
        except Exception as error:
            # Raised again in the thread that asks: a reader that died quietly would look like a gap.
            self.failure = error

    def seen_epochs(self) -> list[SeenEpoch]:
        """Everything seen so far, in the order in which it appeared."""
        if self.failure is not None:
            raise self.failure
        return list(self._seen_epochs)

    def newest_us(self) -> int | None:
        """When an epoch was seen last."""
        return self._seen_epochs[-1].seen_us if self._seen_epochs else None

    def stop(self) -> None:
        """End, and wait until it has."""
        self._ask_to_stop.set()
        if self.is_alive():
            self.join()

    def _look(self, side: SinkSide) -> None:
        epoch = self._seen_epochs[-1].epoch + 1 if self._seen_epochs else 0
        while (found := side.publication(epoch)) is not None:
            self._note(found)
            epoch += 1
        ahead = side.publication(epoch + 1)
        # Asked again: between the first two questions both may have been published.
        if ahead is not None and side.publication(epoch) is None:
            self._note(ahead)

    def _note(self, found: Publication) -> None:
        seen = SeenEpoch(found.epoch, wall_us(), found.ingested_oldest_us, found.rows, found.by, found.digest)
        self._seen_epochs.append(seen)


class Attendance:
    """Which replicas were well when, from samples that are taken often."""

    def __init__(self) -> None:
        self._open: dict[str, Span] = {}
        self.spans: list[Span] = []

    def sample(self, well: Sequence[str], now_us: int) -> tuple[list[str], list[str]]:
        """Take who is well now; (who came, who left).

        >>> attendance = Attendance()
        >>> attendance.sample(["r0", "r1"], 0), attendance.sample(["r1"], 400_000), attendance.sample(["r1"], 700_000)
        ((['r0', 'r1'], []), ([], ['r0']), ([], []))
        >>> [(span.replica, span.first_us, span.last_us) for span in attendance.spans]
        [('r0', 0, 0), ('r1', 0, 700000)]
        """
        came = [name for name in well if name not in self._open]
        left = [name for name in self._open if name not in well]
        for name in left:
            del self._open[name]
        for name in came:
            self._open[name] = Span(name, now_us, now_us)
            self.spans.append(self._open[name])
        for name in well:
            self._open[name].last_us = now_us
        return came, left
