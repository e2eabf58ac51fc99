"""The operator of a process function."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from lockstep.compile.keyed import operator_of
from lockstep.keyed.operator import Operator
from lockstep.keyed.process import Input, InputKind, ProcessOperator
from lockstep.plan.processes import ProcessStep
from lockstep.store.arrow import arrow_schema


@operator_of.register
def _process(step: ProcessStep, inputs: tuple[pa.Schema, ...]) -> Operator:
    return ProcessOperator(
        step=step.id,
        process=step.process,
        inputs=tuple(
            Input(cast("InputKind", kind), tuple(schema.names)) for kind, schema in zip(step.kinds, inputs, strict=True)
        ),
        key_names=step.key_names,
        schemas=(("", arrow_schema(step.schema)), *((name, arrow_schema(schema)) for name, schema in step.sides)),
        timed=step.timed,
        ordered=step.ordered,
    )
