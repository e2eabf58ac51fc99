"""Windows, triggers and what is computed, as a user writes them: which step comes of it, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.api.stream import Stream
from lockstep.errors import LockstepError
from lockstep.plan.draw import words
from lockstep.plan.encode import canonical, step_json
from lockstep.plan.steps import Aggregate, Step
from lockstep.plan.triggers import Firing, Trigger
from lockstep.plan.windowed import WindowStep
from lockstep.plan.windows import Count, Session, Sliding, Tumbling

SECOND = 1_000_000


class Weeks(ls.WindowAssigner):
    def assign(self, record: Any) -> list[Any]:
        return []


class Sizes(ls.WindowFunction):
    def process(self, records: list[Any], window: Any) -> dict[str, Any]:
        return {"size": len(records)}


def hits(*, timed: bool = True) -> Stream:
    source = ls.Job("windows").source("hits", ls.journal("hits", schema="page string, ms bigint, at timestamp"))
    return source.event_time("at", out_of_order="5 seconds") if timed else source


def step_of(stream: Stream) -> Step:
    return stream._step


def general(stream: Stream) -> WindowStep:
    step = step_of(stream)
    assert isinstance(step, WindowStep)
    return step


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (ls.tumbling("10 s"), Tumbling(10 * SECOND)),
        (ls.tumbling("1 hour", offset="15 minutes"), Tumbling(3600 * SECOND, 900 * SECOND)),
        (ls.tumbling("1 hour", offset=timedelta(minutes=-15)), Tumbling(3600 * SECOND, 2700 * SECOND)),
        (ls.tumbling("1 hour", offset="61 minutes"), Tumbling(3600 * SECOND, 60 * SECOND)),
        (ls.sliding("1 min", every="20 s", offset="25 s"), Sliding(60 * SECOND, 20 * SECOND, 5 * SECOND)),
        (ls.session("5 s", time="processing"), Session(5 * SECOND, "processing")),
        (ls.count(10), Count(10, 10)),
        (ls.count(10, every=2), Count(10, 2)),
        (ls.tumbling(count=10), Count(10, 10)),
        (ls.sliding(count=10, every=2), Count(10, 2)),
    ],
)
def test_windows_as_written_are_windows_of_the_plan(made: object, wanted: object) -> None:
    assert made == wanted


def test_what_spark_can_do_is_left_to_spark_and_everything_else_to_the_window_step() -> None:
    keyed = hits().key_by("page")
    native = [
        keyed.window(ls.tumbling("1 min")).agg(n=F.count("*")),
        keyed.window(ls.session("1 min")).count(),
        hits().window(ls.sliding("1 min", every="10 s")).trigger(ls.at_watermark()).agg(n=F.sum("ms")),
        keyed.window(ls.tumbling("1 min")).updates().agg(n=F.count("*")),
    ]
    assert [type(step_of(stream)) for stream in native] == [Aggregate] * 4
    assert [step_of(stream).output_mode for stream in native] == ["append", "append", "append", "update"]
    own = [
        keyed.window(ls.tumbling("1 min", time="processing")).count(),
        keyed.window(ls.session("1 min")).updates().count(),
        keyed.window(ls.tumbling("1 min")).allowed_lateness("1 s").count(),
        keyed.window(ls.tumbling("1 min")).late_to_side().count(),
        keyed.window(ls.tumbling("1 min")).trigger(ls.at_watermark(), purge=True).count(),
        keyed.window(ls.count(5)).count(),
        keyed.window(Weeks()).count(),
        keyed.window(ls.tumbling("1 min")).agg(pages=F.collect_list("page"), n=F.count_distinct("ms")),
    ]
    assert [type(step_of(stream)) for stream in own] == [WindowStep] * 8
    assert {step_of(stream).output_mode for stream in own} == {None}
    assert [general(stream).calls_user_code for stream in own] == [False] * 6 + [True, False]


def test_triggers_as_written_are_triggers_of_the_plan() -> None:
    def made(trigger: Any, **options: Any) -> Trigger:
        windowed = hits().window(ls.tumbling("1 min")).allowed_lateness("1 min").trigger(trigger, **options)
        return general(windowed.count()).trigger

    ten_s = Firing(every_us=10 * SECOND)
    assert made(ls.at_watermark()) == Trigger()
    assert made(ls.every("10 s")) == Trigger(early=ten_s, late=ten_s)
    assert made(ls.on_count(3), purge=True) == Trigger(
        at_end=False, early=Firing(count=3), late=Firing(count=3), purge=True
    )
    assert made(ls.at_watermark(early=ls.every("10 s"), late=ls.on_count(1))) == Trigger(
        early=ten_s, late=Firing(count=1)
    )
    assert made(ls.at_watermark(early=ls.early(every="10 s", count=5), late=ls.late(count=2))) == Trigger(
        early=Firing(every_us=10 * SECOND, count=5), late=Firing(count=2)
    )
    assert made(ls.early(count=5)) == Trigger(early=Firing(count=5))
    assert made(ls.late(count=5)) == Trigger(late=Firing(count=5))


def test_columns_are_keys_window_and_values() -> None:
    keyed = hits().key_by("page", day="date(at)")
    window = ls.session("1 min")
    bounds = ("window_start", "window_end")
    assert keyed.window(window).reduce(lambda a, b: a).columns == ("page", "day", *bounds, "ms", "at")
    folded = keyed.window(window).fold(0, lambda total, hit: total, schema="total bigint")
    assert folded.columns == ("page", "day", *bounds, "total")
    assert hits().window(window).process(Sizes(), schema="size int").columns == (*bounds, "size")
    counted = hits(timed=False).window(ls.count(3)).count()
    assert counted.columns == (*bounds, "count")
    aside = keyed.window(window).late_to_side().count()
    assert aside.side("late").columns == ("page", "ms", "at")
    step = general(aside)
    assert [name for name, _ in step.computed(0)] == ["__key_day"]
    assert step.key_places() == (0, 3)


def test_the_plan_tells_a_window_in_words_and_in_data() -> None:
    step = general(
        hits()
        .key_by("page")
        .window(ls.tumbling("1 day", offset="22 hours"))
        .trigger(ls.at_watermark(early=ls.every("10 seconds"), late=ls.on_count(1)), purge=True)
        .allowed_lateness("1 minute")
        .late_to_side()
        .agg(slowest=F.max("ms"))
    )
    assert words(step) == (
        "window by page, tumbling 1 day from 22 hours; at the watermark, early every 10 seconds, late on 1 record, "
        "purging; allowed lateness 1 minute; late records aside: slowest = max(ms)"
    )
    data = step_json(step)
    assert data["window"] == {"kind": "tumbling", "size_us": 86_400 * SECOND, "offset_us": 79_200 * SECOND}
    assert data["allowed_lateness_us"] == 60 * SECOND
    assert '"purge":true' in canonical(data)


def test_what_gives_the_state_its_meaning_is_in_the_data() -> None:
    keyed = hits().key_by("page")
    minute = keyed.window(ls.tumbling("1 min"))
    steps = [
        minute.reduce(lambda a, b: a),
        minute.allowed_lateness("1 s").reduce(lambda a, b: a),
        keyed.window(ls.session("1 min")).reduce(lambda a, b: a),
        minute.fold(0, lambda a, b: a, schema="n int"),
        minute.fold(1, lambda a, b: a, schema="n int"),
        minute.trigger(ls.on_count(2)).count(),
        minute.trigger(ls.on_count(3)).count(),
        minute.late_to_side().agg(n=F.sum("ms")),
        minute.late_to_side().agg(n=F.max("ms")),
    ]
    told = [canonical({**step_json(step_of(stream)), "id": "", "columns": []}) for stream in steps]
    assert len(set(told)) == len(told)


def _refusals() -> list[tuple[str, str, Callable[[], object]]]:
    keyed, plain = hits().key_by("page"), hits(timed=False)
    minute = keyed.window(ls.tumbling("1 min"))
    return [
        ("LS0114", "no length", lambda: ls.tumbling("0 seconds")),
        ("LS0114", "no length", lambda: ls.session(timedelta(seconds=-1))),
        ("LS0114", "leave gaps", lambda: ls.sliding("1 min", every="2 min")),
        ("LS0114", "leave gaps", lambda: ls.count(5, every=6)),
        ("LS0114", "count window is 0", lambda: ls.count(0)),
        ("LS0114", "count window is 2.5", lambda: ls.count(2.5)),  # type: ignore[arg-type]
        ("LS0114", "no size", ls.tumbling),  # type: ignore[list-item]
        ("LS0114", "not a window", lambda: keyed.window(object())),  # type: ignore[arg-type]
        ("LS0165", "Weeks()", lambda: keyed.window(Weeks)),  # type: ignore[arg-type]
        ("LS0165", "'tomorrow'", lambda: ls.tumbling("1 min", time="tomorrow")),  # type: ignore[call-overload]
        ("LS0165", "'ingestion'", lambda: ls.tumbling("1 min", time="ingestion")),  # type: ignore[call-overload]
        ("LS0162", "count=", lambda: ls.tumbling("1 min", count=5)),  # type: ignore[call-overload]
        ("LS0161", "negative", lambda: minute.allowed_lateness(timedelta(seconds=-1)).count()),
        ("LS0160", "never", lambda: keyed.window(ls.global_()).count()),
        ("LS0160", "never", lambda: keyed.window(ls.global_()).trigger(ls.at_watermark(late=ls.on_count(1))).count()),
        ("LS0160", "on 0 records", lambda: ls.on_count(0)),
        ("LS0160", "0 microseconds", lambda: ls.every("0 s")),
        ("LS0160", "neither", ls.early),
        ("LS0160", "allowed_lateness", lambda: minute.trigger(ls.late(count=1)).count()),
        ("LS0162", "none is ever late", lambda: keyed.window(ls.count(5)).allowed_lateness("1 s").count()),
        (
            "LS0162",
            "none is ever late",
            lambda: keyed.window(ls.tumbling("1 s", time="processing")).late_to_side().count(),
        ),
        ("LS0162", "when it is full", lambda: keyed.window(ls.count(5)).trigger(ls.on_count(2)).count()),
        ("LS0162", "when it is full", lambda: keyed.window(ls.count(5)).updates()),
        ("LS0163", "two arguments", lambda: minute.reduce(lambda a: a)),  # type: ignore[arg-type,misc]
        ("LS0163", "not a function", lambda: minute.process(Sizes, schema="size int")),  # type: ignore[arg-type]
        ("LS0163", "not a function", lambda: minute.fold(0, 0, schema="n int")),  # type: ignore[arg-type]
        ("LS0131", "schema=", lambda: minute.fold(0, lambda a, b: a)),
        ("LS0132", "page", lambda: minute.process(Sizes(), schema="page int")),
        ("LS0164", ".updates()", lambda: minute.updates().trigger(ls.on_count(1))),
        ("LS0164", ".updates()", lambda: minute.trigger(ls.on_count(1)).updates()),
        ("LS0165", "not a trigger", lambda: minute.trigger("10 s")),  # type: ignore[arg-type]
        ("LS0165", "early=", lambda: ls.at_watermark(early=ls.late(count=1))),
        ("LS0112", 'time="processing"', lambda: plain.window(ls.tumbling("1 min")).reduce(lambda a, b: a)),
        ("LS0112", "event_time", lambda: plain.window(ls.global_()).trigger(ls.every("1 s", time="event")).count()),
        ("LS0112", "event_time", lambda: plain.window(ls.session("1 min")).count()),
        ("LS0107", "millis", lambda: minute.late_to_side().agg(n=F.max("millis"))),
        ("LS0170", "each on its own", lambda: minute.late_to_side().agg(n=F.max("ms") + 1)),
        ("LS0205", "order", lambda: minute.agg(n=F.percentile_approx("ms", 0.5))),
        ("LS0140", "comes right after", lambda: hits().side("late")),
        ("LS0140", "it has: none", lambda: minute.reduce(lambda a, b: a).side("late")),
    ]


@pytest.mark.parametrize(
    ("code", "said", "make"), _refusals(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_what_cannot_be_is_refused_with_what_to_write(code: str, said: str, make: Callable[[], object]) -> None:
    with pytest.raises(LockstepError) as caught:
        make()
    assert (caught.value.code, said in str(caught.value)) == (code, True), str(caught.value)
