"""Notes when whole files appear in a folder: ``python -m benchmarks.change.file_observer FOLDER LOG``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lockstep.bench.observer import POLL_S
from lockstep.bench.stopping import Stop
from lockstep.clock import wall_us


def main() -> None:
    """One line for each look that found something new: a number and the time, as the observer of epochs writes them."""
    folder, log, stop = sys.argv[1], Path(sys.argv[2]), Stop().on_signals()
    known: set[str] = set()
    number = 0
    with log.open("a", encoding="utf-8", buffering=1) as file:
        while not stop.wait(POLL_S):
            # As text and not as Path: this runs 250 times a second beside what is measured.
            names = {name for name in os.listdir(folder) if not name.startswith(".")}  # noqa: PTH208
            if names - known:
                known |= names
                file.write(f"{number} {wall_us()}\n")
                number += 1


if __name__ == "__main__":
    main()
