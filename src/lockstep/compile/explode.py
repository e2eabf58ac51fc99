"""A record for each element of an array or a map, natively."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, DataType, MapType

from lockstep.compile.hidden_columns import MARK, OFFSET, PART, PART_BITS, TYPES
from lockstep.compile.steps import Context, Lowered, _column, _lower
from lockstep.errors import PlanError
from lockstep.plan.explode import MAP_NAMES, Explode

_INDEX = "__index"


@_lower.register
def _explode(step: Explode, inputs: tuple[Lowered, ...], context: Context) -> Lowered:  # noqa: ARG001
    """Mark rows have no elements and still have to pass; elements number the parts of their record's position."""
    (given,) = inputs
    array = _column(step.value, given, step)
    _check_type(step, given.frame.select(array).schema.fields[0].dataType)
    outer = step.outer or given.marked
    generated = (sf.posexplode_outer if outer else sf.posexplode)(array).alias(_INDEX, *_elements(step))
    kept = [sf.col(f"`{name}`") for name in (*given.columns, *given.hidden_names)]
    frame = given.frame.select(*kept, generated)
    if outer and not step.outer:
        frame = frame.filter(sf.col(MARK).isNotNull() | sf.col(_INDEX).isNotNull())
    # Spark knows the event-time column by its metadata: only plain columns keep it.
    hidden = [sf.col(f"`{name}`") for name in given.hidden_names if name != PART]
    part, extra = [], given.hidden
    if OFFSET in given.hidden_names:
        outside = sf.coalesce(sf.col(PART), sf.lit(0)) if PART in given.hidden_names else sf.lit(0)
        index = sf.coalesce(sf.col(_INDEX), sf.lit(0)).cast("bigint")
        part = [sf.shiftleft(outside.cast("bigint"), PART_BITS).bitwiseOR(index).alias(PART)]
        extra = (*(item for item in given.hidden if item[0] != PART), (PART, TYPES[PART]))
    elements = dict(zip(step.names, _elements(step), strict=True))
    visible = [sf.col(f"`{elements.get(name, name)}`").alias(name) for name in step.columns]
    return replace(given, frame=frame.select(*visible, *hidden, *part), columns=step.columns, hidden=extra)


def _elements(step: Explode) -> tuple[str, ...]:
    """Names that no column of the record has: an element may be called like the array that it replaces."""
    return tuple(f"__element_{number}" for number in range(len(step.names)))


def _check_type(step: Explode, kind: DataType) -> None:
    if isinstance(kind, MapType) and len(step.names) == MAP_NAMES:
        return
    if isinstance(kind, ArrayType) and len(step.names) == 1:
        return
    what = kind.simpleString()
    hint = ".flat_map(...) makes several records of one in any other way."
    if isinstance(kind, MapType):
        hint = 'a map has keys and values: .explode("tags", as_=("tag", "value")).'
    elif isinstance(kind, ArrayType):
        hint = 'an array has one name: .explode("items", as_="item").'
    raise PlanError(
        "LS0175",
        f"{step.where} explodes {step.value}, a {what}, into {' and '.join(step.names)}",
        why="an array has elements, a map has keys and values; nothing else can be exploded.",
        hint=hint,
    )
