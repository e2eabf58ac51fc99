"""A stream by window, as a user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, step_name
from lockstep.errors import PlanError
from lockstep.plan.expression import Expression
from lockstep.plan.steps import Aggregate, Named
from lockstep.plan.windows import Sliding, Tumbling, Window

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

KEYED_SLIPS = {"": 'first say what to compute: .agg(n=F.count("*")); the result is a stream again.'}


class WindowedStream:
    """A stream by window, and by key if it has one: say what to compute."""

    def __init__(self, stream: Stream, keys: Named, window: Window) -> None:
        self._stream = stream
        self._keys = keys
        self._window = window

    def agg(self, *columns: Expression, name: str | None = None, exact_floats: bool = True, **named: Any) -> Stream:
        """One record for each key and window when the window closes: keys, window_start, window_end, aggregates."""
        values = self._stream._values("agg", columns, named)
        return aggregate(self._stream, name, self._keys, values, window=self._window, exact_floats=exact_floats)

    def __getattr__(self, asked: str) -> NoReturn:
        explain_missing(self, asked, KEYED_SLIPS)


def checked_window(window: Any) -> Window:
    """``window`` if it is one, else what to write (LS0114)."""
    if isinstance(window, (Tumbling, Sliding)):
        return window
    example = f'"{window}"' if isinstance(window, str) else '"1 minute"'
    raise PlanError(
        "LS0114",
        f".window(...) was given a {type(window).__name__}, not a window",
        hint=f".window(ls.tumbling({example}))",
    )


def aggregate(
    stream: Stream,
    name: str | None,
    keys: Named,
    aggregates: Named,
    *,
    exact_floats: bool,
    window: Window | None = None,
) -> Stream:
    """The stream of an aggregation by key, by window, or by both."""
    step_id = stream._id("agg", step_name(name, stream.columns, "agg"))
    return stream._then(Aggregate(step_id, stream._step, keys, window, aggregates, exact_floats))
