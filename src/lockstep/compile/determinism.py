"""The last word on determinism: a walk over the plan as Spark has analysed it, so that SQL strings are covered too.

Scalars are refused by class if they read a clock, a random source, the zone, the user or the machine, and if Catalyst
calls them non-deterministic; aggregates must be on an allow-list of order-free ones, because Catalyst calls ``first``,
``collect_list`` and others "deterministic".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from lockstep.errors import ExpressionError
from lockstep.plan.determinism import ALLOWED_AGGREGATES, refuse, refused

_AGGREGATE_PACKAGE = "org.apache.spark.sql.catalyst.expressions.aggregate."
_PLUMBING = frozenset({"AggregateExpression", "Complete$", "Partial$", "Final$", "PartialMerge$"})
_AGGREGATE_NAMES = {
    "Average": "avg",
    "HyperLogLogPlusPlus": "approx_count_distinct",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
    "BoolAnd": "bool_and",
    "BoolOr": "bool_or",
    "CountIf": "count_if",
    "CollectSet": "collect_set",
}
_ADDING = {f"{_AGGREGATE_PACKAGE}Sum": "sum", f"{_AGGREGATE_PACKAGE}Average": "avg"}
_SCALAR_NAMES = {
    "Rand": "rand",
    "Randn": "randn",
    "Uuid": "uuid",
    "Shuffle": "shuffle",
    "RandStr": "randstr",
    "Uniform": "uniform",
    "MonotonicallyIncreasingID": "monotonically_increasing_id",
    "SparkPartitionID": "spark_partition_id",
    "InputFileName": "input_file_name",
    "CurrentTimestamp": "current_timestamp",
    "CurrentBatchTimestamp": "current_timestamp",
    "Now": "now",
    "CurrentDate": "current_date",
    "CurDateExpressionBuilder": "current_date",
    "LocalTimestamp": "localtimestamp",
    "CurrentTime": "current_time",
    "CurrentTimeZone": "current_timezone",
    "CurrentUser": "current_user",
    "CurrentDatabase": "current_database",
    "CurrentCatalog": "current_catalog",
    "SparkVersion": "version",
}


def check_plan(frame: DataFrame, step: str, *, exact_floats: bool) -> None:
    """Refuse ``frame`` if two replicas could compute it differently; the error names ``step``."""
    analyzed = frame._jdf.queryExecution().analyzed()
    names = {node["class"] for group in _expression_lists(json.loads(analyzed.toJSON())) for node in group}
    for name in sorted(names):
        _check_class(name, step)
    if not analyzed.deterministic():
        raise ExpressionError(
            "LS0213",
            f'step "{step}" has an expression that Spark calls non-deterministic',
            why="it may answer differently each time it is asked, and so in every replica.",
            hint="use a function of the record alone.",
        )
    if exact_floats and not names.isdisjoint(_ADDING):
        _refuse_float_sums(analyzed, step)


def _check_class(name: str, step: str) -> None:
    """Refuse a class of expressions by what it is."""
    short = name.rpartition(".")[2]
    if short in _SCALAR_NAMES:
        raise _refused(_SCALAR_NAMES[short], step)
    if name.startswith(_AGGREGATE_PACKAGE) and short not in _PLUMBING:
        function = _AGGREGATE_NAMES.get(short, _snake(short))
        if function not in ALLOWED_AGGREGATES:
            raise _refused(function, step)


def _refuse_float_sums(plan: Any, step: str) -> None:
    """Refuse sums and averages of floats: those that Lockstep lowered itself add decimals by now."""
    for node in _expressions(plan):
        function = _ADDING.get(node.getClass().getName())
        if function is not None and node.children().apply(0).dataType().typeName() in ("double", "float"):
            raise ExpressionError(
                "LS0208",
                f'step "{step}" adds floats inside a SQL string: {function}(...)',
                why="the sum of floats depends on the order of addition, and replicas add in different orders.",
                hint=f"F.{function}(...) adds exactly; exact_floats=False accepts differences in the last digits.",
            )


def _expressions(plan: Any) -> Iterator[Any]:
    """All expressions of a plan in the JVM, those inside others too."""
    for node in _walk(plan):
        for expression in _sequence(node.expressions()):
            yield from _walk(expression)


def _walk(tree: Any) -> Iterator[Any]:
    """A tree in the JVM, parents first."""
    yield tree
    for child in _sequence(tree.children()):
        yield from _walk(child)


def _sequence(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.length()))


def _refused(function: str, step: str) -> ExpressionError:
    if (refusal := refuse(function)) is not None:
        return refused(function, refusal, f'step "{step}"')
    return ExpressionError(
        "LS0205",
        f'step "{step}" uses {function}(...)',
        why="it is not on the list of aggregates whose result is free of order.",
        hint=f"the order-free ones are: {', '.join(sorted(ALLOWED_AGGREGATES))}.",
    )


def _expression_lists(tree: Any) -> Iterator[list[dict[str, Any]]]:
    """Every list of expression nodes: Spark writes a tree of expressions as a flat list, parents first."""
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _expression_lists(value)
    elif isinstance(tree, list):
        nodes = [item for item in tree if isinstance(item, dict) and "class" in item]
        if nodes and len(nodes) == len(tree):
            yield nodes
        for item in tree:
            yield from _expression_lists(item)


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
