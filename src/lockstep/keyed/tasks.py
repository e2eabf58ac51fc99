"""The tasks of a bolt as an operator: a task is a key, its state is that key's cell."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from lockstep.errors import FunctionError
from lockstep.keyed.bolts import Bolt, BoltContext, BoltState, BoltTuple, Collector, Values
from lockstep.keyed.functions import Returned, explained, shown
from lockstep.keyed.named_records import NamedRecord, record_type
from lockstep.keyed.operator import Arrival, Cell, Timer, Turn
from lockstep.plan.bolts import RETRIES, BoltOutput, Subscription
from lockstep.store.arrow import arrow_schema

_TICK = "tick"
DeadLetters = Callable[[str, str, dict[str, Any]], None]
"""Keeps a tuple that failed: (key, step, facts); the same key is kept once."""
_Waiting = tuple[int, Arrival, str]
"""A tuple that is to be handled: which it is of the epoch, and why it failed the last time."""


@dataclass(frozen=True, eq=False)
class BoltOperator:
    """Runs a bolt. Pickled with it; its tasks are copies, made in each worker."""

    step: str
    bolt: Bolt
    subscriptions: tuple[Subscription, ...]
    emits: tuple[BoltOutput, ...]
    tasks: int
    tick_us: int | None = None
    neighbours: tuple[tuple[str, int], ...] = ()
    retries: int = RETRIES
    skips: bool = False
    """Whether a tuple for which ``execute`` raises is set aside too, instead of ending the job."""
    dead_letters: DeadLetters | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_runner"}

    @property
    def outputs(self) -> Sequence[pa.Schema]:
        """The default stream, then the others."""
        return [arrow_schema(output.columns) for output in self.emits]

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """Execute the tuples of one task."""
        self._runner.on_records(cell, records, turn)

    def on_timer(self, cell: Cell, timer: Timer, turn: Turn) -> None:  # noqa: ARG002
        """A tick of one task."""
        self._runner.on_tick(cell, turn)

    def on_broadcast(self, record: Arrival, turn: Turn) -> None:  # noqa: ARG002
        """There is none: a tuple for all tasks comes once for each."""
        raise AssertionError("a bolt has no broadcast input")

    @cached_property
    def _runner(self) -> _Runner:
        return _Runner(self)


class _Runner:
    """The working side: one copy of the bolt for each task. Spark makes a new one in every epoch, so whatever a bolt
    keeps outside its state is gone in the next, not only after a crash."""

    def __init__(self, operator: BoltOperator) -> None:
        self._operator = operator
        self._bolts: dict[int, Bolt] = {}
        self._collector = Collector()
        self._emitter = Emitter(operator.step, operator.emits)
        self._types: list[type[NamedRecord]] = [record_type(one.fields) for one in operator.subscriptions]

    def on_records(self, cell: Cell, records: Sequence[Arrival], turn: Turn) -> None:
        """All tuples in order; then those that failed, again in order, until none is left or they were tried enough.

        A replay comes after the others, because they are what can have changed since: a bolt sees its tuples and its
        state, and nothing else. So every replica replays the same tuples with the same outcome.
        """
        bolt, state = self._begin(cell, turn)
        waiting: list[_Waiting] = [(index, record, "") for index, record in enumerate(records)]
        for _ in range(1 + self._operator.retries):
            waiting = [
                (index, record, failure)
                for index, record, _ in waiting
                if (failure := self._execute(bolt, index, record, turn)) is not None
            ]
            if not waiting:
                break
        for index, record, failure in waiting:
            self._give_up(self._tuple(record), index, failure, turn)
        self._end(bolt, state, cell, turn)

    def _execute(self, bolt: Bolt, index: int, record: Arrival, turn: Turn) -> str | None:
        """Handle a tuple and send on what it gives; the reason if the bolt has failed it."""
        received = self._tuple(record)
        self._collector.begin(received)
        try:
            bolt.execute(received, self._collector)
            if self._collector.failure is not None:
                return self._collector.failure
            emitted = self._taken()
        except Exception as error:
            said = explained(self._operator.step, error, shown(received))
            if not self._operator.skips:
                raise said from None
            self._set_aside(said, received, index, turn)
            return None
        for output, made in emitted:
            turn.emit(made, record.at_us, output)
        return None

    def _tuple(self, record: Arrival) -> BoltTuple:
        given = self._operator.subscriptions[record.input]
        values = self._types[record.input](record.values[: len(given.fields)])
        return BoltTuple(given.component, given.stream, values, record.at_us)

    def on_tick(self, cell: Cell, turn: Turn) -> None:
        bolt, state = self._begin(cell, turn)
        self._collector.begin(None)
        try:
            bolt.tick(self._collector)
            if self._collector.failure is not None:
                raise self._failure("a tick", self._collector.failure)
            emitted = self._taken()
        except Exception as error:
            raise explained(self._operator.step, error, "a tick", "mend the function.") from None
        for output, made in emitted:
            turn.emit(made, None, output)
        self._end(bolt, state, cell, turn)

    def _begin(self, cell: Cell, turn: Turn) -> tuple[Bolt, BoltState]:
        (task,) = turn.key
        bolt = self._bolts.get(task)
        if bolt is None:
            bolt = self._bolts[task] = self._prepared(task)
        state = BoltState({} if cell.data is None else cell.data)
        vars(bolt)["_state"] = state
        return bolt, state

    def _prepared(self, task: int) -> Bolt:
        operator = self._operator
        bolt = copy.deepcopy(operator.bolt)
        context = BoltContext(operator.step, task, operator.tasks, dict(operator.neighbours))
        try:
            bolt.prepare(context)
        except Exception as error:
            raise explained(operator.step, error, f"prepare of task {task}", "mend the function.") from None
        return bolt

    def _end(self, bolt: Bolt, state: BoltState, cell: Cell, turn: Turn) -> None:
        del vars(bolt)["_state"]
        if state.changed:
            cell.data, cell.changed = state.data or None, True
        if self._operator.tick_us is not None:
            # Ticks are at whole multiples, so that setting the next one again changes nothing.
            every_us = self._operator.tick_us
            turn.set_timer(Timer("epoch", (turn.epoch_time_us // every_us + 1) * every_us, _TICK))

    def _taken(self) -> list[tuple[int, tuple[Any, ...]]]:
        return [self._emitter.values(*one) for one in self._collector.taken()]

    def _give_up(self, received: BoltTuple, index: int, failure: str, turn: Turn) -> None:
        """A tuple that has failed as often as it may is a dead letter."""
        tried = self._operator.retries + 1
        said = self._failure(f"a tuple {tried} time{'s' if tried > 1 else ''}", failure)
        self._set_aside(said, received, index, turn)

    def _failure(self, what: str, failure: str) -> FunctionError:
        return FunctionError("LS0321", f'bolt "{self._operator.step}" failed {what}: {failure}')

    def _set_aside(self, said: FunctionError, received: BoltTuple, index: int, turn: Turn) -> None:
        if self._operator.dead_letters is None:
            raise said from None
        text = json.dumps(received.asdict(), default=str, sort_keys=True)
        hashed = hashlib.sha256(text.encode()).hexdigest()[:12]
        # The same in every replica and every replay: tuples of a task come in one order.
        place = [self._operator.step, turn.epoch_time_us, turn.key[0], index, hashed]
        facts = {"source": received.source, "partition": str(turn.key[0]), "offset": index, "record": text}
        # The index counts tuples of the task: nobody may take it for a position in the source.
        facts["reading"] = "task"
        key = "/".join(str(part) for part in place)
        error = ": ".join(part for part in (said.fact, said.why) if part)
        self._operator.dead_letters(key, self._operator.step, {**facts, "error": error})


class Emitter:
    """Checks what a bolt emits against the fields of its streams."""

    def __init__(self, step: str, emits: Sequence[BoltOutput]) -> None:
        self._step = step
        self._outputs = {output.stream: (place, output) for place, output in enumerate(emits)}
        self._returned = {output.stream: Returned(step, arrow_schema(output.schema)) for output in emits}

    def values(self, stream: str, task: int | None, values: Values) -> tuple[int, tuple[Any, ...]]:
        """The number of the output and the checked values of a tuple (LS0302, LS0303, LS0324)."""
        if stream not in self._outputs:
            raise FunctionError(
                "LS0302",
                f'bolt "{self._step}" emits on "{stream}", a stream that it has not declared',
                why=f"its streams are: {', '.join(self._outputs)}.",
                hint=f't.bolt("{self._step}", ..., streams={{"{stream}": "message string"}})',
            )
        place, output = self._outputs[stream]
        made = self._returned[stream].values(tuple(values) if isinstance(values, list) else values)
        self._check_task(stream, output, task)
        return place, made if task is None else (*made, task)

    def _check_task(self, stream: str, output: BoltOutput, task: Any) -> None:
        if (task is None) != (output.task is None):
            direct = output.task is not None
            raise FunctionError(
                "LS0324",
                f'bolt "{self._step}" emits on "{stream}" with{"out" if direct else ""} the number of a task',
                why="a bolt reads it with .direct(...)." if direct else "no bolt reads it with .direct(...).",
                hint="collector.emit_direct(task, values)" if direct else "collector.emit(values)",
            )
        limit = output.tasks_max
        if limit is not None and not (type(task) is int and 0 <= task < limit):
            raise FunctionError(
                "LS0324",
                f'bolt "{self._step}" emits to task {task!r} of {limit}',
                why=f"tasks have the numbers 0 to {limit - 1}.",
                hint='context.tasks_of("component") in prepare tells how many there are.',
            )
