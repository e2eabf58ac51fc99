"""The feeder as the demo sees it: a process of its own, started, watched and asked what it has sent."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lockstep.bench.demo.events import BLOCK_EVENTS
from lockstep.errors import RunError

JOURNAL = "documents"
END_TIMEOUT_S = 120.0
"""It has one event to send and a line to write; on a busy machine that takes its time."""


@dataclass(frozen=True)
class Fed:
    """What the feeder sent, all of it acknowledged: enough to make every event again."""

    seed: int
    start_us: int
    blocks: int
    behind_s_max: float
    """How late it was at worst: a feeder that is starved of CPU would make latencies look better than they are."""

    @property
    def records(self) -> int:
        """How many records the journal has to hold, the closing event included."""
        return self.blocks * BLOCK_EVENTS + 1


class Feeder:
    """The running feeder, as the demo sees it."""

    def __init__(self, store: Path, seed: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.bench.demo.feeder", str(store), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # Ctrl-C is the demo's to handle: it ends the feeder itself, in its order.
            start_new_session=True,
        )

    def check(self) -> None:
        """Fail at once if it has ended by itself: nothing measured after that would mean anything."""
        if self._process.poll() is not None:
            raise RunError("LS0620", f"the demo's feeder ended by itself with exit code {self._process.returncode}")

    def finish(self) -> Fed:
        """Let it close the windows and end; what it sent."""
        said, _ = self._process.communicate(timeout=END_TIMEOUT_S)
        return Fed(**json.loads(said))

    def kill(self) -> None:
        """End it at once, if it still runs."""
        self._process.kill()
        self._process.communicate()
