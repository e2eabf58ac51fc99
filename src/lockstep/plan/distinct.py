"""Letting one of the records through that are alike within a time bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from lockstep.durations import duration_text
from lockstep.errors import PlanError
from lockstep.plan.draw import words
from lockstep.plan.encode import details, named_json
from lockstep.plan.keyed import KeyedStep
from lockstep.plan.schema import Schema
from lockstep.plan.steps import event_times_before
from lockstep.plan.updates import pairs_records

Keep = Literal["first", "last"]
"""Which of several records that are alike is let through."""


@dataclass(frozen=True, eq=False)
class Distinct(KeyedStep):
    """The first record of each key; others less than ``within_us`` of time away from one let through are dropped.

    Or the last: a record after which, for ``within_us``, none of its key has come. It is let through at that time.
    """

    stateful = True
    runs_python = True
    calls_user_code = False
    within_us: int
    keep: Keep = "first"

    def _check(self) -> None:
        super()._check()
        if self.keep not in get_args(Keep):
            raise PlanError("LS0173", f"{self.where} keeps {self.keep!r}", hint='keep="first", or keep="last".')
        if self.within_us <= 0:
            raise PlanError(
                "LS0173",
                f"{self.where} looks for duplicates within {duration_text(self.within_us)}",
                why="two records are duplicates if their times are less than that apart.",
                hint='.distinct("id", within="10 minutes")',
            )

    @property
    def by_event_time(self) -> bool:
        """Whether times are event times; else a record's time is that of its epoch."""
        return bool(event_times_before(self.streams[0]))

    @property
    def delay_us(self) -> int:
        """How long after its own event time a record comes out."""
        return self.within_us - 1 if self.keep == "last" and self.by_event_time else 0

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input."""
        return self.streams[0].columns

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the input."""
        return self.streams[0].schema_hint


@words.register
def _(step: Distinct) -> str:
    clock = "event time" if step.by_event_time else "epoch time"
    last = "the last of what is " if step.keep == "last" else ""
    return f"{last}distinct by {', '.join(step.key_names)} within {duration_text(step.within_us)} of {clock}"


@details.register
def _(step: Distinct) -> dict[str, Any]:
    keep = {"keep": step.keep} if step.keep != "first" else {}
    return {"keys": named_json(step.keys[0] or ()), "within_us": step.within_us, **keep}


@pairs_records.register
def _(step: Distinct) -> bool:  # noqa: ARG001
    return True
