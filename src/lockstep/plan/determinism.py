"""Which functions replicas cannot agree on, by name, with the reason and the replacement.

Catalyst cannot be asked: it calls `first`, `collect_list`, `max_by`, `current_timestamp` and others deterministic.
Scalars are refused if they are listed; aggregates are refused unless they are on the allow-list, because a shuffle
keeps no order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from lockstep.errors import ExpressionError
from lockstep.plan.aggregates import names_by
from lockstep.plan.expression import Call, Column, Expression, Sql, walk
from lockstep.plan.signatures import column_strings

_NOTHING_GIVEN = re.compile(r"\w+\s*\([\s,]*\)")
Kind = Literal["clock", "host", "random", "order", "stream"]
_CODES: dict[Kind, str] = {
    "clock": "LS0203",
    "host": "LS0203",
    "random": "LS0204",
    "order": "LS0205",
    "stream": "LS0221",
}


@dataclass(frozen=True)
class Refusal:
    """Why a function is refused, and what to write instead."""

    kind: Kind
    reason: str
    replacement: str
    fine_from_arguments: int | None = None
    """With at least this many arguments the function is fine (``unix_timestamp(column)``)."""

    @property
    def code(self) -> str:
        """The error code: LS0203 clock or host, LS0204 random, LS0205 order, LS0221 not possible in a stream."""
        return _CODES[self.kind]


def _each(names: str, refusal: Refusal) -> dict[str, Refusal]:
    return dict.fromkeys(names.split(), refusal)


_CLOCK = Refusal(
    "clock",
    "it reads the machine's clock, which differs between replicas; the epoch time is the only clock they share.",
    "ls.epoch_time()",
)
_UNIX_TIMESTAMP = Refusal(
    "clock", "without an argument it reads the machine's clock.", "F.unix_timestamp(ls.epoch_time())", 1
)
_TODAY = Refusal("clock", _CLOCK.reason, "F.to_date(ls.epoch_time())")
_ZONE = Refusal("host", "it reads the session's time zone, which is not the job's to know.", 'F.lit("UTC")')
_HOST = Refusal(
    "host", "it reads who or where Spark runs as, which differs between replicas.", "F.lit(...) with the value you mean"
)
_ANY_CODE = Refusal(
    "host", "it runs any Java method: nobody can tell what that reads.", ".map(function, schema=...) with Python"
)
_FILE = Refusal(
    "host",
    "the file Spark reads is Lockstep's own, and it may differ between replicas.",
    "a column in the records that says where they come from",
)
_RANDOM = Refusal(
    "random",
    "every replica would draw other numbers.",
    "a hash of a key: F.xxhash64(F.col(...)), e.g. F.pmod(F.xxhash64(F.col(...)), F.lit(100)) < 7 for a sample of 7 %",
)
_UUID = Refusal(
    "random", "every replica would draw another one.", "a hash of what makes the record unique: F.sha2(..., 256)"
)
_AES = Refusal(
    "random",
    "without an initialisation vector it draws one at random.",
    "F.aes_encrypt(input, key, mode, padding, iv)",
    5,
)
_PARTITION = Refusal(
    "order",
    "it depends on how the records are spread over partitions, which differs between replicas.",
    "a hash of a key: F.xxhash64(F.col(...))",
)
_ROWS = Refusal(
    "stream",
    "it makes several records of one, or none.",
    '.explode("items", as_="item"), .flat_map(function, schema=...), or F.transform and F.filter inside the array',
)
_NEIGHBOURS = Refusal(
    "stream",
    "rows before and after are not known while a stream runs.",
    ".key_by(...).window(ls.tumbling(...)).agg(...) computes over windows of time",
)
_WINDOW = Refusal(
    "stream",
    "windows belong to event time, and that is declared once.",
    '.event_time("at").key_by(...).window(ls.tumbling("1 minute")).agg(...)',
)
_SORT = Refusal("stream", "a stream has no end, so it cannot be sorted.", "sort what you read from the sink")
_FRAME = Refusal("stream", "it is about whole DataFrames and tables, not about a record.", "leave it out")
_PYTHON = Refusal(
    "stream",
    "a Spark UDF hides its Python code from the plan.",
    ".map(function, schema=...), .flat_map(...) or .map_batches(...)",
)

REFUSED_SCALARS: dict[str, Refusal] = {
    **_each("current_timestamp now localtimestamp current_time", _CLOCK),
    **_each("current_date curdate", _TODAY),
    **_each("unix_timestamp", _UNIX_TIMESTAMP),
    **_each("current_timezone", _ZONE),
    **_each(
        "current_user session_user user current_catalog current_database current_schema current_path version", _HOST
    ),
    **_each("java_method reflect try_reflect", _ANY_CODE),
    **_each("input_file_name input_file_block_start input_file_block_length", _FILE),
    **_each("rand random randn uniform randstr shuffle", _RANDOM),
    **_each("uuid", _UUID),
    **_each("aes_encrypt", _AES),
    **_each("monotonically_increasing_id spark_partition_id", _PARTITION),
    **_each("explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple", _ROWS),
    **_each("lag lead nth_value ntile rank dense_rank percent_rank cume_dist row_number counter_diff", _NEIGHBOURS),
    **_each("window session_window window_time", _WINDOW),
    **_each("asc asc_nulls_first asc_nulls_last desc desc_nulls_first desc_nulls_last", _SORT),
    **_each("broadcast years months days hours bucket grouping grouping_id", _FRAME),
    **_each("udf udtf pandas_udf arrow_udf arrow_udtf call_udf unwrap_udt", _PYTHON),
}
"""Scalar functions (and what is none, such as ``udf``) that a job may not call."""

_PICKS = "which record comes first depends on the shuffle, which keeps no order."
_ALONE = "alone in .agg(...), under a name of its own, it is computed in the order of records; or "
_FIRST = Refusal(
    "order", _PICKS, f"{_ALONE}F.min(F.struct(time, value)): the value at the earliest time, ties by the value"
)
_LAST = Refusal(
    "order", _PICKS, f"{_ALONE}F.max(F.struct(time, value)): the value at the latest time, ties by the value"
)
_ANY = Refusal("order", _PICKS, f"{_ALONE}F.min(...) or F.max(...)")
_LIST = Refusal(
    "order", "the order of the list is that of the shuffle.", f"{_ALONE}F.collect_set(...): each value once, in order"
)
_TIES = "among equals it takes whichever comes first, and a shuffle keeps no order."
_MAX_BY = Refusal("order", _TIES, f"{_ALONE}F.max(F.struct(by, value)).getField(...): ties are decided by the value")
_MIN_BY = Refusal("order", _TIES, f"{_ALONE}F.min(F.struct(by, value)).getField(...): ties are decided by the value")
_MODE = Refusal("order", _TIES, "count by value: .key_by(..., value=...).agg(n=F.count('*'))")
_QUANTILE = Refusal(
    "order",
    "the sketch it keeps depends on the order in which records and partitions come.",
    "F.percentile(x, 0.95), which is exact and keeps the distinct values of a key",
)
_WITHIN = Refusal("stream", "WITHIN GROUP cannot be read here.", "F.percentile(x, 0.95), exact and interpolated")
DISTINCT = Refusal(
    "stream", "Spark cannot add up distinct values over a stream.", "F.count_distinct(...), or F.collect_set(...)"
)
_EXACTLY = ".agg(value=F.{name}(...)), each on its own: Lockstep adds it up exactly; the formula in .with_columns(...)"
_MOMENTS = Refusal(
    "order",
    "Spark adds its floats in the order they come, and that changes the last digits.",
    _EXACTLY.format(name="stddev"),
)
_PAIRS = Refusal("order", _MOMENTS.reason, _EXACTLY.format(name="corr"))
_HIGHER = Refusal("order", _MOMENTS.reason, "F.sum(...) of powers, and the formula on these in .with_columns(...)")
_FLOATS = Refusal("order", _MOMENTS.reason, "F.sum(...), which Lockstep adds exactly")
_SKETCH = Refusal(
    "order",
    "its bytes are not known to be the same for every order of the records.",
    "F.approx_count_distinct(...), F.count(...), F.sum(...)",
)
_TRY = Refusal("order", "whether it overflows on the way depends on the order.", "F.sum(...) or F.avg(...)")

ALLOWED_AGGREGATES: frozenset[str] = names_by("spark", "lowered")
"""Aggregates that Spark computes, as they are or rewritten: the same result for every order of the records."""

REFUSED_AGGREGATES: dict[str, Refusal] = {
    **_each("first first_value", _FIRST),
    **_each("last last_value", _LAST),
    **_each("any_value", _ANY),
    **_each("collect_list array_agg collect_union listagg string_agg listagg_distinct string_agg_distinct", _LIST),
    **_each("max_by", _MAX_BY),
    **_each("min_by", _MIN_BY),
    **_each("mode", _MODE),
    **_each("percentile_approx approx_percentile histogram_numeric", _QUANTILE),
    **_each("percentile_cont percentile_disc", _WITHIN),
    **_each("sum_distinct", DISTINCT),
    **_each("std stddev stddev_pop stddev_samp variance var_pop var_samp", _MOMENTS),
    **_each("corr covar_pop covar_samp", _PAIRS),
    **_each("skewness kurtosis regr_avgx regr_avgy regr_intercept regr_r2 regr_slope", _HIGHER),
    **_each("regr_sxx regr_sxy regr_syy regr_count", _HIGHER),
    **_each("product vector_avg vector_sum", _FLOATS),
    **_each("try_sum try_avg", _TRY),
    **_each("count_min_sketch hll_sketch_agg hll_union_agg theta_sketch_agg theta_union_agg", _SKETCH),
    **_each("theta_intersection_agg tuple_sketch_agg_double tuple_sketch_agg_integer", _SKETCH),
    **_each("tuple_union_agg_double tuple_union_agg_integer", _SKETCH),
    **_each("tuple_intersection_agg_double tuple_intersection_agg_integer", _SKETCH),
    **_each("kll_sketch_agg_bigint kll_sketch_agg_float kll_sketch_agg_double", _SKETCH),
    **_each("kll_merge_agg_bigint kll_merge_agg_float kll_merge_agg_double", _SKETCH),
    **_each("bitmap_and_agg bitmap_or_agg bitmap_construct_agg schema_of_variant_agg", _SKETCH),
}
"""Aggregates that exist and are not on the allow-list, each with its reason."""


def refuse(name: str, arguments: int | None = None) -> Refusal | None:
    """Why the function ``name`` is refused when called with so many arguments, None if it is fine.

    >>> refuse("rand").replacement.split(":")[0]
    'a hash of a key'
    >>> refuse("lower"), refuse("unix_timestamp", 1)
    (None, None)
    """
    found = REFUSED_SCALARS.get(name.lower()) or REFUSED_AGGREGATES.get(name.lower())
    if found is None or arguments is None or found.fine_from_arguments is None:
        return found
    return None if arguments >= found.fine_from_arguments else found


def is_aggregate(name: str) -> bool:
    """Whether the function turns many records into one value.

    >>> is_aggregate("sum"), is_aggregate("lower")
    (True, False)
    """
    return name.lower() in ALLOWED_AGGREGATES or name.lower() in REFUSED_AGGREGATES


def check_deterministic(expression: Expression, where: str) -> None:
    """Refuse an expression that calls a function replicas cannot agree on; texts in SQL are Spark's to read."""
    for node in walk(expression):
        if isinstance(node, Call):
            name, arguments = _called(node)
            refusal = refuse(name, arguments)
            if refusal is not None:
                raise refused(name, refusal, where)


def refused(name: str, refusal: Refusal, where: str) -> ExpressionError:
    """The error for a refused function."""
    fact = {
        "clock": "reads a clock",
        "host": "depends on where it runs",
        "random": "is random",
        "order": "depends on the order of records",
        "stream": "cannot be used in a stream",
    }[refusal.kind]
    return ExpressionError(
        refusal.code, f"{name} in {where} {fact}", why=refusal.reason, hint=f"instead: {refusal.replacement}."
    )


def check_scalar(expression: Expression, where: str) -> None:
    """Refuse an expression that replicas cannot agree on or that aggregates (LS0224): it sees one record at a time."""
    check_deterministic(expression, where)
    for node in walk(expression):
        if isinstance(node, Call) and is_aggregate(_called(node)[0]):
            name = _called(node)[0]
            raise ExpressionError(
                "LS0224",
                f"{name} in {where} needs many records, and here there is one",
                why=f"the expression is: {expression}.",
                hint=f".key_by(...).agg(value=F.{name}(...)) computes it for each key.",
            )


def check_aggregate(expression: Expression, keys: Iterable[str], where: str) -> None:
    """Refuse an aggregate that aggregates nothing (LS0225), twice (LS0224), or reads columns beside it (LS0225)."""
    check_deterministic(expression, where)
    found = _outermost_aggregates(expression)
    if isinstance(expression, Sql) and _NOTHING_GIVEN.fullmatch(expression.text.strip()):
        raise ExpressionError(
            "LS0225",
            f"{expression} in {where} is given nothing to aggregate",
            hint="count(*) counts records; sum(price) adds a column up.",
        )
    if not found and not any(isinstance(node, Sql) for node in walk(expression)):
        raise ExpressionError(
            "LS0225",
            f"{where} has no aggregate function",
            why=f"the expression is: {expression}.",
            hint='use one of F.count("*"), F.sum(...), F.avg(...), F.min(...), F.max(...), F.collect_set(...).',
        )
    for call in found:
        for argument in call.children:
            check_scalar(argument, f"the arguments of {call.name} in {where}")
    known = set(keys)
    for name in _columns_beside_aggregates(expression):
        if name not in known:
            raise ExpressionError(
                "LS0225",
                f'"{name}" in {where} is neither a key nor inside an aggregate function',
                why="many records become one: which of their values would it be?",
                hint=f'F.max("{name}"), or .key_by(..., "{name}").',
            )


def _called(call: Call) -> tuple[str, int]:
    """Name and number of arguments; ``F.call_function("rand")`` is a call of rand."""
    if call.name == "call_function" and call.args and isinstance(call.args[0], str):
        return call.args[0].lower(), len(call.args) - 1
    # An argument given by name may be any of them (iv=...): only its being given at all can be counted.
    named = {key for key, _ in call.kwargs}
    return call.name, 5 if "iv" in named else len(call.args) + len(named)


def _outermost_aggregates(expression: Expression) -> list[Call]:
    if isinstance(expression, Call) and is_aggregate(_called(expression)[0]):
        return [expression]
    return [found for child in expression.children for found in _outermost_aggregates(child)]


def _columns_beside_aggregates(expression: Expression) -> list[str]:
    if isinstance(expression, Column):
        return [expression.name]
    if not isinstance(expression, Call):
        return [name for child in expression.children for name in _columns_beside_aggregates(child)]
    if is_aggregate(_called(expression)[0]):
        return []
    own = list(column_strings(expression.name, expression.args, expression.kwargs))
    return own + [name for child in expression.children for name in _columns_beside_aggregates(child)]
