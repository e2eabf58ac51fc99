from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from lockstep.errors import LockstepError, PlanError
from lockstep.plan.expression import Call, Column, Literal, call
from lockstep.plan.schema import parse_schema
from lockstep.plan.specs import Guarantee
from lockstep.plan.steps import (
    GUARANTEES,
    Aggregate,
    Drop,
    EventTime,
    Filter,
    FlatMap,
    Map,
    Rename,
    Select,
    Sink,
    Source,
    Step,
    Union,
    WithColumns,
    event_times_before,
)
from lockstep.plan.windows import Sliding, Tumbling
from tests.unit.plan.fakes_for_plan import COUNT, MINUTE_US, FakeSink, counted, one_of_each, source, timed

USER_ONLY = parse_schema("user string")


def refused_with(code: str, make: Callable[[], object]) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        make()
    assert caught.value.code == code
    return caught.value


def all_kinds() -> list[type[Step]]:
    found: list[type[Step]] = []
    waiting: list[type[Step]] = [Step]
    while waiting:
        cls = waiting.pop()
        waiting.extend(cls.__subclasses__())
        if cls is not Step and not cls.__name__.startswith("_"):
            found.append(cls)
    return found


@pytest.mark.parametrize("kind", all_kinds())
def test_every_kind_of_step_says_whether_it_keeps_state_and_runs_python(kind: type[Step]) -> None:
    assert isinstance(kind.stateful, bool) and isinstance(kind.runs_python, bool)
    if kind.__module__ == "lockstep.plan.steps":
        assert kind in [type(step) for step in one_of_each()], "fakes_for_plan.one_of_each lacks it"


def test_columns_are_known_after_every_step() -> None:
    found = {step.id: step.columns for step in one_of_each()}
    everything = ("user", "ok", "at", "n")
    assert found == {
        "logins": everything,
        "filter": everything,
        "select": ("user", "twice"),
        "with_columns": (*everything, "day"),
        "drop": ("user", "ok", "at"),
        "rename": ("who", "ok", "at", "n"),
        "union": everything,
        "event_time": everything,
        "agg": ("user", "window_start", "window_end", "failures"),
        "map": ("user",),
        "flat_map": ("user",),
        "map_batches": ("user",),
        "reduce": everything,
        "fold": ("user", "total"),
        "min_by": everything,
        "rolling": ("user", "failures"),
        "distinct": everything,
        "explode": (*everything, "word"),
        "totals": ("user", "failures"),
        "latest": ("user", "failures"),
        "as_events": ("user", "failures"),
        "of_changes": ("failures", "users"),
        "late_windows": ("user", "window_start", "window_end", "size"),
        "late": everything,
        "interval_join": (*everything, "cents", "at_paid"),
        "window_join": ("user", "window_start", "window_end", "ok", "at", "n", "cents", "at_paid"),
        "table_join": (*everything, "name"),
        "co_group": ("total",),
        "out": everything,
    }


def test_types_are_known_as_long_as_nothing_is_computed() -> None:
    renamed = Rename("rename", Drop("drop", source(), ("at", "ok")), (("user", "who"),))
    assert renamed.schema_hint == parse_schema("who string, n bigint")
    assert Select("select", renamed, (("number", Column("n")),)).schema_hint == parse_schema("number bigint")
    assert Select("select", renamed, (("number", Column("n") + 1),)).schema_hint is None
    other = source("other", "who string, n int")
    assert Union("union", (renamed, other)).schema_hint is None


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Filter("x", s, Column("usr") == "a"),
        lambda s: Select("x", s, (("a", call("lower", "usr")),)),
        lambda s: WithColumns("x", s, (("a", Column("usr.name")),)),
        lambda s: Drop("x", s, ("usr",)),
        lambda s: Rename("x", s, (("usr", "a"),)),
        lambda s: EventTime("x", s, Column("usr"), 0, None),
        lambda s: counted(s, key=Column("usr")),
        lambda s: Aggregate("x", s, (("user", Column("user")),), None, (("m", call("max", "usr")),)),
    ],
)
def test_an_unknown_column_is_refused_wherever_it_is_used(make: Callable[[Step], Step]) -> None:
    error = refused_with("LS0107", lambda: make(source()))
    assert "user, ok, at, n" in error.why
    assert 'did you mean "user"' in error.hint


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Select("x", s, (("__mark", Column("user")),)),
        lambda s: WithColumns("x", s, (("__mark", Literal(1)),)),
        lambda s: Rename("x", s, (("user", "__mark"),)),
        lambda s: Aggregate("x", s, (("__key", Column("user")),), None, (("n", COUNT),)),
    ],
)
def test_reserved_names_are_refused_wherever_a_name_is_given(make: Callable[[Step], Step]) -> None:
    refused_with("LS0106", lambda: make(source()))


@pytest.mark.parametrize(
    "make",
    [
        lambda s: Select("x", s, ()),
        lambda s: Select("x", s, (("a", Column("user")), ("a", Column("n")))),
        lambda s: WithColumns("x", s, ()),
        lambda s: WithColumns("x", s, (("USER", Literal(1)),)),
        lambda s: Drop("x", s, ()),
        lambda s: Drop("x", s, ("user", "ok", "at", "n")),
        lambda s: Rename("x", s, (("user", "ok"),)),
        lambda s: Union("x", (s,)),
        lambda s: Aggregate("x", s, (("user", Column("user")),), None, ()),
        lambda s: Aggregate("x", s, (), None, (("n", COUNT),)),
        lambda s: Aggregate("x", s, (("user", Column("user")),), None, (("user", COUNT),)),
        lambda s: (
            counted(timed(s), window=Tumbling(1), key=None)
            and Aggregate("y", timed(s), (("window_end", Column("at")),), Tumbling(1), (("n", COUNT),))
        ),
    ],
)
def test_names_that_are_missing_or_given_twice_are_refused(make: Callable[[Step], Step]) -> None:
    refused_with("LS0132", lambda: make(source()))


def test_random_and_aggregate_functions_are_refused_in_scalar_steps() -> None:
    refused_with("LS0204", lambda: Filter("x", source(), Call("rand") > 0.5))
    refused_with("LS0224", lambda: Filter("x", source(), COUNT > 5))
    refused_with("LS0203", lambda: counted(source(), key=Call("current_date")))


def test_a_union_of_different_columns_says_what_is_missing_where() -> None:
    error = refused_with("LS0110", lambda: Union("x", (source("a", "u string, v int"), source("b", "u string, w int"))))
    assert error.why == '"b" lacks: v.\n"a" lacks: w.'


def test_a_union_takes_columns_in_any_order() -> None:
    assert Union("x", (source("a", "u string, v int"), source("b", "v int, u string"))).columns == ("u", "v")


def test_a_union_has_an_event_time_on_all_sides_or_on_none() -> None:
    error = refused_with("LS0119", lambda: Union("x", (timed(source("a")), source("b"))))
    assert error.why.startswith("with: event_time; without: b.")
    both = Union("x", (timed(source("a"), "time_a"), timed(source("b"), "time_b")))
    assert [step.id for step in event_times_before(both)] == ["time_a", "time_b"]


def test_an_event_time_stands_once_and_is_not_negative() -> None:
    refused_with("LS0111", lambda: timed(Filter("f", timed(source()), Column("ok")), "again"))
    refused_with("LS0111", lambda: EventTime("x", source(), Column("at"), -1, None))
    refused_with("LS0111", lambda: EventTime("x", source(), Column("at"), 0, -1))
    # What was aggregated are new records: they may have a time of their own.
    EventTime("x", counted(timed(source())), Column("failures"), 0, None)


def test_a_window_needs_an_event_time() -> None:
    refused_with("LS0112", lambda: counted(source(), window=Tumbling(MINUTE_US)))
    assert counted(timed(source()), window=Tumbling(MINUTE_US)).columns[1:3] == ("window_start", "window_end")


@pytest.mark.parametrize(
    "make", [lambda: Tumbling(0), lambda: Tumbling(-1), lambda: Sliding(10, 0), lambda: Sliding(10, 11)]
)
def test_windows_that_hold_nothing_or_leave_gaps_are_refused(make: Callable[[], object]) -> None:
    refused_with("LS0114", make)


def yields(record: dict[str, Any]) -> Any:
    yield record


async def awaits(record: dict[str, Any]) -> Any:
    return record


@pytest.mark.parametrize("function", [yields, awaits, lambda: {}, lambda a, b: {}, "lower", None])
def test_a_function_that_map_cannot_call_is_refused(function: Any) -> None:
    refused_with("LS0131", lambda: Map("map", source(), function, USER_ONLY))


def test_functions_with_defaults_classes_and_builtins_are_fine() -> None:
    Map("map", source(), lambda record, extra=1: record, USER_ONLY)
    Map("map", source(), dict, USER_ONLY)
    FlatMap("flat", source(), yields, USER_ONLY)


def test_an_expression_where_a_function_belongs_is_explained() -> None:
    refused_with("LS0223", lambda: Map("map", source(), Column("user"), USER_ONLY))  # type: ignore[arg-type]


def test_on_error_is_fail_or_skip() -> None:
    refused_with("LS0131", lambda: Map("map", source(), dict, USER_ONLY, "ignore"))  # type: ignore[arg-type]


def test_a_sink_promises_no_more_than_it_can_keep() -> None:
    """What the sink can do, what is wished for, and what is given: None is refused."""
    exactly, at_least, at_most = GUARANTEES
    table: list[tuple[Guarantee, Guarantee, Guarantee | None]] = [
        (exactly, exactly, exactly),
        (exactly, at_least, exactly),
        (exactly, at_most, exactly),
        (at_least, exactly, None),
        (at_least, at_least, at_least),
        (at_least, at_most, at_most),
        (at_most, exactly, None),
        (at_most, at_least, None),
        (at_most, at_most, at_most),
    ]
    for able, wish, given in table:
        if given is None:
            refused_with("LS0118", partial(Sink, "out", source(), FakeSink("x", able), wish))
        else:
            assert Sink("out", source(), FakeSink("x", able), wish).given == given
    refused_with("LS0118", lambda: Sink("out", source(), FakeSink("x"), "twice"))  # type: ignore[arg-type]


@pytest.mark.parametrize("id", ["", "1st", "a b", "a/b", "x" * 65, None])
def test_an_id_that_is_no_plain_word_is_refused(id: Any) -> None:
    with pytest.raises(PlanError) as caught:
        Source(id, source().spec)
    assert caught.value.code == "LS0102"
