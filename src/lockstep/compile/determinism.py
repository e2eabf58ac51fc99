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
from lockstep.plan.determinism import ALLOWED_AGGREGATES, DISTINCT, refuse, refused

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
_ORDER_FREE_USES = frozenset({"ArraySort", "SortArray", "Size", "ArrayContains", "ArrayMin", "ArrayMax"})
_IV = 4
"""Which argument of aes_encrypt is the initialisation vector; Spark draws one at random where it is empty."""
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
    adds = False
    for nodes in _expression_lists(json.loads(analyzed.toJSON())):
        for index, node in enumerate(nodes):
            _check_node(nodes, index, step)
            adds = adds or node["class"] in _ADDING
    if not analyzed.deterministic():
        raise ExpressionError(
            "LS0213",
            f'step "{step}" has an expression that Spark calls non-deterministic',
            why="it may answer differently each time it is asked, and so in every replica.",
            hint="use a function of the record alone.",
        )
    if adds:
        _check_sums(analyzed, step, exact_floats=exact_floats)


def _check_node(nodes: list[dict[str, Any]], index: int, step: str) -> None:
    """Refuse an expression by its class, and by what stands around it."""
    node = nodes[index]
    short = node["class"].rpartition(".")[2]
    if short in _SCALAR_NAMES:
        raise _refused(_SCALAR_NAMES[short], step)
    if short == "AesEncrypt" and _is_empty_text(nodes, _child(nodes, index, _IV)):
        raise _refused("aes_encrypt", step)
    if not node["class"].startswith(_AGGREGATE_PACKAGE):
        return
    if short in _PLUMBING:
        if node.get("isDistinct"):
            raise refused("count_distinct", DISTINCT, f'a SQL string of step "{step}"')
        return
    function = _AGGREGATE_NAMES.get(short, _snake(short))
    if function not in ALLOWED_AGGREGATES:
        raise _refused(function, step)
    # F.percentile(...) adds 0.0, so that zero is one value; which of both it counts first would depend on the order.
    if function in ("percentile", "median") and not nodes[index + 1]["class"].endswith(".Add"):
        raise ExpressionError(
            "LS0205",
            f'{function} in a SQL string of step "{step}" depends on the order of records',
            why="0.0 and -0.0 are two values to it, and which comes first depends on the shuffle.",
            hint=f"F.{function}(...) makes them one; so does {function}(x + 0.0) in SQL.",
        )
    # F.collect_set(...) is sorted by Lockstep; between the two stands the node of the aggregation.
    if function == "collect_set" and nodes[max(0, index - 2)]["class"].rpartition(".")[2] not in _ORDER_FREE_USES:
        raise ExpressionError(
            "LS0205",
            f'collect_set in a SQL string of step "{step}" depends on the order of records',
            why="the set comes out in the order of the shuffle.",
            hint="F.collect_set(...) comes out sorted; in SQL write array_sort(collect_set(...)).",
        )


def _child(nodes: list[dict[str, Any]], index: int, which: int) -> int:
    """The place of a node's child: after the node come its children, each with all that is below it."""
    place = index + 1
    for _ in range(which):
        place = _child(nodes, place, nodes[place]["num-children"])
    return place


def _is_empty_text(nodes: list[dict[str, Any]], index: int) -> bool:
    while nodes[index]["class"].endswith(".Cast"):
        index += 1
    return bool(nodes[index].get("value") == "")


def _check_sums(plan: Any, step: str, *, exact_floats: bool) -> None:
    """Refuse what adds floats, or stops adding quietly: what Lockstep lowered itself adds decimals by now."""
    for node in _expressions(plan):
        function = _ADDING.get(node.getClass().getName())
        if function is None:
            continue
        if str(node.prettyName()).startswith("try_"):
            raise _refused(f"try_{function}", step)
        if exact_floats and node.children().apply(0).dataType().typeName() in ("double", "float"):
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
