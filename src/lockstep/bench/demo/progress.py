"""Progress for the person who watches: a live line on a terminal, plain lines in a log. All of it on stderr."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.text import Text

LINE_INTERVAL_S = 10.0
"""Without a terminal, the live line is written this often at most."""


class Progress:
    """Tells what happens, as it happens."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._status = self._console.status("") if self._console.is_terminal else None
        self._started_s = time.monotonic()
        self._shown_s = self._started_s

    @property
    def elapsed_s(self) -> float:
        """Since it began."""
        return time.monotonic() - self._started_s

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def title(self, text: str) -> None:
        """A new part of the demo."""
        self._console.print()
        self._line(text, "bold")

    def say(self, text: str, style: str = "") -> None:
        """Something happened."""
        self._line(text, style)

    def show(self, text: str) -> None:
        """How things are just now."""
        if self._status is not None:
            self._status.update(Text(text, style="dim"))
        elif time.monotonic() - self._shown_s >= LINE_INTERVAL_S:
            self._line(text, "")

    def _line(self, text: str, style: str) -> None:
        self._shown_s = time.monotonic()
        self._console.print(Text.assemble((f"{self.elapsed_s:6.1f} s  ", "dim"), (text, style)), soft_wrap=True)
