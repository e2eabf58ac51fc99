"""Process functions: what users write, and the operator that runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from lockstep.durations import Duration, duration_us
from lockstep.errors import FunctionError
from lockstep.keyed.codec import time_us, utc_time
from lockstep.keyed.functions import explained, shown
from lockstep.keyed.named_records import NamedKey, NamedRecord, key_type, record_type
from lockstep.keyed.operator import OWN, Arrival, Cell, TimeKind, Timer, Turn
from lockstep.keyed.states import Handle, Memory, State

InputKind = Literal["record", "left", "right", "broadcast"]
"""What an input is to a process function."""
_HANDLERS: dict[InputKind, tuple[str, ...]] = {
    "record": ("on_record",),
    "left": ("on_left", "on_record"),
    "right": ("on_right", "on_other"),
    "broadcast": ("on_broadcast",),
}
# Own timers have tags that sort before a user's: a record held back until its time comes before a timer of that time.
_HELD, _EXPIRE, _USERS = f"{OWN}held", f"{OWN}ttl", "."
_HINT = "mend the function and run the job again: it goes on with the very epoch that failed."


class FiredTimer(NamedTuple):
    """A timer that is due, as ``on_timer`` receives it."""

    at: datetime
    """The time that it was set for."""
    tag: str
    """What tells it from others of the same time; empty if it was set without one."""
    kind: TimeKind
    """Which time has come: "event" or "epoch"."""


class Process:
    """What a keyed stream does with each record and timer of a key; write a subclass.

    Its state is declared on the class; records of a key arrive in the order of their event time, then of their
    position, in every replica the same. Nothing else is kept: what a method stores on ``self`` is gone whenever the
    work moves to another process, so settings belong there and findings do not. What methods are given is a record,
    :class:`lockstep.typing.NamedRecord`, and the context, :class:`lockstep.typing.ProcessContext`.

    >>> import lockstep as ls
    >>> class Count(ls.Process):
    ...     seen = ls.value_state("bigint")
    ...     def on_record(self, record, ctx):
    ...         self.seen.set(self.seen.get(0) + 1)
    ...         ctx.emit(user=ctx.key.user, seen=self.seen.get())
    >>> sorted(Count.states())
    ['seen']
    """

    def on_timer(self, timer: FiredTimer, ctx: ProcessContext) -> None:
        """A timer that this key has set is due. A process that sets timers overrides this."""
        raise NotImplementedError(f"{type(self).__name__} sets timers, but has no on_timer(self, timer, ctx)")

    @classmethod
    def states(cls) -> dict[str, State[Any]]:
        """The declared states by name."""
        found = {}
        for owner in reversed(cls.__mro__):
            found.update({name: value for name, value in vars(owner).items() if isinstance(value, State)})
        return found


class ProcessContext:
    """What a process function can ask and do while a key has its turn."""

    __slots__ = ("_at_us", "_fields", "_main", "_outputs", "_step", "_timed", "_turn", "broadcasting", "key")

    def __init__(self, step: str, outputs: Sequence[tuple[str, pa.Schema]], *, timed: bool) -> None:
        self.key: NamedKey = NamedKey()
        """The key whose turn it is: ``ctx.key.user``."""
        self.broadcasting = False
        """Whether a broadcast record is handled, for which no key has its turn."""
        self._step = step
        self._outputs = {name: (place, tuple(schema.names)) for place, (name, schema) in enumerate(outputs)}
        names = tuple(outputs[0][1].names)
        self._fields = len(names)
        self._main: Callable[[Mapping[str, Any]], tuple[Any, ...]] = (
            itemgetter(*names) if len(names) > 1 else lambda fields: (fields[names[0]],)
        )
        self._timed = timed
        self._turn: Turn
        self._at_us: int | None = None

    @property
    def time(self) -> datetime | None:
        """The event time of the record or timer at hand; None if it has none."""
        return None if self._at_us is None else utc_time(self._at_us)

    @property
    def watermark(self) -> datetime | None:
        """How far event time has come; None if it is not known yet."""
        return None if self._turn.watermark_us is None else utc_time(self._turn.watermark_us)

    @property
    def epoch_time(self) -> datetime:
        """The time of this epoch: the only clock there is."""
        return utc_time(self._turn.epoch_time_us)

    def emit(self, **fields: Any) -> None:
        """Send a record on, with all the fields of the step's schema. Its event time is that of what is handled."""
        try:
            values = self._main(fields)
        except KeyError:
            values = ()
        if len(fields) != self._fields or len(values) != self._fields or self.broadcasting:
            self._turn_of_a_key("emit(...)")
            raise _wrong_fields(self._step, "", fields, self._outputs[""][1])
        self._turn.emit(values, self._at_us)

    def emit_to(self, output: str, /, **fields: Any) -> None:
        """Send a record to a side output."""
        self._turn_of_a_key("emit_to(...)")
        if output not in self._outputs or not output:
            known = ", ".join(name for name in self._outputs if name) or "none"
            raise FunctionError(
                "LS0302",
                f'step "{self._step}" has no side output "{output}"',
                why=f"it has: {known}.",
                hint=f'.process(..., side_outputs={{"{output}": "user string"}})',
            )
        place, names = self._outputs[output]
        if fields.keys() != set(names):
            raise _wrong_fields(self._step, output, fields, names)
        self._turn.emit(tuple(map(fields.__getitem__, names)), self._at_us, place)

    def set_timer(self, at: datetime, tag: str = "") -> None:
        """Call ``on_timer`` when event time has reached ``at``: at once after this record if it already has."""
        self._turn_of_a_key("set_timer(...)")
        if not self._timed:
            raise FunctionError(
                "LS0314",
                f'step "{self._step}" sets an event-time timer, but the stream has no event time',
                hint='.event_time("at", out_of_order="5 seconds") before .key_by(...), or ctx.set_epoch_timer(...).',
            )
        self._turn.set_timer(Timer("event", _instant(at, self._step), _USERS + tag))

    def set_epoch_timer(self, at: datetime | None = None, *, after: Duration | None = None, tag: str = "") -> None:
        """Call ``on_timer`` when epoch time has reached ``at``, or when ``after`` has passed."""
        self._turn_of_a_key("set_epoch_timer(...)")
        self._turn.set_timer(Timer("epoch", self._epoch_instant(at, after), _USERS + tag))

    def cancel_timer(self, at: datetime, tag: str = "") -> None:
        """Forget an event-time timer, if it is set."""
        self._turn.cancel_timer(Timer("event", _instant(at, self._step), _USERS + tag))

    def cancel_epoch_timer(self, at: datetime, tag: str = "") -> None:
        """Forget an epoch-time timer, if it is set."""
        self._turn.cancel_timer(Timer("epoch", _instant(at, self._step), _USERS + tag))

    def _turn_of_a_key(self, what: str) -> None:
        if self.broadcasting:
            raise FunctionError(
                "LS0316",
                f'step "{self._step}" calls ctx.{what} in on_broadcast',
                why="it runs once in every part of the job and for no key: whatever it did would be done many times.",
                hint="keep what the record says in broadcast state, and act on it in on_record or on_timer.",
            )
        if what.startswith("set_") and not self.key._names:
            raise FunctionError(
                "LS0316",
                f'step "{self._step}" calls ctx.{what}, but the stream has no key',
                why="a timer belongs to a key.",
                hint='.key_by("user") before .connect(...).',
            )

    def _epoch_instant(self, at: datetime | None, after: Duration | None) -> int:
        if (at is None) == (after is None):
            raise FunctionError(
                "LS0314",
                f'step "{self._step}" sets an epoch timer without saying when',
                hint='ctx.set_epoch_timer(after="10 minutes"), or ctx.set_epoch_timer(at=ctx.epoch_time + ...).',
            )
        if after is not None:
            return self._turn.epoch_time_us + duration_us(after)
        return _instant(at, self._step)


def _instant(at: Any, step: str) -> int:
    if not isinstance(at, datetime):
        raise FunctionError(
            "LS0314",
            f'step "{step}" sets a timer at {shown(at)}, which is a {type(at).__name__}',
            hint="a timer's time is a datetime: ctx.set_timer(record.at + timedelta(minutes=5)).",
        )
    return time_us(at)


def _wrong_fields(step: str, output: str, fields: Mapping[str, Any], names: Sequence[str]) -> FunctionError:
    absent = [name for name in names if name not in fields]
    extra = [name for name in fields if name not in names]
    parts = [f"lacks: {', '.join(absent)}"] if absent else []
    parts += [f"does not know: {', '.join(extra)}"] if extra else []
    target = f'side output "{output}" of step "{step}"' if output else f'step "{step}"'
    return FunctionError(
        "LS0302",
        f"{target} was given other fields than its schema has",
        why=f"it {'; it '.join(parts)}. The schema has: {', '.join(names)}.",
        hint="give each field of schema=... a value, None for null.",
    )


@dataclass(frozen=True)
class Input:
    """One input of a process: what it is to it, and its columns."""

    kind: InputKind
    columns: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class ProcessOperator:
    """Runs a user's process function. Pickled with it; handles and classes are made again in each worker."""

    step: str
    process: Process
    inputs: tuple[Input, ...]
    key_names: tuple[str, ...]
    schemas: tuple[tuple[str, pa.Schema], ...]
    """The outputs: their names (the main one has none) and schemas."""
    timed: bool
    ordered: bool = False

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_runner"}

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """The main output, then the side outputs."""
        return [schema for _, schema in self.schemas]

    @property
    def wants_positions(self) -> bool:
        """Records that were held back come in the order of time, then position."""
        return self.ordered

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Call the handlers."""
        self._runner.on_records(cell, records, turn)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        """Call ``on_timer``, or do what an own timer is for."""
        self._runner.on_timer(cell, timer, turn)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:
        """Call ``on_broadcast``, which may write broadcast state."""
        self._runner.on_broadcast(record, turn)

    @cached_property
    def _runner(self) -> _Runner:
        return _Runner(self)


class _Runner:
    """The working side of a process operator: its handles bound, its handlers found, its record classes made."""

    def __init__(self, operator: ProcessOperator) -> None:
        self._step = operator.step
        self._process = operator.process
        self._ordered = operator.ordered
        self._context = ProcessContext(operator.step, operator.schemas, timed=operator.timed)
        self._key_type = key_type(operator.key_names)
        self._types: list[type[NamedRecord]] = [record_type(one.columns) for one in operator.inputs]
        self._handlers = [_handler(operator.process, one.kind) for one in operator.inputs]
        self._memory, self._common = Memory(), Memory(shared=True)
        self._expiring: list[Handle] = []
        for name, state in operator.process.states().items():
            handle = state.bind(self._common if state.shared else self._memory)
            vars(operator.process)[name] = handle
            if state.ttl_us is not None:
                self._expiring.append(handle)

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        self._begin(cell, turn)
        if self._ordered:
            records = self._held_back(records, turn)
        self._handle(records)
        self._end(cell, turn)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:
        self._begin(cell, turn)
        if timer.tag == _EXPIRE:
            self._expire(turn)
        elif timer.tag == _HELD:
            self._handle(self._released(timer.at_us))
        else:
            self._call_timer(timer)
        self._end(cell, turn)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:
        self._begin(Cell(), turn)
        self._context.key = NamedKey()
        self._set_broadcasting(now=True)
        try:
            self._handle([record])
        finally:
            self._set_broadcasting(now=False)
        if self._common.changed:
            turn.common.data, turn.common.changed = self._common.data, True

    def _set_broadcasting(self, *, now: bool) -> None:
        """For a broadcast record, broadcast state can be written, and the state of keys is nobody's."""
        self._context.broadcasting = self._common.writable = now
        self._memory.writable = not now

    def _begin(self, cell: Cell, turn: Turn) -> None:
        memory, context = self._memory, self._context
        memory.data = {} if cell.data is None else cell.data
        memory.changed, memory.expires_us = False, None
        memory.epoch_time_us = turn.epoch_time_us
        common = self._common
        common.data = turn.common.data or {}
        common.changed = False
        context._turn = turn
        context.key = self._key_type(turn.key)

    def _end(self, cell: Cell, turn: Turn) -> None:
        memory = self._memory
        if memory.expires_us is not None:
            self._expire_at(memory.expires_us, turn)
        if memory.changed:
            cell.data, cell.changed = memory.data or None, True

    def _handle(self, records: Sequence[Arrival]) -> None:
        process, context, types, handlers = self._process, self._context, self._types, self._handlers
        record: Any = None
        try:
            for number, values, at_us, _ in records:
                record = types[number](values)
                context._at_us = at_us
                handlers[number](process, record, context)
        except Exception as error:
            raise self._explained(error, shown(record)) from None

    def _call_timer(self, timer: Timer) -> None:
        fired = FiredTimer(utc_time(timer.at_us), timer.tag[len(_USERS) :], timer.kind)
        self._context._at_us = timer.at_us if timer.kind == "event" else None
        try:
            self._process.on_timer(fired, self._context)
        except Exception as error:
            raise self._explained(error, shown(fired)) from None

    def _explained(self, error: Exception, given: str) -> FunctionError:
        return explained(self._step, error, f"{given}; key: {self._context.key!r}", _HINT)

    def _expire_at(self, ends_us: int, turn: Turn) -> None:
        """At most one own timer for each key: it looks for the next when it fires."""
        data = self._memory.data
        known: int | None = data.get(_EXPIRE)
        if known is None or ends_us < known:
            if known is not None:
                turn.cancel_timer(Timer("epoch", known, _EXPIRE))
            data[_EXPIRE] = ends_us
            self._memory.changed = True
            turn.set_timer(Timer("epoch", ends_us, _EXPIRE))

    def _expire(self, turn: Turn) -> None:
        memory = self._memory
        memory.data.pop(_EXPIRE, None)
        memory.changed = True
        ends = [at_us for handle in self._expiring if (at_us := handle.expire()) is not None]
        if ends:
            self._expire_at(min(ends), turn)

    def _held_back(self, records: Sequence[Arrival], turn: Turn) -> list[Arrival]:
        """Keep records until the watermark has passed them; those without a time, or late already, go on at once."""
        now: list[Arrival] = []
        waiting = self._memory.data.setdefault(_HELD, {})
        for arrival in records:
            at_us = arrival.at_us
            if at_us is None or (turn.watermark_us is not None and at_us <= turn.watermark_us):
                now.append(arrival)
                continue
            if at_us not in waiting:
                waiting[at_us] = []
                turn.set_timer(Timer("event", at_us, _HELD))
            waiting[at_us].append([arrival.position, arrival.input, arrival.values])
            self._memory.changed = True
        if not waiting:
            del self._memory.data[_HELD]
        return now

    def _released(self, at_us: int) -> list[Arrival]:
        """The records of one time, ordered by position: in which epoch each of them came is not to be seen."""
        waiting = self._memory.data[_HELD]
        found = waiting.pop(at_us)
        if not waiting:
            del self._memory.data[_HELD]
        self._memory.changed = True
        in_order = sorted(found, key=itemgetter(0))
        return [Arrival(number, tuple(values), at_us) for _, number, values in in_order]


def _handler(process: Process, kind: InputKind) -> Callable[[Process, Any, ProcessContext], None]:
    """The method for an input's records, looked up once."""
    name = next(name for name in _HANDLERS[kind] if hasattr(type(process), name))
    found: Callable[[Process, Any, ProcessContext], None] = getattr(type(process), name)
    return found


def users_timers(timers: Iterable[Sequence[Any]]) -> list[FiredTimer]:
    """The timers in an entry of a page that the user's own code has set."""
    kinds: tuple[TimeKind, TimeKind] = ("event", "epoch")
    return [
        FiredTimer(utc_time(at_us), tag[len(_USERS) :], kinds[kind])
        for kind, at_us, tag in sorted(timers, key=lambda timer: (timer[1], timer[0], timer[2]))
        if tag.startswith(_USERS)
    ]


def handler_names(kind: InputKind) -> tuple[str, ...]:
    """The names under which a process may have its method for an input, the preferred one first."""
    return _HANDLERS[kind]
