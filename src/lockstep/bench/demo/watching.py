"""The independent reader: it polls the sink as any consumer would, and notes when each epoch became visible to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from lockstep.clock import wall_us
from lockstep.connect.reading import Reader
from lockstep.errors import ConnectError

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

    @property
    def age_us(self) -> int | None:
        """How long its oldest record had waited when it became visible."""
        return None if self.oldest_us is None else self.seen_us - self.oldest_us


class Watcher(threading.Thread):
    """Polls one files sink until it is stopped."""

    def __init__(self, sink: Path) -> None:
        super().__init__(name="reader", daemon=True)
        self._sink = sink
        self._stop_asked = threading.Event()
        self._seen_epochs: list[SeenEpoch] = []
        self.failure: Exception | None = None

    def run(self) -> None:
        """Look for the next epoch again and again."""
        try:
            reader = self._opened()
            while reader is not None and not self._stop_asked.wait(POLL_S):
                self._look(reader)
        except Exception as error:
            # Raised again in the thread that asks: a reader that died quietly would look like a gap.
            self.failure = error

    def seen_epochs(self) -> list[SeenEpoch]:
        """Everything seen so far, in epoch order."""
        if self.failure is not None:
            raise self.failure
        return list(self._seen_epochs)

    def stop(self) -> None:
        """End, and wait until it has."""
        self._stop_asked.set()
        self.join()

    def _opened(self) -> Reader | None:
        while not self._stop_asked.wait(POLL_S):
            try:
                return Reader(self._sink)
            except ConnectError as error:
                if error.code != "LS0513":
                    raise
        return None

    def _look(self, reader: Reader) -> None:
        epoch = self._seen_epochs[-1].epoch + 1 if self._seen_epochs else 0
        while (found := reader.publication(epoch)) is not None:
            self._seen_epochs.append(SeenEpoch(epoch, wall_us(), found.ingested_oldest_us, found.rows, found.by))
            epoch += 1
