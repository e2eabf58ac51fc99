"""What compiling refuses: determinism in SQL texts too, unknown columns, types, texts that do not parse."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.compile.determinism import check_plan
from lockstep.compile.hidden_columns import Hidden, ddl_with_hidden
from lockstep.compile.job import Compiled, compile_job
from lockstep.errors import LockstepError
from lockstep.plan.determinism import REFUSED_AGGREGATES, REFUSED_SCALARS, refuse
from lockstep.plan.steps import Source

SCHEMA = "user string, x double, f float, n bigint, d decimal(10,2), at timestamp, ok boolean"
Compile = Callable[[Callable[[Stream], Stream]], Compiled]


@pytest.fixture
def compiled(session: SparkSession) -> Compile:
    """Compile a job over an empty table: what is refused is refused before a query exists."""

    def frame(step: Source, hidden: Hidden, stage: int) -> DataFrame:
        return session.createDataFrame([], ddl_with_hidden(step.spec.schema.ddl(), hidden.columns))

    def run(build: Callable[[Stream], Stream]) -> Compiled:
        job = ls.Job("refusals")
        build(job.source("logins", ls.journal("logins", schema=SCHEMA))).to(ls.files("out"))
        return compile_job(job.graph(), frame)[0]

    return run


def _refusal(compiled: Compile, build: Callable[[Stream], Stream]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        compiled(build)
    return caught.value


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        ("rand() < 0.5", "LS0204", "rand"),
        ("uuid() = user", "LS0204", "uuid"),
        ("shuffle(array(n))[0] = 1", "LS0204", "shuffle"),
        ("at < current_timestamp()", "LS0203", "current_timestamp"),
        ("at < now()", "LS0203", "now"),
        ("date(at) = current_date()", "LS0203", "current_date"),
        ("unix_timestamp() > n", "LS0203", "unix_timestamp"),
        ("user = current_user()", "LS0203", "current_user"),
        ("user = current_timezone()", "LS0203", "current_timezone"),
        ("monotonically_increasing_id() = n", "LS0205", "monotonically_increasing_id"),
        ("spark_partition_id() = n", "LS0205", "spark_partition_id"),
        ("user = input_file_name()", "LS0203", "input_file_name"),
        ("user = reflect('java.util.UUID', 'randomUUID')", "LS0203", "reflect"),
        ("aes_encrypt(user, '0000111122223333') IS NULL", "LS0204", "aes_encrypt"),
    ],
)
def test_a_text_in_sql_may_not_hide_what_replicas_cannot_agree_on(
    compiled: Compile, text: str, code: str, names: str
) -> None:
    error = _refusal(compiled, lambda stream: stream.filter(text))
    assert (error.code, names in error.fact, '"filter"' in error.fact) == (code, True, True), str(error)


ELSEWHERE = frozenset(
    ["window", "session_window", "window_time", "grouping", "grouping_id", "counter_diff", "count_min_sketch"]
)
"""Rewritten by Spark into other expressions, which are fine, or refused by it."""
ARGUMENTS = {
    **dict.fromkeys(
        ["explode", "explode_outer", "posexplode", "posexplode_outer", "shuffle", "collect_union"], "array(n)"
    ),
    **dict.fromkeys(["java_method", "reflect", "try_reflect"], "'java.util.UUID', 'randomUUID'"),
    **dict.fromkeys(["inline", "inline_outer"], "array(struct(n))"),
    **dict.fromkeys(["max_by", "min_by", "corr", "covar_pop", "covar_samp"], "n, x"),
    **dict.fromkeys(["percentile", "percentile_approx", "approx_percentile"], "x, 0.5"),
    **dict.fromkeys(["lag", "lead"], "n"),
    **dict.fromkeys(["percentile_cont", "percentile_disc"], "0.5"),
    **dict.fromkeys(["vector_avg", "vector_sum"], "array(f)"),
    **{name: "n, x" for name in REFUSED_AGGREGATES if name.startswith(("regr_", "tuple_sketch"))},
    **{name: "binary(user)" for name in REFUSED_AGGREGATES if "_union_agg" in name or "_intersection_agg" in name},
    **{name: "binary(user)" for name in REFUSED_AGGREGATES if name.startswith(("kll_merge", "bitmap"))},
    "aes_encrypt": "user, '0000111122223333'",
    "bitmap_construct_agg": "n",
    "histogram_numeric": "n, 5",
    "json_tuple": "user, 'k'",
    "kll_sketch_agg_double": "x",
    "kll_sketch_agg_float": "f",
    "nth_value": "n, 2",
    "ntile": "3",
    "randstr": "3",
    "schema_of_variant_agg": "to_variant_object(array(n))",
    "stack": "1, n",
    "uniform": "0, 1",
}
NEIGHBOURS = ["lag", "lead", "nth_value", "ntile", "rank", "dense_rank", "percent_rank", "cume_dist", "row_number"]


def _text(name: str) -> str:
    """A call of a function in SQL."""
    after = " OVER (ORDER BY n)" if name in NEIGHBOURS else ""
    after = " WITHIN GROUP (ORDER BY x)" if name in ("percentile_cont", "percentile_disc") else after
    return f"{name}({ARGUMENTS.get(name, 'n' if name in REFUSED_AGGREGATES else '')}){after}"


def test_the_function_that_is_refused_is_named_as_it_was_written_and_never_its_neighbour(session: SparkSession) -> None:
    """Catalyst has one class for several names, and wraps a function in others of its own."""
    frame = session.createDataFrame([], SCHEMA)
    known = {function.name for function in session.catalog.listFunctions()}
    names = sorted({*REFUSED_SCALARS, *REFUSED_AGGREGATES} & known - ELSEWHERE)
    assert len(names) > 90
    wrong = {}
    for name in names:
        before, after = ("max(n)", "count(1)") if name in REFUSED_AGGREGATES else ("lower(user)", "length(user)")
        selected = frame.selectExpr(f"{before} AS before", _text(name), f"{after} AS after")
        try:
            check_plan(selected, "counted", exact_floats=True)
        except LockstepError as error:
            if error.fact.split(" ")[0] != name or error.code != (refuse(name) or error).code:
                wrong[name] = str(error)
        else:
            wrong[name] = "allowed"
    assert not wrong


@pytest.mark.parametrize(
    ("text", "code", "names"),
    [
        ("first(x) IS NULL", "LS0205", "first"),
        ("last(n) IS NULL", "LS0205", "last"),
        ("any_value(n) IS NULL", "LS0205", "any_value"),
        ("collect_list(n) IS NULL", "LS0205", "collect_list"),
        ("array_agg(n) IS NULL", "LS0205", "array_agg"),
        ("max_by(user, n) IS NULL", "LS0205", "max_by"),
        ("min_by(user, n) IS NULL", "LS0205", "min_by"),
        ("mode(n)", "LS0205", "mode"),
        ("listagg(user)", "LS0205", "listagg"),
        ("stddev(x) IS NULL", "LS0205", "stddev"),
        ("median(x) IS NULL", "LS0205", "median"),
        ("percentile_approx(x, 0.5)", "LS0205", "percentile_approx"),
        ("try_sum(n)", "LS0205", "try_sum"),
        ("1 + sum(abs(x - n) * 2)", "LS0208", "sum"),
        ("sum(f) > 1", "LS0208", "sum"),
        ("avg(x) * 2", "LS0208", "avg"),
        ("sum(rand())", "LS0204", "rand"),
        ("max(n + rand())", "LS0204", "rand"),
        ("concat(array(), collect_set(n))", "LS0205", "collect_set"),
        ("count(DISTINCT n) IS NULL", "LS0221", "count(DISTINCT"),
        ("sum(DISTINCT n) IS NULL", "LS0221", "sum(DISTINCT"),
        ("coalesce(max(n), any_value(n))", "LS0205", "any_value"),
        ("struct(count(n), median(n), max(x))", "LS0205", "median"),
    ],
)
def test_an_aggregate_in_sql_is_refused_if_the_order_of_records_shows(
    compiled: Compile, text: str, code: str, names: str
) -> None:
    error = _refusal(compiled, lambda stream: stream.key_by("user").agg(value=text))
    assert (error.code, names in error.fact) == (code, True), str(error)


@pytest.mark.parametrize(
    "text",
    [
        "sum(n)",
        "sum(d)",
        "avg(d)",
        "sum(cast(x AS decimal(20,5)))",
        "max(x)",
        "sum(x)",
        "avg(f)",
        "sum(if(user = 'ann', x, 0))",
        "collect_set(x)",
        "bit_xor(n)",
        "array_sort(collect_set(n))",
        "size(collect_set(n))",
        "median(x + 0.0) + 1",
        "count(DISTINCT n, user)",
        "percentile(x, 0.9)",
    ],
)
def test_an_order_free_aggregate_in_sql_compiles(compiled: Compile, text: str) -> None:
    assert compiled(lambda stream: stream.key_by("user").agg(value=text)).output_mode == "update"


@pytest.mark.parametrize("text", ["stddev(x)", "max_by(user, n)"])
def test_an_aggregate_in_sql_that_stands_alone_is_added_up_by_lockstep(compiled: Compile, text: str) -> None:
    """Its query has no output mode of its own to keep to: Spark sees no aggregation."""
    assert compiled(lambda stream: stream.key_by("user").agg(value=text)).output_mode == "append"


def test_encryption_with_its_own_initialisation_vector_compiles(compiled: Compile) -> None:
    text = "aes_encrypt(user, '0000111122223333', 'GCM', 'DEFAULT', unhex('00000000000000000000AAAA'))"
    assert compiled(lambda stream: stream.select(secret=text)).output_mode == "append"


def test_floats_may_be_added_in_any_order_by_who_asks_for_it_also_with_steps_behind(compiled: Compile) -> None:
    def build(stream: Stream) -> Stream:
        return stream.key_by("user").agg(total="sum(x)", mean=F.avg("f"), exact_floats=False).filter("total > 5")

    assert compiled(build).output_mode == "update"


def test_an_unknown_column_in_sql_lists_the_columns_there_are(compiled: Compile) -> None:
    error = _refusal(compiled, lambda stream: stream.filter("usr = 'ann'", name="known_only"))
    assert error.code == "LS0107"
    assert '"known_only"' in error.fact and '"usr"' in error.fact
    assert "user, x, f, n, d, at, ok" in error.why
    assert '"user"' in error.hint


def test_an_unknown_column_after_an_aggregation_lists_its_results(compiled: Compile) -> None:
    error = _refusal(compiled, lambda stream: stream.key_by("user").agg(c=F.count("*")).filter("n > 1"))
    assert (error.code, error.why) == ("LS0107", "the stream has: user, c.")


@pytest.mark.parametrize(
    "build",
    [
        lambda stream: stream.filter("n + ok > 1"),
        lambda stream: stream.filter(F.col("n") == "many"),
        lambda stream: stream.filter(F.col("user") > 5),
        lambda stream: stream.filter(lambda r: r.ok == "yes"),
        lambda stream: stream.select(a=F.col("at") + F.col("ok")),
    ],
    ids=["in SQL", "number with text", "text with number", "boolean with text", "time and boolean"],
)
def test_types_that_do_not_fit_together_are_refused(compiled: Compile, build: Callable[[Stream], Stream]) -> None:
    error = _refusal(compiled, build)
    assert error.code == "LS0209", str(error)
    assert error.why and error.hint


def test_a_text_that_is_no_sql_is_shown_with_the_place(compiled: Compile) -> None:
    error = _refusal(compiled, lambda stream: stream.filter("ok AND n >= )"))
    assert error.code == "LS0210"
    assert '"filter"' in error.fact
    assert "ok AND n >= )" in error.why and "^^^" in error.why, error.why
    assert "org.apache" not in str(error)


def test_a_function_that_spark_does_not_have_is_refused(compiled: Compile) -> None:
    error = _refusal(compiled, lambda stream: stream.filter("lowr(user) = 'a'"))
    assert error.code == "LS0206", str(error)
    assert "lowr" in error.why


def test_the_epoch_time_is_refused_after_an_aggregation(compiled: Compile) -> None:
    error = _refusal(
        compiled, lambda stream: stream.key_by("user").agg(c=F.count("*")).with_columns(seen=ls.epoch_time())
    )
    assert error.code == "LS0207"


def test_a_map_inside_another_type_cannot_be_published(compiled: Compile) -> None:
    error = _refusal(compiled, lambda stream: stream.select(pairs="array(map(user, n))"))
    assert error.code == "LS0520"
