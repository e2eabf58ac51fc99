from __future__ import annotations

import pytest
from pyspark.sql import functions as spark_functions

from lockstep.errors import ExpressionError
from lockstep.errors.page import all_pages
from lockstep.plan.determinism import (
    ALLOWED_AGGREGATES,
    REFUSED_AGGREGATES,
    REFUSED_SCALARS,
    check_aggregate,
    check_deterministic,
    check_scalar,
    is_aggregate,
    refuse,
)
from lockstep.plan.expression import Call, Column, Sql, call
from lockstep.plan.signatures import function_names


@pytest.mark.parametrize("name", function_names())
def test_every_aggregate_of_pyspark_is_either_allowed_or_refused_with_a_reason(name: str) -> None:
    documentation = (getattr(spark_functions, name).__doc__ or "").strip()
    if documentation.startswith(("Aggregate function", "Window function")):
        assert is_aggregate(name) or name in REFUSED_SCALARS
    if name in ALLOWED_AGGREGATES:
        assert refuse(name) is None


def test_no_aggregate_is_both_allowed_and_refused() -> None:
    assert not ALLOWED_AGGREGATES & REFUSED_AGGREGATES.keys()
    assert not ALLOWED_AGGREGATES & REFUSED_SCALARS.keys()


@pytest.mark.parametrize(
    ("name", "code", "replacement"),
    [
        ("current_timestamp", "LS0203", "ls.epoch_time()"),
        ("now", "LS0203", "ls.epoch_time()"),
        ("current_date", "LS0203", "ls.epoch_time()"),
        ("unix_timestamp", "LS0203", "ls.epoch_time()"),
        ("current_timezone", "LS0203", "UTC"),
        ("current_user", "LS0203", "F.lit"),
        ("input_file_name", "LS0203", "column"),
        ("rand", "LS0204", "F.xxhash64"),
        ("uuid", "LS0204", "F.sha2"),
        ("shuffle", "LS0204", "F.xxhash64"),
        ("monotonically_increasing_id", "LS0205", "F.xxhash64"),
        ("first", "LS0205", "F.min(F.struct"),
        ("last", "LS0205", "F.max(F.struct"),
        ("collect_list", "LS0205", "F.collect_set"),
        ("max_by", "LS0205", "F.max(F.struct"),
        ("mode", "LS0205", "count"),
        ("stddev", "LS0205", ".agg(value=F.stddev(...))"),
        ("percentile_approx", "LS0205", "F.percentile(x, 0.95)"),
        ("sum_distinct", "LS0221", "F.count_distinct"),
        ("explode", "LS0221", ".flat_map"),
        ("row_number", "LS0221", ".window"),
    ],
)
def test_a_refused_function_names_its_replacement(name: str, code: str, replacement: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_deterministic(Call("lower", (Call(name) + 1,)), 'step "filter"')
    assert caught.value.code == code
    assert replacement in caught.value.hint
    assert name in caught.value.fact and 'step "filter"' in caught.value.fact


@pytest.mark.parametrize("name", [*REFUSED_SCALARS, *REFUSED_AGGREGATES])
def test_an_error_names_the_function_that_is_refused_and_not_its_neighbour(name: str) -> None:
    """Alone, inside and around allowed ones, before another refused one; as a method of F and by its name in SQL."""
    it = call("lower", Call(name))
    for expression in (Call(name), Call("call_function", (name.upper(),)), it, call("concat", "user", it, Column("n"))):
        with pytest.raises(ExpressionError) as caught:
            check_deterministic(expression, "here")
        assert caught.value.fact.split(" ")[0] == name
    with pytest.raises(ExpressionError) as caught:
        check_deterministic(call("coalesce", call("lower", "user"), Call(name), Call("rand")), "here")
    assert caught.value.fact.split(" ")[0] == name


def test_every_refusal_has_a_page() -> None:
    codes = {refusal.code for refusal in (*REFUSED_SCALARS.values(), *REFUSED_AGGREGATES.values())}
    assert codes <= all_pages().keys()


@pytest.mark.parametrize(
    "expression",
    [
        call("unix_timestamp", "at"),
        call("aes_encrypt", "a", "k", "mode", "padding", "iv"),
        call("aes_encrypt", "a", "k", iv="iv"),
        call("xxhash64", "user"),
        Call("lockstep.epoch_time"),
        Sql("rand()"),
    ],
)
def test_what_replicas_agree_on_is_fine(expression: Call) -> None:
    check_deterministic(expression, "here")


@pytest.mark.parametrize(
    "expression", [call("call_function", "RAND"), call("transform", "xs", lambda x: x + call("rand"))]
)
def test_a_refused_function_is_found_however_it_is_called(expression: Call) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_deterministic(expression, "here")
    assert caught.value.code == "LS0204"


def test_an_aggregate_needs_many_records() -> None:
    with pytest.raises(ExpressionError) as caught:
        check_scalar(call("sum", "n") > 5, "here")
    assert caught.value.code == "LS0224"


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        (Column("n") + 1, "LS0225"),
        (Sql("count()"), "LS0225"),
        (Sql(" sum ( ) "), "LS0225"),
        (call("sum", call("max", "n")), "LS0224"),
        (call("sum", "n") + Column("n"), "LS0225"),
        (call("sum", "n") + call("abs", "n"), "LS0225"),
        (call("first", "n"), "LS0205"),
    ],
)
def test_an_aggregation_that_means_nothing_is_refused(expression: Call, code: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        check_aggregate(expression, ["user"], "here")
    assert caught.value.code == code


@pytest.mark.parametrize(
    "expression", [call("sum", "n") / call("count", "*"), call("concat", "user", call("max", "n")), Sql("sum(n)")]
)
def test_aggregates_may_be_combined_with_each_other_and_with_keys(expression: Call) -> None:
    check_aggregate(expression, ["user"], "here")
