"""A bolt of a topology as a step: the user's class, run for each of its tasks; a task is a key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.durations import duration_text
from lockstep.plan.draw import words
from lockstep.plan.encode import details, function_name, named_json
from lockstep.plan.expression import Call, Expression
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Field, Schema, check_names, schema_json
from lockstep.plan.steps import OnError

DEFAULT_STREAM = "default"
"""What a component emits if it names no stream."""

RETRIES = 3
"""How often a tuple that a bolt has failed is replayed: what it waits for is among the other tuples of the epoch, which
the first replay has seen; one more is for tuples that wait for replayed ones, and one more for those."""


def position_hash() -> Expression:
    """A number that is spread evenly over the records and the same in every replica: a hash of where a record stood."""
    return Call("lockstep.position_hash")


@dataclass(frozen=True)
class Subscription:
    """One input of a bolt: whose stream it is, how its tuples are spread over the tasks, and their fields."""

    component: str
    stream: str
    grouping: str
    fields: tuple[str, ...]


@dataclass(frozen=True)
class BoltOutput:
    """A stream that a bolt emits. Of a direct one, ``task`` is the column for the number of the receiving task."""

    stream: str
    schema: Schema
    task: str | None = None
    tasks_max: int | None = None
    """How many tasks there are to choose from, for a direct stream."""

    @property
    def columns(self) -> Schema:
        """The fields, then the task's number."""
        extra = () if self.task is None else (Field(self.task, "int"),)
        return Schema((*self.schema.fields, *extra))


@dataclass(frozen=True, eq=False)
class BoltStep(KeyedStep):
    """Runs a bolt: its tasks are the keys, each with a state of its own."""

    bolt: Any
    subscriptions: tuple[Subscription, ...]
    emits: tuple[BoltOutput, ...]
    tasks: int
    tick_us: int | None = None
    on_error: OnError = "fail"
    neighbours: tuple[tuple[str, int], ...] = ()
    """The components that read this one, and how many tasks they have."""
    retries: int = RETRIES
    """How often a tuple that the bolt fails is replayed before it is a dead letter."""
    dead_letters: Any = None
    """Where tuples go that fail; known to a replica only."""

    def _check(self) -> None:
        super()._check()
        for output in self.emits:
            check_names(output.columns.names, f'stream "{output.stream}" of {self.where}')

    @property
    def function(self) -> type | None:
        """The user's class: the code that this step runs; None for a program."""
        return None if self.command else type(self.bolt)

    @property
    def command(self) -> tuple[str, ...]:
        """The program that is started, if the bolt is one."""
        return tuple(getattr(self.bolt, "command", ()))

    @property
    def title(self) -> str:
        """What the bolt is called in a drawing."""
        return function_name(type(self.bolt)) if not self.command else f"program {' '.join(self.command)}"

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the default stream."""
        return self.emits[0].columns.names

    @property
    def schema_hint(self) -> Schema | None:
        """The declared fields."""
        return self.emits[0].columns

    @property
    def side_outputs(self) -> dict[str, tuple[str, ...]]:
        """The other streams."""
        return {output.stream: output.columns.names for output in self.emits[1:]}

    def side_schema(self, output: str) -> Schema | None:
        """The declared fields of another stream."""
        return next((one.columns for one in self.emits if one.stream == output), None)


@words.register
def _(step: BoltStep) -> str:
    reads = ", ".join(
        f"{one.grouping} of {one.component}" + (f".{one.stream}" if one.stream != DEFAULT_STREAM else "")
        for one in step.subscriptions
    )
    tick = "" if step.tick_us is None else f", tick every {duration_text(step.tick_us)}"
    times = "once" if step.retries == 1 else f"{step.retries} times"
    replays = "" if step.retries == RETRIES else f", replays what fails {times}" if step.retries else ", no replays"
    skips = ", skips tuples that raise" if step.on_error == "skip" else ""
    return f"bolt {step.title}, {step.tasks} tasks, {reads}{tick}{replays}{skips}: {step.emits[0].schema.ddl()}"


@details.register
def _(step: BoltStep) -> dict[str, Any]:
    return {
        "keys": [named_json(keys or ()) for keys in step.keys],
        "tasks": step.tasks,
        "tick_us": step.tick_us,
        "results": {
            "bolt": step.title,
            "subscriptions": [[one.component, one.stream, one.grouping] for one in step.subscriptions],
            "streams": {one.stream: schema_json(one.columns) for one in step.emits},
            "on_error": step.on_error,
            "retries": step.retries,
        },
    }
