"""Joins as a user writes them: arguments become one of the join steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, python_schema
from lockstep.durations import Duration, duration_us
from lockstep.errors import PlanError
from lockstep.plan.joins import CoGroup, IntervalJoin, JoinKind, JoinWindow, Pairs, TableJoin, WindowJoin
from lockstep.plan.schema import Schema
from lockstep.plan.specs import TableSpec
from lockstep.plan.steps import Named

if TYPE_CHECKING:
    from lockstep.api.stream import Stream

On = str | Sequence[str] | Mapping[str, str]
"""Columns that have to be equal: a name, several, or left names to right names."""

Between = tuple[Duration, Duration]
"""How long before (with a minus) or after the left record the right one may have happened."""

_NO_TIME = (
    'between=("-5 minutes", "10 minutes"): the right record happened from 5 minutes before to 10 minutes after the '
    'left one; or window=ls.tumbling("1 minute"): both are in the same window.'
)


def join(
    left: Stream,
    right: Any,
    on: On | None,
    how: JoinKind,
    between: Between | None,
    window: JoinWindow | None,
    suffixes: tuple[str, str] | None,
    name: str | None,
) -> Stream:
    """The join that these arguments ask for."""
    pairs, endings = key_pairs(on), _checked_suffixes(suffixes)
    step_id = left._id("join", name)
    if isinstance(right, TableSpec) and getattr(right, "kind", "") == "table":
        _check_no_time(between, window)
        return left._then(TableJoin(step_id, left._step, pairs, how, endings, right))
    other = _checked_stream(left, right)
    if between is not None and window is None:
        lower, upper = _bounds(between)
        return left._then(IntervalJoin(step_id, left._step, pairs, how, endings, other._step, lower, upper))
    if window is not None and between is None:
        return left._then(WindowJoin(step_id, left._step, pairs, how, endings, other._step, window))
    raise _unbounded(both=between is not None)


def key_pairs(on: Any) -> Pairs:
    """``on=`` as pairs of column names.

    >>> key_pairs("id"), key_pairs(["shop", "id"]), key_pairs({"id": "order_id"})
    ((('id', 'id'),), (('shop', 'shop'), ('id', 'id')), (('id', 'order_id'),))
    """
    match on:
        case None:
            return ()
        case str():
            return ((on, on),)
        case Mapping() if all(isinstance(name, str) for pair in on.items() for name in pair):
            return tuple(on.items())
        case list() | tuple() if all(isinstance(name, str) for name in on):
            return tuple((name, name) for name in on)
    raise PlanError(
        "LS0180",
        f".join(on=...) was given {on!r}",
        why="a join compares columns by name.",
        hint='on="order_id", on=["shop", "order_id"], or on={"id": "order_id"}; '
        "for an expression make a column first: .with_columns(day=...).",
    )


class CoGrouped:
    """Two streams by key, to be looked at together: say in which windows."""

    def __init__(self, left: tuple[Stream, Named], right: tuple[Stream, Named]) -> None:
        self._left = left
        self._right = right

    def window(self, window: JoinWindow) -> CoGroupedWindow:
        """Windows of event time in which the records of both streams are gathered: tumbling or sliding."""
        return CoGroupedWindow(self._left, self._right, window)

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, {"": 'first say in which windows: .window(ls.tumbling("1 minute"))'})


class CoGroupedWindow:
    """Two streams by key and window: say which function makes records of them."""

    def __init__(self, left: tuple[Stream, Named], right: tuple[Stream, Named], window: JoinWindow) -> None:
        self._left = left
        self._right = right
        self._window = window

    def apply(
        self,
        function: Callable[[Any, list[Any], list[Any], Any], Any],
        *,
        schema: str | Schema | None = None,
        name: str | None = None,
    ) -> Stream:
        """Records made by ``function(key, left, right, window)`` when a window closes.

        ``left`` and ``right`` are lists of records, in order of event time; one of them may be empty. ``window`` has
        ``start`` and ``end``. The function returns or yields dicts with the fields of ``schema``.
        """
        (left, left_keys), (right, right_keys) = self._left, self._right
        made = python_schema(schema, "apply")
        step_id = left._id("co_group", name)
        streams, keys = (left._step, right._step), (left_keys, right_keys)
        return left._then(CoGroup(step_id, streams, keys, self._window, function, made))

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, {"": 'continue with .apply(function, schema="...")'})


def co_group(left: Stream, left_keys: Named, other: Any) -> CoGrouped:
    """Both streams by key; ``other`` is a stream by key too (LS0180 if not)."""
    from lockstep.api.keyed import KeyedStream

    if not isinstance(other, KeyedStream):
        raise PlanError(
            "LS0180",
            f".co_group(...) was given a {type(other).__name__}, not a stream by key",
            hint='a.key_by("user").co_group(b.key_by("user")).window(ls.tumbling("1 minute")).apply(...)',
        )
    left._check_united(other._stream)
    return CoGrouped((left, left_keys), (other._stream, other._keys))


def _checked_stream(left: Stream, right: Any) -> Stream:
    from lockstep.api.stream import Stream

    if isinstance(right, Stream):
        left._check_united(right)
        return right
    hint = 'orders.join(payments, on="order_id", between=("-5 minutes", "10 minutes"))'
    if isinstance(right, str):
        hint = f'orders.join(ls.table("{right}"), on="customer_id")'
    raise PlanError("LS0180", f".join(...) was given a {type(right).__name__}, neither a stream nor a table", hint=hint)


def _bounds(between: Any) -> tuple[int, int]:
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise PlanError("LS0182", f"between={between!r} is not a pair of durations", hint=_NO_TIME)
    return _signed_us(between[0]), _signed_us(between[1])


def _signed_us(value: Any) -> int:
    if isinstance(value, str) and value.strip().startswith("-"):
        return -duration_us(value.strip()[1:].strip())
    return duration_us(value.strip().removeprefix("+") if isinstance(value, str) else value)


def _checked_suffixes(suffixes: Any) -> tuple[str, str] | None:
    if suffixes is None:
        return None
    pair = tuple(suffixes) if isinstance(suffixes, (tuple, list)) else ()
    if len(pair) == 2 and all(isinstance(one, str) for one in pair):
        return pair
    raise PlanError("LS0183", f"suffixes={suffixes!r} is not a pair of texts", hint='suffixes=("_left", "_right")')


def _check_no_time(between: object, window: object) -> None:
    if between is not None or window is not None:
        raise PlanError(
            "LS0182",
            "a join with a table has no time bound",
            why="a table is the same for the whole run; its rows have no event time.",
            hint='leave between= and window= out: .join(ls.table("customers.parquet"), on="customer_id")',
        )


def _unbounded(*, both: bool) -> PlanError:
    if both:
        return PlanError("LS0182", "a join has between= or window=, not both", hint=_NO_TIME)
    return PlanError(
        "LS0182",
        "a join of two streams has no time bound",
        why="every record would have to be kept for ever, since its partner may still come: the state would grow "
        "without end.",
        hint=_NO_TIME,
    )
