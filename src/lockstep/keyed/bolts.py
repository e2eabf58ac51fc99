"""Bolts: what users of topologies write, and what their methods are given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from datetime import datetime
from typing import Any

from lockstep.errors import FunctionError
from lockstep.keyed.codec import utc_time
from lockstep.keyed.named_records import NamedRecord
from lockstep.plan.bolts import DEFAULT_STREAM

_PLAIN = (str, int, float, bool, bytes, type(None), datetime)
Values = Sequence[Any] | Mapping[str, Any]
"""What is emitted: the values of a stream's fields in order, or by name."""


class Bolt:
    """What a component of a topology does with each tuple; write a subclass.

    ``execute`` is given a :class:`lockstep.typing.BoltTuple` (or a :class:`lockstep.typing.TupleWindow`) and a
    :class:`lockstep.typing.Collector`, ``prepare`` a :class:`lockstep.typing.BoltContext`.

    A bolt runs as several tasks. ``self.state`` is a dict of plain data for each task; it is part of every snapshot,
    and nothing else that a bolt keeps is.

    >>> import lockstep as ls
    >>> class Count(ls.Bolt):
    ...     def execute(self, tuple, collector):
    ...         n = self.state[tuple.word] = self.state.get(tuple.word, 0) + 1
    ...         collector.emit([tuple.word, n])
    >>> Count().state
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.FunctionError: LS0322 Count has no state here
      why:  a bolt has state while one of its tasks handles a tuple or a tick.
    """

    def prepare(self, context: BoltContext) -> None:
        """Called before a task's first tuple of an epoch: for what is made anew each time, not for state."""

    def execute(self, tuple: Any, collector: Collector) -> None:
        """Handle a tuple (or, behind ``.window(...)``, a window of tuples)."""
        raise NotImplementedError(f"{type(self).__name__} has no execute(self, tuple, collector)")

    def tick(self, collector: Collector) -> None:
        """Called every ``tick_every`` of epoch time, in each task that has had a tuple."""

    @property
    def state(self) -> BoltState:
        """The state of the task at hand."""
        found = vars(self).get("_state")
        if isinstance(found, BoltState):
            return found
        raise FunctionError(
            "LS0322",
            f"{type(self).__name__} has no state here",
            why="a bolt has state while one of its tasks handles a tuple or a tick.",
        )

    def __setattr__(self, name: str, value: Any) -> None:
        if "_state" in vars(self):
            raise FunctionError(
                "LS0322",
                f"{type(self).__name__} sets self.{name} while it handles a tuple",
                why="it would be lost with the process, and replicas would disagree: only self.state is kept.",
                hint=f'self.state["{name}"] = ..., or set it in prepare(self, context) if it is no state.',
            )
        object.__setattr__(self, name, value)


class BoltState(MutableMapping[str, Any]):
    """The state of a task: a dict of plain data.

    >>> state = BoltState({"n": 1, "seen": [1]})
    >>> state["n"], state.changed, state["seen"], state.changed
    (1, False, [1], True)
    """

    __slots__ = ("changed", "data")

    def __init__(self, data: dict[Any, Any]) -> None:
        self.data = data
        self.changed = False

    def __getitem__(self, key: Any) -> Any:
        value = self.data[key]
        if not isinstance(value, _PLAIN):
            # A list or a dict may be changed in place by whoever has it.
            self.changed = True
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        self.data[key] = value
        self.changed = True

    def __delitem__(self, key: Any) -> None:
        del self.data[key]
        self.changed = True

    def __iter__(self) -> Iterator[Any]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return repr(self.data)


class BoltContext:
    """What a bolt can know when it is prepared."""

    def __init__(self, component: str, task: int, tasks: int, readers: Mapping[str, int]) -> None:
        self.component = component
        """The name of the bolt in the topology."""
        self.task = task
        """The number of this task, from 0."""
        self.tasks = tasks
        """How many tasks the bolt has."""
        self._readers = readers

    def tasks_of(self, component: str) -> int:
        """How many tasks a component has that reads this one: for ``emit_direct``."""
        if component not in self._readers:
            raise FunctionError(
                "LS0324",
                f'"{component}" does not read "{self.component}"',
                why=f"it is read by: {', '.join(self._readers) or 'no bolt'}.",
            )
        return self._readers[component]


class BoltTuple:
    """One tuple: its fields as attributes, by name or by place; where it comes from; when it happened."""

    __slots__ = ("_at_us", "_record", "source", "stream")

    def __init__(self, source: str, stream: str, record: NamedRecord, at_us: int | None) -> None:
        self.source = source
        """The component that emitted it."""
        self.stream = stream
        """The stream it was emitted on."""
        self._record = record
        self._at_us = at_us

    @property
    def values(self) -> tuple[Any, ...]:
        """The values of the fields, in order."""
        return tuple(tuple.__iter__(self._record))

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of the fields, in order."""
        return tuple(self._record.keys())

    @property
    def time(self) -> datetime | None:
        """The event time; None if there is none."""
        return None if self._at_us is None else utc_time(self._at_us)

    def asdict(self) -> dict[str, Any]:
        """A plain dict of the fields."""
        return self._record.asdict()

    def __getitem__(self, name: int | str) -> Any:
        return self.values[name] if isinstance(name, int) else self._record[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._record, name)

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.asdict().items())
        return f"Tuple({inside}; {self.source}.{self.stream})"


class TupleWindow:
    """The tuples of a window, in order of time, and its bounds (None for windows of so many tuples)."""

    def __init__(self, tuples: list[BoltTuple], start: datetime | None, end: datetime | None) -> None:
        self.tuples = tuples
        """The tuples, in order of time."""
        self.start = start
        """Where the window begins."""
        self.end = end
        """Where it ends."""

    def __iter__(self) -> Iterator[BoltTuple]:
        return iter(self.tuples)

    def __len__(self) -> int:
        return len(self.tuples)


class Collector:
    """Where a bolt sends tuples, and says what became of the one it has. They leave when ``execute`` has returned, and
    only if it has not failed."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, int | None, Values]] = []
        self.failure: str | None = None
        self._given: object = None
        self._acked = False

    def begin(self, given: object) -> None:
        """The next tuple (or window of tuples; None for a tick) is about to be handled."""
        self.emitted, self.failure = [], None
        self._given, self._acked = given, False

    def emit(self, values: Values, *, stream: str = DEFAULT_STREAM, anchors: Any = None) -> None:
        """Send a tuple on: a list in the order of the stream's fields, or a dict.

        ``anchors`` are refused (LS0325): a tuple that fails is replayed where it failed, not from its spout.
        """
        _check_no_anchors(anchors)
        self.emitted.append((stream, None, values))

    def emit_direct(self, task: int, values: Values, *, stream: str = DEFAULT_STREAM, anchors: Any = None) -> None:
        """Send a tuple to the task with this number, of each bolt that reads the stream with ``.direct(...)``."""
        _check_no_anchors(anchors)
        self.emitted.append((stream, task, values))

    def ack(self, tuple: Any) -> None:
        """Say that the tuple is done: it cannot fail any more (LS0325).

        Nobody has to: a tuple that has not failed is acknowledged when ``execute`` returns. None but the tuple that
        was given can be: what should be kept until later belongs into ``self.state``.
        """
        self._check("ack", tuple)
        if self.failure is not None:
            raise _contradicting("ack", "it has failed already")
        self._acked = True

    def fail(self, tuple: Any, reason: str = "") -> None:
        """Ask for the tuple again: what was emitted for it is dropped.

        It is replayed after the other tuples that the task has in this epoch, up to ``retries`` times, and is then a
        dead letter with this reason. What ``execute`` has changed in ``self.state`` stays changed.
        """
        self._check("fail", tuple)
        if self._acked:
            raise _contradicting("fail", "it was acknowledged already")
        self.failure = reason or "the bolt gave no reason"

    def taken(self) -> list[tuple[str, int | None, Values]]:
        """What was emitted since the last time."""
        found, self.emitted = self.emitted, []
        return found

    def _check(self, what: str, given: object) -> None:
        if given is not self._given:
            raise _contradicting(what, "it is not the tuple that the bolt was given")


def _check_no_anchors(anchors: Any) -> None:
    if anchors is not None:
        raise FunctionError(
            "LS0325",
            "a tuple was emitted with anchors=",
            why="a tuple that fails is replayed in the bolt that failed it; what others do does not bring it back.",
            hint="leave anchors= out: an epoch is computed as a whole, until its output is published.",
        )


def _contradicting(what: str, why: str) -> FunctionError:
    return FunctionError(
        "LS0325",
        f"collector.{what}(...) was called for a tuple that it cannot be called for",
        why=f"{why}.",
        hint="ack or fail the tuple that execute was given, before it returns; keep what is for later in self.state.",
    )
