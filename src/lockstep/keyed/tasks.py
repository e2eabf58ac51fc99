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
from lockstep.plan.bolts import BoltOutput, Subscription
from lockstep.store.arrow import arrow_schema

_TICK = "tick"
DeadLetters = Callable[[str, str, dict[str, Any]], None]
"""Keeps a tuple that failed: (key, step, facts); the same key is kept once."""


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
        bolt, state = self._begin(cell, turn)
        for index, (number, values, at_us, _) in enumerate(records):
            given = self._operator.subscriptions[number]
            record = self._types[number](values[: len(given.fields)])
            received = BoltTuple(given.component, given.stream, record, at_us)
            try:
                bolt.execute(received, self._collector)
                emitted = self._taken(received)
            except Exception as error:
                self._failed(error, received, index, turn)
                continue
            for output, made in emitted:
                turn.emit(made, at_us, output)
        self._end(bolt, state, cell, turn)

    def on_tick(self, cell: Cell, turn: Turn) -> None:
        bolt, state = self._begin(cell, turn)
        try:
            bolt.tick(self._collector)
            emitted = self._taken("a tick")
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

    def _taken(self, received: object) -> list[tuple[int, tuple[Any, ...]]]:
        emitted, failure = self._collector.taken(), self._collector.failure
        self._collector.failure = None
        if failure is not None:
            raise FunctionError(
                "LS0321",
                f'bolt "{self._operator.step}" failed a tuple: {failure}',
                why=f"it called collector.fail(...) for {shown(received)}.",
                hint='mend the bolt, or send such tuples to the dead-letter journal with on_error="skip".',
            )
        return [self._emitter.values(*one) for one in emitted]

    def _failed(self, error: Exception, received: BoltTuple, index: int, turn: Turn) -> None:
        self._collector.taken()
        self._collector.failure = None
        said = explained(self._operator.step, error, shown(received))
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
        self._operator.dead_letters(key, self._operator.step, {**facts, "error": f"{said.fact}: {said.why}"})


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
