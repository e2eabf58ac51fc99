from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import ExpressionError
from lockstep.plan.expression import Call, Column, Literal, Sql


def test_names_are_those_of_pyspark() -> None:
    made = F.lower("user")
    assert isinstance(made, Call)
    assert (made.name, made.args) == ("lower", ("user",))
    assert {"lower", "xxhash64", "count", "when"} <= set(dir(F))
    assert not {"udf", "window", "explode"} & set(dir(F))


def test_col_lit_and_expr_build_their_own_nodes() -> None:
    assert isinstance(F.col("a"), Column)
    assert isinstance(F.lit(1), Literal)
    assert isinstance(F.expr("a + 1"), Sql)
    column = F.col("a")
    assert F.lit(column) is column


@pytest.mark.parametrize(
    ("use", "code", "hint"),
    [
        (lambda: F.lowr("a"), "LS0206", 'did you mean "lower"'),  # type: ignore[attr-defined]
        (lambda: F.countDistinct("a"), "LS0206", 'did you mean "count_distinct"'),  # type: ignore[attr-defined]
        (lambda: F.udf(str), "LS0221", ".map("),  # type: ignore[attr-defined]
        (lambda: F.pandas_udf, "LS0221", ".map("),  # type: ignore[attr-defined]
        (lambda: F.explode("a"), "LS0221", ".flat_map"),  # type: ignore[attr-defined]
        (lambda: F.window("at", "1 minute"), "LS0221", "ls.tumbling"),  # type: ignore[attr-defined]
        (F.lower, "LS0222", "F.lower(col)"),
        (lambda: F.lower("a", "b"), "LS0222", "F.lower(col)"),  # type: ignore[call-arg]
        (lambda: F.round("a", digits=2), "LS0222", "F.round(col, scale)"),  # type: ignore[call-arg]
        (lambda: F.when("a > 1", 2), "LS0222", "F.expr"),  # type: ignore[arg-type]
    ],
)
def test_mistakes_are_answered_with_what_to_write(use: Callable[[], object], code: str, hint: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        use()
    assert caught.value.code == code
    assert hint in caught.value.hint


def test_a_refused_function_is_refused_by_the_step_not_by_the_call() -> None:
    assert str(F.current_timestamp()) == "current_timestamp()"


def test_hasattr_says_no_to_unknown_functions() -> None:
    assert not hasattr(F, "lowr")
    assert not hasattr(F, "__wrapped__")


def test_the_package_offers_what_it_lists() -> None:
    for name in ls.__all__:
        assert getattr(ls, name) is not None
    assert set(ls.__all__) == set(dir(ls))
    with pytest.raises(AttributeError, match="it has: Job, "):
        ls.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_importing_is_cheap_and_building_expressions_starts_no_jvm() -> None:
    code = (
        "import sys, lockstep as ls; assert not {'pyspark', 'pydantic', 'pyarrow'} & set(sys.modules), sys.modules;"
        "ls.F.col('a') > 1; assert 'pyspark' not in sys.modules;"
        "ls.F.lower('a'); from pyspark import SparkContext; assert SparkContext._gateway is None"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
