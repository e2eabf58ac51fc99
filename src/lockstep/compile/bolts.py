"""The operator of a bolt."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from lockstep.compile.keyed import _keyed, operator_of
from lockstep.compile.steps import Context, Lowered, _lower
from lockstep.keyed.operator import Operator
from lockstep.keyed.programs import Program, ProgramBolt
from lockstep.keyed.tasks import BoltOperator
from lockstep.plan.bolts import BoltStep


@operator_of.register
def _bolt_operator(step: BoltStep, inputs: tuple[pa.Schema, ...]) -> Operator:  # noqa: ARG001
    bolt = ProgramBolt(step.id, step.bolt, step.emits) if isinstance(step.bolt, Program) else step.bolt
    return BoltOperator(
        step=step.id,
        bolt=bolt,
        subscriptions=step.subscriptions,
        emits=step.emits,
        tasks=step.tasks,
        tick_us=step.tick_us,
        neighbours=step.neighbours,
        retries=step.retries,
        skips=step.on_error == "skip",
        dead_letters=step.dead_letters,
    )


@_lower.register
def _bolt(step: BoltStep, inputs: tuple[Lowered, ...], context: Context) -> Lowered:
    return _keyed(replace(step, dead_letters=context.dead_letters), inputs, context)
