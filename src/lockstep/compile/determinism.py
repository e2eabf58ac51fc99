"""The last word on determinism: a walk over the plan as Spark has analysed it, so that SQL strings are covered too.

Scalars are refused by class if they read a clock, a random source, the zone, the user or the machine; aggregates must be
on an allow-list of order-free ones, because Catalyst calls ``first``, ``collect_list`` and others "deterministic".
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
    analyzed = json.loads(frame._jdf.queryExecution().analyzed().toJSON())
    for group in _expression_lists(analyzed):
        _check_expressions(group, step, exact_floats=exact_floats)


def _check_expressions(nodes: list[dict[str, Any]], step: str, *, exact_floats: bool) -> None:
    for index, node in enumerate(nodes):
        name = node["class"].rpartition(".")[2]
        if name in _SCALAR_NAMES:
            raise _refused(_SCALAR_NAMES[name], step)
        if not node["class"].startswith(_AGGREGATE_PACKAGE) or name in _PLUMBING:
            continue
        function = _AGGREGATE_NAMES.get(name, _snake(name))
        if function not in ALLOWED_AGGREGATES:
            raise _refused(function, step)
        if name in ("Sum", "Average") and exact_floats and _adds_floats(nodes, index):
            raise ExpressionError(
                "LS0208",
                f'step "{step}" adds floats inside a SQL string: {function}(...)',
                why="the sum of floats depends on the order of addition, and replicas add in different orders.",
                hint=f"write it as F.{function}(...), which adds exactly, or accept differences with exact_floats=False.",
            )


def _adds_floats(nodes: list[dict[str, Any]], index: int) -> bool:
    """Whether the argument of the aggregate at ``index`` is a float: its type is on the next node that has one."""
    for node in nodes[index + 1 : index + 3]:
        kind = node.get("dataType")
        if isinstance(kind, str):
            return kind in ("double", "float")
    return False


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
