"""Process functions as steps: a user's class with state and timers, over one or more streams."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lockstep.errors import PlanError
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Schema, check_names
from lockstep.plan.steps import check_id, event_times_before


@dataclass(frozen=True, eq=False)
class ProcessStep(KeyedStep):
    """Runs a process function for each key.

    ``kinds`` says what each input is to it ("record", "left", "right", "broadcast"), and ``states`` what it keeps, in
    words: a checkpoint is only good for the states that it was written with.
    """

    process: Any
    schema: Schema
    kinds: tuple[str, ...]
    states: tuple[tuple[str, str], ...]
    sides: tuple[tuple[str, Schema], ...] = ()
    ordered: bool = False
    without_key: bool = False

    def _check(self) -> None:
        super()._check()
        check_names(self.schema.names, self.where)
        for name, schema in self.sides:
            check_id(name, "side output")
            check_names(schema.names, f'side output "{name}" of {self.where}')
        if self.ordered and not self.timed:
            raise PlanError(
                "LS0112",
                f"{self.where} is ordered, but the stream has no event time",
                why="records are put in the order of their event time.",
                hint='.event_time("at", out_of_order="5 seconds") before .key_by(...).',
            )

    @property
    def function(self) -> type:
        """The user's class: the code that this step runs."""
        return type(self.process)

    @property
    def timed(self) -> bool:
        """Whether there is an event time, and so a watermark and event-time timers."""
        return any(event_times_before(stream) for stream in self.streams)

    @property
    def spread(self) -> bool:
        """Without a key there is no state for keys either."""
        return self.without_key

    @property
    def columns(self) -> tuple[str, ...]:
        """The fields of the declared schema."""
        return self.schema.names

    @property
    def schema_hint(self) -> Schema | None:
        """The declared schema."""
        return self.schema

    @property
    def side_outputs(self) -> dict[str, tuple[str, ...]]:
        """The declared side outputs."""
        return {name: schema.names for name, schema in self.sides}

    def side_schema(self, output: str) -> Schema | None:
        """As declared."""
        return dict(self.sides).get(output)
