"""The table of aggregates: both sides that compute them, and all that is derived from it, have every one of them."""

from __future__ import annotations

import pytest

from lockstep.errors import PlanError
from lockstep.keyed.accumulators import added_up
from lockstep.plan.accumulated import accumulated, needs_lockstep
from lockstep.plan.aggregates import MEANINGS, canonical, meaning_of, moving, names_by
from lockstep.plan.determinism import ALLOWED_AGGREGATES, REFUSED_AGGREGATES, is_aggregate
from lockstep.plan.expression import Call, Expression, Sql, call
from lockstep.plan.signatures import function_names


def test_lockstep_can_add_up_every_aggregate_of_the_table_and_no_other() -> None:
    assert added_up() == set(MEANINGS)


def test_spark_gets_those_that_it_can_compute_and_is_refused_the_others() -> None:
    assert names_by("spark", "lowered") == ALLOWED_AGGREGATES
    assert names_by("lockstep") <= REFUSED_AGGREGATES.keys()
    assert not ALLOWED_AGGREGATES & REFUSED_AGGREGATES.keys()


def test_what_depends_on_the_order_of_records_is_never_left_to_spark() -> None:
    assert all(meaning.by == "lockstep" for meaning in MEANINGS.values() if meaning.ordered)


def test_every_name_is_a_function_of_pyspark_and_means_one_aggregate() -> None:
    names = names_by("spark", "lowered", "lockstep")
    assert names - {"any"} <= set(function_names())
    assert all(is_aggregate(name) for name in names)
    assert all(canonical(name) in MEANINGS for name in names)
    assert meaning_of("STDDEV") is MEANINGS["stddev_samp"]
    assert meaning_of("lower") is None


def test_what_only_rises_or_falls_starts_at_its_end() -> None:
    assert moving("up") == {"count", "count_if", "count_distinct", "max", "bool_or"}
    assert moving("down") == {"min", "bool_and"}


@pytest.mark.parametrize(
    ("expression", "own"),
    [
        (call("count_distinct", "n"), False),
        (call("median", "n"), False),
        (call("approx_count_distinct", "n"), False),
        (call("stddev", "n"), True),
        (call("corr", "n", "m").alias("c"), True),
        (call("max_by", "n", "m"), True),
        (Sql("max(n)"), False),
        (Sql("STDDEV(n)"), True),
        (Sql("count(DISTINCT n)"), False),
        (Sql("median(n)"), False),
        (Sql("median(n) + 1"), False),
    ],
)
def test_lockstep_is_asked_where_spark_would_depend_on_the_order(expression: Expression, own: bool) -> None:
    assert needs_lockstep((("n", call("count", "*")), ("value", expression))) is own


@pytest.mark.parametrize(
    ("expression", "fractions", "several"),
    [
        (call("percentile", "ms", 0.95), (0.95,), False),
        (call("percentile", "ms", percentage=[0.5, 1]), (0.5, 1.0), True),
        (Sql("percentile(ms, 0.95)"), (0.95,), False),
        (Sql("percentile(ms, array(0.5, .95D))"), (0.5, 0.95), True),
        (Sql("median(ms)"), (0.5,), False),
    ],
)
def test_percentiles_are_read_from_calls_and_texts(
    expression: Expression, fractions: tuple[float, ...], several: bool
) -> None:
    found = accumulated(expression, "p", "here")
    assert (found.fractions, found.several, len(found.inputs)) == (fractions, several, 1)


@pytest.mark.parametrize(
    "expression",
    [
        call("percentile", "ms", 95),
        call("percentile", "ms", []),
        call("percentile", "ms", "p"),
        Sql("percentile(ms, -0.5)"),
        Sql("percentile(ms, p)"),
        call("approx_count_distinct", "ms", 0.01),
        Call("percentile", ("ms",)),
    ],
)
def test_what_cannot_be_asked_for_is_refused(expression: Expression) -> None:
    with pytest.raises(PlanError) as caught:
        accumulated(expression, "p", 'step "agg"')
    assert caught.value.code == "LS0170"
