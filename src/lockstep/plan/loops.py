"""Feedback loops: records that a loop's body sends back come in again in a later epoch, through a journal."""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.errors import PlanError
from lockstep.plan.schema import Field, Schema
from lockstep.plan.specs import StageJournal
from lockstep.plan.steps import Sink, Step, _OneInput

ROUND = "round"
"""The column that counts how often a record went round; 0 for one that comes in for the first time."""


@dataclass(frozen=True, eq=False)
class LoopHead(_OneInput):
    """Where a loop begins: the records of the input (round 0), and those that its end has sent back."""

    stateful = False
    runs_python = False
    rounds_max: int

    def _check(self) -> None:
        if ROUND in self.input.columns:
            raise PlanError(
                "LS0142",
                f'{self.where} begins with a stream that has a column "{ROUND}"',
                why="the loop counts its rounds in a column of that name.",
                hint=f'.rename({ROUND}="...") before .iterate(...).',
            )
        if self.rounds_max < 1:
            raise PlanError(
                "LS0142",
                f"{self.where} may go round {self.rounds_max} times",
                hint="rounds= is at least 1.",
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the input, and the round."""
        return (*self.input.columns, ROUND)

    @property
    def schema_hint(self) -> Schema | None:
        """The types of the input."""
        before = self.input.schema_hint
        return before and Schema((*before.fields, Field(ROUND, "bigint")))


@dataclass(frozen=True, eq=False)
class LoopEnd(Sink):
    """Where a loop ends: its records come in again at the head, in the next epoch, one round later."""

    head: LoopHead

    def _check(self) -> None:
        super()._check()
        absent = [name for name in self.head.columns if name not in self.input.columns]
        extra = [name for name in self.input.columns if name not in self.head.columns]
        if absent or extra:
            lines = [f"missing: {', '.join(absent)}."] if absent else []
            lines += [f"not there before: {', '.join(extra)}."] if extra else []
            raise PlanError(
                "LS0143",
                f'what the loop "{self.head.id}" sends back has other columns than what it began with',
                why="\n".join([*lines, f"the loop began with: {', '.join(self.head.columns)}."]),
                hint=f'.select(...) exactly these before sending them back; "{ROUND}" counts on by itself.',
            )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the head, in its order."""
        return self.head.columns


def loop_journal(head: Step) -> str:
    """The name of a loop's journal, and of it as a source in the ledger."""
    return f"loop-{head.id}"


def loop_end(head: LoopHead, body: Step) -> LoopEnd:
    """The end of the loop that begins at ``head``."""
    name = loop_journal(head)
    return LoopEnd(name, body, StageJournal(name, rounds_max=head.rounds_max), "exactly-once", head)
