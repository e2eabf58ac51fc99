"""A bolt over windows of tuples, as the function of a window step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lockstep.errors import FunctionError
from lockstep.keyed.bolts import Bolt, BoltContext, BoltTuple, Collector, TupleWindow
from lockstep.keyed.named_records import record_type
from lockstep.keyed.tasks import Emitter
from lockstep.plan.bolts import BoltOutput, Subscription

WINDOW_TASK = "window_task"
"""The key of the windows: the number of the task."""


@dataclass(frozen=True, eq=False)
class WindowedBolt:
    """Called with the tuples of a window; gives what the bolt emits."""

    name: str
    bolt: Bolt
    subscription: Subscription
    tasks: int
    output: BoltOutput

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __call__(self, records: Sequence[Any], window: Any) -> list[tuple[Any, ...]]:
        """Hand the window to the bolt of its task."""
        given = self.subscription
        made = record_type(given.fields)
        tuples = [
            BoltTuple(given.component, given.stream, made(tuple(record[name] for name in given.fields)), None)
            for record in records
        ]
        collector, held = Collector(), TupleWindow(tuples, window.start, window.end)
        collector.begin(held)
        self._bolt_of(window.key[WINDOW_TASK]).execute(held, collector)
        if collector.failure is not None:
            raise FunctionError(
                "LS0321",
                f'bolt "{self.name}" failed a window: {collector.failure}',
                why="a window has no state and no other tuples to wait for, so it would fail again.",
                hint="emit on what the bolt cannot handle, to a bolt without windows, and fail it there.",
            )
        return [self._emitter.values(*one)[1] for one in collector.taken()]

    def _bolt_of(self, task: int) -> Bolt:
        if task not in self._bolts:
            self._bolts[task] = copy.deepcopy(self.bolt)
            self._bolts[task].prepare(BoltContext(self.name, task, self.tasks, {}))
        return self._bolts[task]

    @cached_property
    def _bolts(self) -> dict[int, Bolt]:
        return {}

    @cached_property
    def _emitter(self) -> Emitter:
        return Emitter(self.name, [self.output])
