"""The operators of windows, made from their steps."""

from __future__ import annotations

import pyarrow as pa

from lockstep.compile.keyed import operator_of
from lockstep.compile.sketches import bias_for
from lockstep.keyed.accumulators import Totals, check_ordered
from lockstep.keyed.operator import Operator, TimeKind
from lockstep.keyed.reducing import Folder, Reducer
from lockstep.keyed.windows.aggregated import Aggregated
from lockstep.keyed.windows.assigners import assigner_of
from lockstep.keyed.windows.contents import Added, Contents, Folded, InOrder, Processed, Reduced
from lockstep.keyed.windows.counts import CountOperator
from lockstep.keyed.windows.operator import WindowOperator
from lockstep.keyed.windows.results import Results
from lockstep.keyed.windows.top import Ranked
from lockstep.plan.windowed import Accumulation, Aggregation, Folding, Processing, Reduction, Top, WindowStep
from lockstep.plan.windows import Count, Session, window_time
from lockstep.store.arrow import arrow_schema


@operator_of.register
def window_operator(step: WindowStep, inputs: tuple[pa.Schema, ...]) -> Operator:
    """The operator of a window step."""
    names, values = step.streams[0].columns, inputs[0]
    columns = pa.schema([(name, values.field(place).type) for place, name in enumerate(names)])
    places = zip(step.key_names, step.key_places(), strict=True)
    keys = pa.schema([(name, values.field(place).type) for name, place in places])
    contents = _contents(step, values, columns)
    results = Results(keys, contents.schema, columns if step.late_to_side else None)
    if isinstance(step.window, Count):
        return CountOperator(step.window.size, step.window.every, contents, results)
    clock: TimeKind = "epoch" if window_time(step.window) == "processing" else "event"
    assigner = assigner_of(step.window, step.id, names)
    return WindowOperator(assigner, step.trigger, step.allowed_lateness_us, clock, contents, results)


def _contents(step: WindowStep, values: pa.Schema, columns: pa.Schema) -> Contents:
    computation = step.computation
    match computation:
        case Aggregation():
            totals = Totals(computation.accumulated, values, step.layout, bias_for(computation.accumulated))
            return InOrder(Added(totals)) if computation.ordered else Added(totals)
        case Top():
            return _ranked(step, computation, values, columns)
        case Reduction():
            return Reduced(Reducer(step.id, computation.function, columns), columns, step.value_names)
        case Folding():
            schema = arrow_schema(computation.schema)
            names = tuple(columns.names)
            fold = Folded(Folder(step.id, computation.function, computation.initial, schema, names), schema)
            # Two values that were folded cannot be made one when sessions meet: these fold when they give a result.
            return InOrder(fold) if isinstance(step.window, Session) else fold
        case Accumulation(aggregator):
            made = Aggregated(step.id, aggregator, arrow_schema(computation.schema), tuple(columns.names))
            return InOrder(made) if isinstance(step.window, Session) and not computation.merges else made
        case Processing():
            return Processed(step.id, computation.function, arrow_schema(computation.schema), tuple(columns.names))


def _ranked(step: WindowStep, top: Top, values: pa.Schema, columns: pa.Schema) -> Contents:
    ((by,),) = step.layout.places
    check_ordered(f"{step.where} ranks records by {top.by}", values.field(by).type)
    places = tuple(columns.names.index(name) for name in step.other_columns)
    ranks = [pa.field(name, pa.int32()) for name in top.rank_columns]
    schema = pa.schema([*ranks, *(columns.field(place) for place in places)])
    return Ranked(schema, top.number, by, places, largest=not top.ascending)
