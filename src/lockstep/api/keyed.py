"""A stream by key, as a user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing
from lockstep.api.windowed import KEYED_SLIPS, WindowedStream, aggregate, checked_window
from lockstep.plan.expression import Expression
from lockstep.plan.steps import Named
from lockstep.plan.windows import Window

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

__all__ = ["KEYED_SLIPS", "KeyedStream"]


class KeyedStream:
    """A stream by key: say what to compute for each key."""

    def __init__(self, stream: Stream, keys: Named) -> None:
        self._stream = stream
        self._keys = keys

    def window(self, window: Window) -> WindowedStream:
        """Compute for each key and window of event time."""
        return WindowedStream(self._stream, self._keys, checked_window(window))

    def agg(self, *columns: Expression, name: str | None = None, exact_floats: bool = True, **named: Any) -> Stream:
        """One record for each key, updated in every epoch that changes it: ``agg(n=F.count("*"))``.

        Sums and averages of floats are exact by default, so that replicas agree to the last digit;
        ``exact_floats=False`` adds in any order, faster.
        """
        values = self._stream._values("agg", columns, named)
        return aggregate(self._stream, name, self._keys, values, exact_floats=exact_floats)

    def __getattr__(self, asked: str) -> NoReturn:
        explain_missing(self, asked, KEYED_SLIPS)
