"""Process functions over keyed streams, and streams connected with others, as a user sees them."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

from lockstep.api.arguments import explain_missing, python_schema
from lockstep.errors import PlanError
from lockstep.keyed.process import InputKind, Process, handler_names
from lockstep.plan.keyed import KeyedStep, SideOutput
from lockstep.plan.processes import ProcessStep
from lockstep.plan.schema import Schema, parse_schema
from lockstep.plan.steps import Named

if TYPE_CHECKING:
    from lockstep.api.keyed import KeyedStream
    from lockstep.api.stream import Stream

_SLIPS = {"": "first say what to do with both: .process(MyProcess(), schema=...); the result is a stream again."}
_BROADCAST_SLIPS = {"": "a broadcast stream is only there to be connected: events.connect(this)."}
_EXAMPLE = """\
class MyProcess(ls.Process):
    def {method}(self, record, ctx): ..."""


class BroadcastStream:
    """A stream whose every record reaches all keys: ``events.key_by("user").connect(rules.broadcast())``."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, _BROADCAST_SLIPS)


class ConnectedStream:
    """Two streams that one process function handles, with the same state.

    >>> import lockstep as ls
    >>> job = ls.Job("doc")
    >>> calls = job.source("calls", ls.journal("calls", schema="user string, ms bigint"))
    >>> limits = job.source("limits", ls.journal("limits", schema="name string, ms bigint"))
    >>> class Slow(ls.Process):
    ...     limits = ls.broadcast_map("string", "bigint")
    ...     def on_broadcast(self, record, ctx):
    ...         self.limits[record.name] = record.ms
    ...     def on_record(self, record, ctx):
    ...         if record.ms > self.limits.get("slow", 1000):
    ...             ctx.emit(user=ctx.key.user, ms=record.ms)
    >>> calls.key_by("user").connect(limits.broadcast()).process(Slow(), schema="user string, ms bigint").columns
    ('user', 'ms')
    """

    def __init__(
        self, first: Stream, keys: tuple[Named | None, ...], second: Stream, kinds: tuple[InputKind, ...]
    ) -> None:
        self._first = first
        self._second = second
        self._keys = keys
        self._kinds = kinds

    def process(
        self,
        process: Process,
        *,
        schema: str | Schema | None = None,
        side_outputs: Mapping[str, str | Schema] | None = None,
        ordered: bool = False,
        name: str | None = None,
    ) -> Stream:
        """Handle the records of both: see :meth:`KeyedStream.process`.

        Of two keyed streams, ``on_left`` and ``on_right`` get the records (or ``on_record`` and ``on_other``), of one
        connected with a broadcast ``on_record`` and ``on_broadcast``.
        """
        streams = (self._first, self._second)
        return process_of(streams, self._keys, self._kinds, process, schema, side_outputs, name, ordered=ordered)

    if not TYPE_CHECKING:  # for people who mistype, not for type checkers

        def __getattr__(self, asked: str) -> NoReturn:
            explain_missing(self, asked, _SLIPS)


def connect(stream: Stream, keys: Named | None, other: Any) -> ConnectedStream:
    """Two streams for one process function; ``keys`` is None where the first has no key."""
    from lockstep.api.keyed import KeyedStream

    if isinstance(other, BroadcastStream):
        stream._check_united(other._stream)
        return ConnectedStream(stream, (keys or (), None), other._stream, ("record", "broadcast"))
    if isinstance(other, KeyedStream) and keys is not None:
        stream._check_united(other._stream)
        _check_same_keys(stream, keys, other)
        return ConnectedStream(stream, (keys, other._keys), other._stream, ("left", "right"))
    raise PlanError(
        "LS0152",
        f".connect(...) was given a {type(other).__name__}",
        why="state belongs to keys: a stream connects with one by the same key, or with a broadcast.",
        hint='orders.key_by("user").connect(visits.key_by("user")), or .connect(rules.broadcast()).',
    )


def _check_same_keys(stream: Stream, keys: Named, other: KeyedStream) -> None:
    mine, theirs = [name for name, _ in keys], [name for name, _ in other._keys]
    if len(mine) != len(theirs):
        raise PlanError(
            "LS0152",
            f"the connected streams have keys of {len(mine)} and of {len(theirs)} parts",
            why=f'"{stream._step.id}" by {", ".join(mine)}; "{other._stream._step.id}" by {", ".join(theirs)}.',
            hint="key both by the same things; the names of the first are used.",
        )


def side(stream: Stream, output: str) -> Stream:
    """The stream of a side output."""
    step = stream._step
    if not isinstance(step, KeyedStep):
        raise PlanError(
            "LS0140",
            f'step "{step.id}" has no side outputs',
            why="process functions and windows have them, and .side(...) comes right after.",
            hint='results = keyed.process(..., side_outputs={"late": "user string"}); results.side("late")',
        )
    return stream._then(SideOutput(stream._id(f"{step.id}_{output}"[:64], None), step, output))


def process_of(
    streams: tuple[Stream, ...],
    keys: tuple[Named | None, ...],
    kinds: tuple[InputKind, ...],
    process: Any,
    schema: Any,
    side_outputs: Mapping[str, str | Schema] | None,
    name: str | None,
    *,
    ordered: bool,
) -> Stream:
    """The stream that a process function makes of others."""
    first = streams[0]
    _check_process(process, kinds)
    without_key = keys[0] == ()
    if without_key:
        _check_stateless(process)
    step = ProcessStep(
        first._id("process", name),
        tuple(stream._step for stream in streams),
        keys,
        process,
        python_schema(schema, "process"),
        kinds,
        tuple((name, state.describe()) for name, state in sorted(process.states().items())),
        tuple((name, parse_schema(given)) for name, given in (side_outputs or {}).items()),
        ordered,
        without_key,
    )
    return first._then(step)


def _check_process(process: Any, kinds: tuple[InputKind, ...]) -> None:
    if isinstance(process, type) and issubclass(process, Process):
        raise PlanError("LS0151", f".process(...) was given the class {process.__name__}", hint=f"{process.__name__}()")
    if not isinstance(process, Process):
        raise PlanError(
            "LS0151",
            f".process(...) was given a {type(process).__name__}, not a process function",
            hint=f"{_EXAMPLE.format(method='on_record')}\n.process(MyProcess(), schema=...)",
        )
    for kind in kinds:
        _check_handler(process, kind)
    shared = [name for name, state in process.states().items() if state.shared]
    if shared and "broadcast" not in kinds:
        raise PlanError(
            "LS0151",
            f"{type(process).__name__} has broadcast state ({', '.join(shared)}), but no broadcast stream",
            hint=".connect(rules.broadcast()) before .process(...), or ls.value_state(...) for state of each key.",
        )


def _check_handler(process: Process, kind: InputKind) -> None:
    names = handler_names(kind)
    method = next((found for name in names if (found := getattr(type(process), name, None)) is not None), None)
    if method is None:
        raise PlanError(
            "LS0151",
            f"{type(process).__name__} has no {' or '.join(names)}",
            why="that is what the records of this stream are handed to.",
            hint=_EXAMPLE.format(method=names[0]),
        )
    if inspect.iscoroutinefunction(method) or inspect.isgeneratorfunction(method):
        raise PlanError(
            "LS0151",
            f"{method.__qualname__} is {'async' if inspect.iscoroutinefunction(method) else 'a generator'}",
            why="what it returns is not looked at.",
            hint="send records on with ctx.emit(...).",
        )
    try:
        inspect.signature(method).bind(process, None, None)
    except TypeError:
        raise PlanError(
            "LS0151",
            f"{method.__qualname__}{inspect.signature(method)} cannot be called with a record and a context",
            hint=_EXAMPLE.format(method=method.__name__),
        ) from None


def _check_stateless(process: Process) -> None:
    kept = [name for name, state in process.states().items() if not state.shared]
    if kept:
        raise PlanError(
            "LS0153",
            f"{type(process).__name__} keeps state ({', '.join(kept)}), but the stream has no key",
            why="state belongs to a key; without one only broadcast state can be used, and records stay spread out.",
            hint='.key_by("user") before .connect(...).',
        )
