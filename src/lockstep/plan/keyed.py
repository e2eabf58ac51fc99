"""Steps that run an operator for each key, with state and timers: what they have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lockstep.errors import PlanError
from lockstep.plan.columns import check_known
from lockstep.plan.determinism import check_scalar
from lockstep.plan.expression import Expression
from lockstep.plan.schema import Schema, did_you_mean
from lockstep.plan.steps import Named, Step

BUCKETS_AT_FIRST = 16
"""Into how many parts the keys of a step are divided if nothing was settled: the number of jobs that began before it
could be chosen. It is the limit of a step's parallelism, and a part of the state's meaning: it never changes while the
state lives (docs/decisions/0038-buckets.md)."""


@dataclass(frozen=True, eq=False)
class KeyedStep(Step):
    """Runs an operator over keyed streams. Its operator is made by ``compile.keyed.operator_of`` from this data.

    ``keys`` holds, for each input, the key expressions; None for an input that every key sees (a broadcast).
    """

    stateful = True
    runs_python = True
    calls_user_code: ClassVar[bool] = True
    """Whether the user's own Python runs here, or only Lockstep's."""

    streams: tuple[Step, ...]
    keys: tuple[Named | None, ...]

    def _check(self) -> None:
        assert len(self.streams) == len(self.keys), "one key for each input"
        for number, (stream, keys) in enumerate(zip(self.streams, self.keys, strict=True)):
            for expression in [value for _, value in (*(keys or ()), *self.computed(number))]:
                check_scalar(expression, self.where)
                check_known(expression, stream.columns, self.id)

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The streams it reads."""
        return self.streams

    def computed(self, number: int) -> Named:  # noqa: ARG002
        """Values that Spark computes for each record of an input before the operator sees it, after its columns."""
        return ()

    @property
    def spread(self) -> bool:
        """Whether records without a key may go to any bucket instead of all to one: only if they keep no state."""
        return False

    @property
    def key_names(self) -> tuple[str, ...]:
        """The names of the key's parts."""
        return next((tuple(name for name, _ in keys) for keys in self.keys if keys is not None), ())

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """The keys and the computed values."""
        found = [value for keys in self.keys for _, value in keys or ()]
        return (*found, *(value for number in range(len(self.streams)) for _, value in self.computed(number)))

    @property
    def side_outputs(self) -> dict[str, tuple[str, ...]]:
        """Further outputs: their names and columns, in the order of the operator's outputs 1, 2, ..."""
        return {}

    def side_schema(self, output: str) -> Schema | None:  # noqa: ARG002
        """The types of a side output where they are known without Spark."""
        return None


@dataclass(frozen=True, eq=False)
class SideOutput(Step):
    """One of the further outputs of a keyed step: late records, or what a process function sends aside."""

    stateful = False
    runs_python = False
    step: KeyedStep
    output: str

    def _check(self) -> None:
        known = list(self.step.side_outputs)
        if self.output not in known:
            raise PlanError(
                "LS0140",
                f'step "{self.step.id}" has no side output "{self.output}"',
                why=f"it has: {', '.join(known) or 'none'}.",
                hint=did_you_mean(self.output, known),
            )

    @property
    def inputs(self) -> tuple[Step, ...]:
        """The step it belongs to."""
        return (self.step,)

    @property
    def columns(self) -> tuple[str, ...]:
        """The output's columns."""
        return self.step.side_outputs[self.output]

    @property
    def schema_hint(self) -> Schema | None:
        """As the step declares it."""
        return self.step.side_schema(self.output)
