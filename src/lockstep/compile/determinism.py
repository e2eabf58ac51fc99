"""The last word on determinism: a walk over the plan as Spark has analysed it, so that SQL strings are covered too.

Scalars are refused by class if they read a clock, a random source, the zone, the user or the machine, and if Catalyst
calls them non-deterministic; aggregates must be on an allow-list of order-free ones, because Catalyst calls ``first``,
``collect_list`` and others "deterministic".
"""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from lockstep.errors import ExpressionError
from lockstep.plan.determinism import ALLOWED_AGGREGATES, is_aggregate, refuse, refused

_AGGREGATE_PACKAGE = "org.apache.spark.sql.catalyst.expressions.aggregate."
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
_TEXT_ONLY = {
    "Explode": "explode",
    "PosExplode": "posexplode",
    "Inline": "inline",
    "Stack": "stack",
    "JsonTuple": "json_tuple",
    "WindowExpression": "row_number",
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
    "CurrentPath": "current_path",
    "CurrentCatalog": "current_catalog",
    "SparkVersion": "version",
    "CallMethodViaReflection": "reflect",
}


@dataclass(frozen=True)
class _Found:
    """An expression that is refused: the class of its node, and the function that usually makes such a node."""

    node: str
    function: str
    distinct: bool = False
    text_only: bool = False
    """Whether it is refused only in a user's text: Lockstep's own steps make such nodes too."""


def check_plan(frame: DataFrame, step: str, *, exact_floats: bool) -> None:
    """Refuse ``frame`` if two replicas could compute it differently; the error names ``step`` and the function."""
    plan = _Plan(frame)
    for nodes in _expression_lists(plan.read):
        for index in range(len(nodes)):
            found = _refused_node(nodes, index, step)
            if found is not None and (written := _written(plan, found)) is not None:
                raise _refused(found, written, step)
    if not plan.analyzed.deterministic():
        raise _not_deterministic(plan, step)
    _check_sums(plan, step, exact_floats=exact_floats)


class _Plan:
    """A plan as Spark has analysed it: in the JVM, where each question is a call, and all of it read at once."""

    def __init__(self, frame: DataFrame) -> None:
        self.analyzed: Any = frame._jdf.queryExecution().analyzed()
        self.read: list[dict[str, Any]] = json.loads(self.analyzed.toJSON())
        """Its nodes, parents first, each with its expressions."""

    def expressions(self, classes: Container[str]) -> Iterator[Any]:
        """The expressions of these classes in the JVM: where they are is known from what was read."""
        wanted = [_has(node, classes) for node in self.read]
        if any(wanted):
            for node, read, is_wanted in zip(_walk(self.analyzed), self.read, wanted, strict=True):
                yield from _found_in(node, read, classes) if is_wanted else ()


def _has(node: dict[str, Any], classes: Container[str]) -> bool:
    return any(one["class"] in classes for nodes in _expression_lists(node) for one in nodes)


def _found_in(node: Any, read: dict[str, Any], classes: Container[str]) -> Iterable[Any]:
    """The expressions of these classes in one node of the plan; if they are not where they were read, all are asked."""
    lists, expressions = list(_own_lists(read)), node.expressions()
    if expressions.length() == len(lists):
        places = [(place, index) for place, nodes in enumerate(lists) for index in range(len(nodes))]
        wanted = [(place, index) for place, index in places if lists[place][index]["class"] in classes]
        found = [expressions.apply(place).apply(index) for place, index in wanted]
        if all(one is not None and _class(one) in classes for one in found):
            return found
    return [one for one in _all_of(node) if _class(one) in classes]


def _own_lists(read: dict[str, Any]) -> Iterator[list[dict[str, Any]]]:
    """The expressions that a node of the plan has itself, each as the list that Spark writes for it."""
    for value in read.values():
        several = isinstance(value, list) and any(isinstance(one, list) for one in value)
        for nodes in value if several else [value]:
            if isinstance(nodes, list) and nodes and all(isinstance(one, dict) and "class" in one for one in nodes):
                yield nodes


def _refused_node(nodes: list[dict[str, Any]], index: int, step: str) -> _Found | None:
    """Whether an expression is refused by its class, and by what stands around it."""
    node = nodes[index]
    short = _short(node)
    if short in _SCALAR_NAMES:
        return _Found(node["class"], _SCALAR_NAMES[short])
    if short == "AesEncrypt" and _is_empty_text(nodes, _child(nodes, index, _IV)):
        return _Found(node["class"], "aes_encrypt")
    if short in _TEXT_ONLY:
        return _Found(node["class"], _TEXT_ONLY[short], text_only=True)
    return _refused_aggregate(nodes, index, step) if short == "AggregateExpression" else None


def _refused_aggregate(nodes: list[dict[str, Any]], index: int, step: str) -> _Found | None:
    """After the node of the aggregation comes the function; before it stands what uses the result."""
    function = nodes[index + 1]
    if nodes[index].get("isDistinct"):
        return _Found(function["class"], "sum_distinct", distinct=True)
    name = _AGGREGATE_NAMES.get(_short(function), _snake(_short(function)))
    if name not in ALLOWED_AGGREGATES:
        return _Found(function["class"], name)
    # F.percentile(...) adds 0.0, so that zero is one value; which of both it counts first would depend on the order.
    if name in ("percentile", "median") and _short(nodes[index + 2]) != "Add":
        raise ExpressionError(
            "LS0205",
            f'{name} in a SQL string of step "{step}" depends on the order of records',
            why="0.0 and -0.0 are two values to it, and which comes first depends on the shuffle.",
            hint=f"F.{name}(...) makes them one; so does {name}(x + 0.0) in SQL.",
        )
    # F.collect_set(...) is sorted by Lockstep.
    if name == "collect_set" and _short(nodes[max(0, index - 1)]) not in _ORDER_FREE_USES:
        raise ExpressionError(
            "LS0205",
            f'collect_set in a SQL string of step "{step}" depends on the order of records',
            why="the set comes out in the order of the shuffle.",
            hint="F.collect_set(...) comes out sorted; in SQL write array_sort(collect_set(...)).",
        )
    return None


def _class(node: Any) -> str:
    return str(node.getClass().getName())


def _short(node: dict[str, Any]) -> str:
    return str(node["class"]).rpartition(".")[2]


def _written(plan: _Plan, found: _Found) -> str | None:
    """The name under which the function was called: Spark keeps few of the names, but knows the text they stood in.

    None if it is only refused in texts, and stands in none.
    """
    nodes = list(plan.expressions({found.node}))
    in_text = next((one for one in nodes if _text(one)), None)
    if in_text is None:
        return None if found.text_only else found.function
    name = _called(in_text, found.function)
    return f"{name}(DISTINCT ...)" if found.distinct else name


def _text(node: Any) -> str:
    """The text in SQL that an expression stood in, empty if it was in none."""
    context = node.origin().context()
    return str(context.fragment()) if context is not None and context.contextType().toString() == "SQL" else ""


def _called(node: Any, otherwise: str) -> str:
    match = re.match(r"\W*(\w+)", _text(node))
    name = match[1].lower() if match else otherwise
    return name if refuse(name) is not None or is_aggregate(name) else otherwise


def _not_deterministic(plan: _Plan, step: str) -> ExpressionError:
    for node in (one for each in _walk(plan.analyzed) for one in _all_of(each)):
        children = list(_sequence(node.children()))
        if not node.deterministic() and all(child.deterministic() for child in children):
            name = _called(node, str(node.prettyName()))
            if (refusal := refuse(name)) is not None:
                return refused(name, refusal, f'step "{step}"')
            break
    else:
        name = "an expression"
    return ExpressionError(
        "LS0213",
        f'{name} in step "{step}" is not deterministic, Spark says',
        why="it may answer differently each time it is asked, and so in every replica.",
        hint="use a function of the record alone.",
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


def _check_sums(plan: _Plan, step: str, *, exact_floats: bool) -> None:
    """Refuse what adds floats, or stops adding quietly: what Lockstep lowered itself adds decimals by now."""
    for node in plan.expressions(_ADDING):
        function = _ADDING[_class(node)]
        if str(node.prettyName()).startswith("try_"):
            raise _refused(_Found(_class(node), f"try_{function}"), f"try_{function}", step)
        if exact_floats and node.children().apply(0).dataType().typeName() in ("double", "float"):
            raise ExpressionError(
                "LS0208",
                f'step "{step}" adds floats inside a SQL string: {function}(...)',
                why="the sum of floats depends on the order of addition, and replicas add in different orders.",
                hint=f"F.{function}(...) adds exactly; exact_floats=False accepts differences in the last digits.",
            )


def _all_of(node: Any) -> Iterator[Any]:
    """All expressions of a node of the plan in the JVM, those inside others too."""
    for expression in _sequence(node.expressions()):
        yield from _walk(expression)


def _walk(tree: Any) -> Iterator[Any]:
    """A tree in the JVM, parents first."""
    yield tree
    for child in _sequence(tree.children()):
        yield from _walk(child)


def _sequence(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(index) for index in range(sequence.length()))


def _refused(found: _Found, written: str, step: str) -> ExpressionError:
    if (refusal := refuse(written) or refuse(found.function)) is not None:
        return refused(written, refusal, f'step "{step}"')
    return ExpressionError(
        "LS0205",
        f'step "{step}" uses {written}(...)',
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
