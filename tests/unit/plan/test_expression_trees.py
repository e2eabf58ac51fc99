from __future__ import annotations

import datetime
import decimal
import json
import pickle
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.errors import ExpressionError, PlanError
from lockstep.plan.columns import RecordColumns, check_known, condition, referenced_columns, value_of
from lockstep.plan.expression import Alias, Call, Column, Expression, Lambda, Literal, Sql, call, epoch_time, literal

a, b = Column("a"), Column("b")
NOT_A_NUMBER = float("nan")

numbers = st.recursive(
    st.integers(-9, 9).map(Literal),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        inner.map(lambda value: -value),
    ),
    max_leaves=6,
)
conditions = st.recursive(
    st.one_of(
        st.tuples(numbers, numbers).map(lambda p: p[0] < p[1]),
        st.tuples(numbers, numbers).map(lambda p: p[0] == p[1]),
        st.tuples(numbers, numbers, numbers).map(lambda t: t[0].between(t[1], t[2])),
        st.tuples(numbers, numbers).map(lambda p: p[0].isin(p[1], 3)),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] & p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] | p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] == p[1]),
        inner.map(lambda value: ~value),
    ),
    max_leaves=6,
)


def evaluated(node: Any) -> int:
    """What a tree of whole numbers comes to, computed from its structure alone."""
    if isinstance(node, Literal):
        return int(node.value)
    if isinstance(node, int):
        return node
    name, values = node.name.split(".")[1], [evaluated(arg) for arg in node.args]
    operations: dict[str, Callable[..., int]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "neg": lambda x: -x,
        "lt": lambda x, y: x < y,
        "eq": lambda x, y: x == y,
        "and": lambda x, y: x and y,
        "or": lambda x, y: x or y,
        "not": lambda x: not x,
        "between": lambda x, low, high: low <= x <= high,
        "isin": lambda x, *others: x in others,
    }
    return int(operations[name](*values))


@given(st.one_of(numbers, conditions))
def test_the_text_of_an_expression_means_what_its_tree_means(expression: Expression) -> None:
    connection = sqlite3.connect(":memory:")
    try:
        (found,) = connection.execute(f"SELECT {expression}").fetchone()
    finally:
        connection.close()
    assert found == evaluated(expression)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (1 - a, "1 - a"),
        ((a + 1) * 2 / b % 3, "(a + 1) * 2 / b % 3"),
        (~(a & b) | a.isNull(), "NOT (a AND b) OR a IS NULL"),
        (a.cast("bigint") == Literal("it's"), "CAST(a AS bigint) = 'it''s'"),
        (Sql("a or b") & a, "(a or b) AND a"),
        (call("concat_ws", "-", "a", b), "concat_ws('-', a, b)"),
        (call("transform", "xs", lambda x: x + 1), "transform(xs, (x) -> x + 1)"),
        (call("when", a, 1).when(b, 2).otherwise(None), "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE NULL END"),
        (a["k"].getField("f").alias("out"), "a['k'].f AS out"),
        (a.isin([1, 2]), "a IN (1, 2)"),
        (a.rlike("x+"), "a RLIKE 'x+'"),
        (a > epoch_time(), "a > epoch_time()"),
    ],
)
def test_expressions_print_like_sql(expression: Expression, text: str) -> None:
    assert str(expression) == text


@pytest.mark.parametrize(
    ("mistake", "spelling"),
    [
        (lambda: a and b, "(a) & (b)"),  # type: ignore[unreachable]
        (lambda: a or b, "(a) | (b)"),  # type: ignore[unreachable]
        (lambda: not a, "~(a)"),
        (lambda: a in (1, 2), ".isin("),
        (lambda: 1 < a < 5, ".between("),
        (lambda: 1 if a else 2, "F.when("),
        (lambda: bool(a == b), "F.when("),
        (lambda: 1 in a, "array_contains"),
        (lambda: len(a), "F.size("),
        (lambda: list(a), "F.transform("),
    ],
)
def test_python_words_on_expressions_are_answered_with_the_right_spelling(
    mistake: Callable[[], object], spelling: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        mistake()
    assert caught.value.code == "LS0201"
    assert spelling in caught.value.hint


def test_the_word_that_was_used_is_named_alone() -> None:
    with pytest.raises(ExpressionError) as caught:
        _ = (a or b), 'and "not" this'  # type: ignore[unreachable]
    assert caught.value.fact == '"or" does not work on expressions'
    assert caught.value.hint.count("\n") == 0


def fake_pyspark_column() -> object:
    cls = type("Column", (), {})
    cls.__module__ = "pyspark.sql.classic.column"
    return cls()


@pytest.mark.parametrize(
    "use",
    [
        lambda column: a == column,
        lambda column: a.isin(1, column),
        lambda column: call("lower", column),
        lambda column: call("array", [a, column]),
        lambda column: condition(column, ["a"]),
        lambda column: value_of(column, ["a"]),
        lambda column: call("when", a, 1).when(column, 2),
    ],
)
def test_a_real_pyspark_column_is_explained_wherever_it_turns_up(use: Callable[[object], object]) -> None:
    with pytest.raises(ExpressionError, match="from lockstep import F") as caught:
        use(fake_pyspark_column())
    assert caught.value.code == "LS0202"


@pytest.mark.parametrize("value", [object(), {1, 2}, 2**63, datetime.timedelta(1)])
def test_a_value_no_column_can_hold_is_refused(value: object) -> None:
    with pytest.raises(ExpressionError) as caught:
        literal(value)
    assert caught.value.code == "LS0223"


def test_operators_make_literals_of_plain_values_and_calls_keep_them() -> None:
    made = "x" + a
    assert isinstance(made, Call) and isinstance(made.args[0], Literal) and made.args[0].value == "x"
    kept = call("lpad", "a", 5, "0")
    assert kept.args == ("a", 5, "0")


def test_equal_trees_have_equal_json_and_different_ones_do_not() -> None:
    day, price = datetime.date(2024, 1, 2), decimal.Decimal("1.50")
    trees: list[Callable[[], Expression]] = [
        lambda: a + 1,
        lambda: a + 1.0,
        lambda: a + "1",
        lambda: call("round", "a", scale=2),
        lambda: call("round", "a", 2),
        lambda: a == day,
        lambda: a == str(day),
        lambda: a == price,
        lambda: a == b"x",
        lambda: a == NOT_A_NUMBER,
        lambda: a.alias("b"),
        lambda: Sql("a + 1"),
        lambda: call("transform", "a", lambda x: x + 1),
        lambda: call("transform", "a", lambda x: x + 2),
    ]
    for i, first in enumerate(trees):
        for j, second in enumerate(trees):
            assert first().same_as(second()) == (i == j), (i, j)
        json.dumps(first().to_json(), allow_nan=False)


def test_expressions_survive_pickling() -> None:
    made = call("when", a > 1, "x").otherwise(call("transform", "xs", lambda x: x * b))
    assert pickle.loads(pickle.dumps(made)).same_as(made)


def test_lambdas_of_higher_order_functions_become_trees_that_show_their_columns() -> None:
    made = call("filter", "xs", lambda x, i: (x > b) & (i < 3))
    assert isinstance(made.args[1], Lambda) and made.args[1].parameters == ("x", "i")
    assert referenced_columns(made) == ("b", "xs")


def test_an_unknown_method_suggests_the_nearest_and_hasattr_says_no() -> None:
    assert not hasattr(a, "is_null")
    with pytest.raises(ExpressionError, match='did you mean "isNull"') as caught:
        a.is_null()  # type: ignore[attr-defined]
    assert caught.value.code == "LS0206"


def test_otherwise_needs_a_when_before_it() -> None:
    with pytest.raises(ExpressionError) as caught:
        a.otherwise(1)
    assert caught.value.code == "LS0222"


class TestColumns:
    def test_a_string_argument_counts_as_a_column_only_where_pyspark_reads_one(self) -> None:
        made = call("concat_ws", "sep", "first", call("regexp_replace", "second", "pattern", "with"), Column("s.field"))
        assert set(referenced_columns(made)) == {"first", "second", "s"}

    def test_the_star_is_no_column(self) -> None:
        assert referenced_columns(call("count", "*")) == ()

    def test_an_unknown_string_argument_hints_at_lit(self) -> None:
        with pytest.raises(PlanError, match=r'F\.lit\("bob"\)') as caught:
            check_known(call("lower", "bob"), ["user"], "filter")
        assert caught.value.code == "LS0107"
        assert 'step "filter"' in caught.value.fact

    def test_a_condition_is_a_text_an_expression_or_a_lambda(self) -> None:
        assert isinstance(condition("a > 1", ["a"]), Sql)
        assert condition(a, ["a"]) is a
        assert str(condition(lambda r: r.a > r["b c"], ["a", "b c"])) == "a > b c"
        assert isinstance(condition("A", ["a"]), Column)
        assert isinstance(condition("true", ["a"]), Sql)

    @pytest.mark.parametrize("wrong", ["usr", lambda r: r.usr, lambda r: r["usr"]])
    def test_an_unknown_column_lists_those_there_are(self, wrong: Any) -> None:
        with pytest.raises(PlanError, match='did you mean "user"') as caught:
            condition(wrong, ["user", "ok"])
        assert caught.value.code == "LS0107"
        assert caught.value.why == "the stream has: user, ok."

    @pytest.mark.parametrize(("wrong", "code"), [(7, "LS0223"), (lambda r, s: r.a, "LS0131"), (lambda: a, "LS0131")])
    def test_what_is_no_condition_is_explained(self, wrong: Any, code: str) -> None:
        with pytest.raises((ExpressionError, PlanError)) as caught:
            condition(wrong, ["a"])
        assert caught.value.code == code

    def test_plain_values_stand_for_themselves(self) -> None:
        assert str(value_of(7, [])) == "7"
        assert str(value_of(None, [])) == "NULL"
        assert isinstance(value_of(a.alias("x"), ["a"]), Alias)

    def test_a_record_lists_its_columns(self) -> None:
        assert dir(RecordColumns(["b", "a"])) == ["a", "b"]
