"""The observer: a process of its own that looks for the next epoch every few milliseconds and notes when it sees it.

``python -m lockstep.bench.observer FOLDER SUFFIX LOG``. It knows nothing of the store or the replicas: an epoch is
there when its file is, which is what any reader of the sink goes by (a manifest appears whole, in one atomic act).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from lockstep.bench.gaps import SeenEpoch
from lockstep.bench.stopping import Stop
from lockstep.clock import Clock, wall_us

POLL_S = 0.004


def observe(folder: Path, suffix: str, note: Callable[[SeenEpoch], None], stop: Stop, clock: Clock = wall_us) -> None:
    """Note every epoch's file as it appears, in order, until told to stop."""
    epoch = 0
    path = epoch_file(folder, epoch, suffix)
    while True:
        # As text and not as Path: this runs 250 times a second beside what is measured.
        while os.path.exists(path):  # noqa: PTH110
            note((epoch, clock()))
            epoch += 1
            path = epoch_file(folder, epoch, suffix)
        if stop.wait(POLL_S):
            return


def epoch_file(folder: Path, epoch: int, suffix: str) -> str:
    """The name that an epoch's file has.

    >>> epoch_file(Path("m"), 7, ".json")
    'm/000000000007.json'
    """
    return f"{folder}/{epoch:012d}{suffix}"


def read_seen_epochs(log: Path) -> list[SeenEpoch]:
    """What an observer has noted so far."""
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
    # The last line may still be in the making.
    words = [line.split() for line in lines if line.endswith("\n")]
    return [(int(epoch), int(seen_us)) for epoch, seen_us in words]


def main() -> None:
    """The process of an observer."""
    folder, suffix, log_path = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    stop = Stop().on_signals()
    with log_path.open("a", encoding="utf-8", buffering=1) as log:
        observe(folder, suffix, lambda seen: _write(log.write, seen), stop)


def _write(write: Callable[[str], object], seen: SeenEpoch) -> None:
    write(f"{seen[0]} {seen[1]}\n")


if __name__ == "__main__":
    main()
