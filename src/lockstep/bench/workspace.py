"""The temporary folder of a bench, removed afterwards; and telling a person how far it is."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

Say = Callable[[str], None]


@contextmanager
def workspace(bench: str, say: Say, *, keep: bool) -> Iterator[Path]:
    """A fresh folder for everything a bench writes; removed at the end, also after Ctrl-C, unless it is to be kept."""
    folder = Path(tempfile.mkdtemp(prefix=f"lockstep-bench-{bench}-"))
    try:
        with _terminated_as_interrupted():
            yield folder
    finally:
        if keep:
            say(f"kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def say_to_stderr() -> Say:
    """A function that prints a line with the seconds since now to stderr."""
    begun_s = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - begun_s:7.1f} s  {text}", file=sys.stderr, flush=True)

    return say


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM ends a bench as Ctrl-C does: through every ``finally``, so that no process is left behind."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
