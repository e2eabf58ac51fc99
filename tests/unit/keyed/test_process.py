"""Process functions without Spark: state and its time to live, timers, side outputs, connected streams, errors."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lockstep as ls
from lockstep.errors import FunctionError, PlanError
from lockstep.keyed.tester import ProcessTester
from lockstep.plan.fingerprints import differences

DAY = datetime(2026, 3, 1, tzinfo=UTC)
Row = dict[str, Any]


def _at(seconds: float, user: str = "ann", **more: Any) -> Row:
    return {"user": user, "at": DAY + timedelta(seconds=seconds), **more}


class Burst(ls.Process):
    """Alert when a user fails three times within a minute."""

    fails = ls.list_state("timestamp")

    def on_record(self, record: Any, ctx: Any) -> None:
        recent = [t for t in self.fails if t > record.at - timedelta(minutes=1)] + [record.at]
        self.fails.set(recent)
        if len(recent) >= 3:
            ctx.emit(user=ctx.key.user, fails=len(recent))


def _burst(**options: Any) -> ProcessTester:
    return ProcessTester(
        Burst(), "user string, at timestamp", key="user", time="at", schema="user string, fails bigint", **options
    )


def test_the_example_of_the_readme_alerts_at_the_third_failure_within_a_minute() -> None:
    tester = _burst()
    assert tester.send(_at(0), _at(100), _at(0, "bob")) == []
    assert tester.send(_at(110), _at(50, "bob"), _at(59, "bob"), _at(130)) == [
        {"user": "bob", "fails": 3},
        {"user": "ann", "fails": 3},
    ]
    assert tester.state("bob") == {"fails": [DAY, DAY + timedelta(seconds=50), DAY + timedelta(seconds=59)]}
    assert tester.state("eve") == {}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["ann", "bob"])), max_size=30), st.integers(1, 10))
def test_ordered_results_do_not_depend_on_how_epochs_were_cut(records: list[tuple[int, str]], size: int) -> None:
    outcomes = []
    for cut in (size, 1000):
        tester = _burst(ordered=True)
        for start in range(0, len(records), cut):
            tester.send(*(_at(second, user) for second, user in records[start : start + cut]))
        assert tester.emitted == [], "nothing before its time"
        tester.move_watermark(DAY + timedelta(seconds=150))
        tester.move_watermark(DAY + timedelta(seconds=400))
        outcomes.append(sorted((row["user"], row["fails"]) for row in tester.emitted))
    expected = []
    for user in ("ann", "bob"):
        times = sorted(second for second, name in records if name == user)
        counts = [sum(other > at - 60 for other in times[: place + 1]) for place, at in enumerate(times)]
        expected += [(user, count) for count in counts if count >= 3]
    assert outcomes[0] == outcomes[1] == sorted(expected)


class Letters(ls.Process):
    """Says what comes, in the order in which it comes."""

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.emit(said=record.said)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("abc")), max_size=20), st.integers(1, 7))
def test_ordered_records_of_one_time_come_by_position_whatever_they_say(said: list[tuple[int, str]], size: int) -> None:
    tester = ProcessTester(Letters(), "said string, at timestamp", time="at", schema="said string", ordered=True)
    records = [{"said": letter, "at": DAY + timedelta(seconds=second)} for second, letter in said]
    for start in range(0, len(records), size):
        tester.send(*records[start : start + size])
    emitted = tester.move_watermark(DAY + timedelta(seconds=10))
    assert [row["said"] for row in emitted] == [letter for _, letter in sorted(said, key=lambda one: one[0])]


class Everything(ls.Process):
    """All kinds of state, driven by commands."""

    value = ls.value_state("bigint", ttl="10 seconds")
    items = ls.list_state("string", ttl="20 seconds")
    counts = ls.map_state("string", "bigint", ttl="15 seconds")
    total = ls.reducing_state("bigint", lambda a, b: a + b)
    kept = ls.value_state("bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        n = record.n
        match record.what:
            case "value":
                self.value.set(n)
            case "items":
                self.items.append(str(n))
            case "counts":
                self.counts[f"k{n % 3}"] = self.counts.get(f"k{n % 3}", 0) + n
            case "total":
                self.total.add(n)
            case "clear":
                for state in (self.value, self.items, self.counts, self.total):
                    state.clear()
        ctx.emit(
            value=self.value.get(),
            items=",".join(self.items),
            counts=",".join(f"{key}={count}" for key, count in sorted(self.counts.items())),
            total=self.total.get(0),
        )


STEP = st.tuples(
    st.sampled_from(["value", "items", "counts", "total", "clear"]),
    st.integers(-5, 5),
    st.integers(0, 12),
    st.sampled_from(["ann", "bob"]),
)


class _Reference:
    """State with a time to live, as a list of what was written and when."""

    def __init__(self) -> None:
        self.value: tuple[int, int] | None = None
        self.items: tuple[list[str], int] = ([], 0)
        self.counts: dict[str, tuple[int, int]] = {}
        self.total = 0

    def take(self, what: str, n: int, now: int) -> None:
        items, counts = self.seen_items(now), self.seen_counts(now)
        if what == "value":
            self.value = (n, now)
        elif what == "items":
            self.items = ([*items, str(n)], now)
        elif what == "counts":
            self.counts = {key: self.counts[key] for key in counts}
            self.counts[f"k{n % 3}"] = (counts.get(f"k{n % 3}", 0) + n, now)
        elif what == "total":
            self.total += n
        else:
            self.value, self.items, self.counts, self.total = None, ([], 0), {}, 0

    def seen_items(self, now: int) -> list[str]:
        return self.items[0] if now < self.items[1] + 20 else []

    def seen_counts(self, now: int) -> dict[str, int]:
        return {key: count for key, (count, at) in self.counts.items() if now < at + 15}

    def shown(self, now: int) -> Row:
        return {
            "value": self.value[0] if self.value and now < self.value[1] + 10 else None,
            "items": ",".join(self.seen_items(now)),
            "counts": ",".join(f"{key}={count}" for key, count in sorted(self.seen_counts(now).items())),
            "total": self.total,
        }


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_state_lives_as_long_as_it_says_and_is_cleaned_up_after(steps: list[tuple[str, int, int, str]]) -> None:
    tester = ProcessTester(
        Everything(),
        "user string, what string, n bigint",
        key="user",
        schema="value bigint, items string, counts string, total bigint",
    )
    reference, now = {"ann": _Reference(), "bob": _Reference()}, 0
    for what, n, passed, user in steps:
        tester.pass_time(f"{passed} seconds")
        now += passed
        (made,) = tester.send({"user": user, "what": what, "n": n})
        reference[user].take(what, n, now)
        assert made == reference[user].shown(now)
    tester.pass_time("1 minute")
    left = {key for key, one in reference.items() if one.total}
    for user in ("ann", "bob"):
        assert set(tester.state(user)) <= {"total"}
    kept = tester.keys()
    assert {key for (key,) in kept} >= left
    assert all(set(tester.state(*key)) == {"total"} for key in kept), "keys without state are forgotten"


class Reminders(ls.Process):
    """Sets timers as told."""

    def on_record(self, record: Any, ctx: Any) -> None:
        match record.what:
            case "event":
                ctx.set_timer(DAY + timedelta(seconds=record.n), "event")
            case "cancel":
                ctx.cancel_timer(DAY + timedelta(seconds=record.n), "event")
            case "epoch":
                ctx.set_epoch_timer(after=f"{record.n} seconds", tag="epoch")
        ctx.emit(what=record.what, at=ctx.time)

    def on_timer(self, timer: Any, ctx: Any) -> None:
        ctx.emit(what=f"{timer.tag} fired", at=timer.at)
        if timer.tag == "event" and timer.at == DAY + timedelta(seconds=10):
            ctx.set_timer(timer.at + timedelta(seconds=1), "again")


def _reminders(**options: Any) -> ProcessTester:
    return ProcessTester(
        Reminders(),
        "user string, what string, n bigint, at timestamp",
        key="user",
        time="at",
        schema="what string, at timestamp",
        **options,
    )


def _what(rows: list[Row]) -> list[tuple[str, float]]:
    return [(row["what"], (row["at"] - DAY).total_seconds()) for row in rows]


def test_timers_fire_in_order_when_their_clock_has_come_and_cancelled_ones_never() -> None:
    tester = _reminders()
    tester.send(*(_at(0, what="event", n=n) for n in (20, 10, 30)), _at(1, what="cancel", n=30))
    assert [timer.tag for timer in tester.timers("ann")] == ["event", "event"]
    assert tester.move_watermark(DAY + timedelta(seconds=9.999999)) == []
    assert _what(tester.move_watermark(DAY + timedelta(seconds=40))) == [
        ("event fired", 10),
        ("again fired", 11),
        ("event fired", 20),
    ]
    assert tester.timers("ann") == [] and tester.keys() == []


def test_a_timer_in_the_past_fires_at_once_after_the_record() -> None:
    tester = _reminders()
    tester.move_watermark(DAY + timedelta(seconds=100))
    assert _what(tester.send(_at(101, what="event", n=50), _at(102, what="other", n=0))) == [
        ("event", 101),
        ("other", 102),
        ("event fired", 50),
    ]


def test_epoch_timers_follow_epoch_time_and_fire_before_the_records_of_their_epoch() -> None:
    tester = _reminders(start=DAY)
    tester.send(_at(0, what="epoch", n=5))
    assert tester.pass_time("4 seconds") == []
    tester._epoch_time_us += 1_000_000
    assert _what(tester.send(_at(1, what="hello", n=0))) == [("epoch fired", 5), ("hello", 1)]


class Slow(ls.Process):
    """Sends what a broadcast limit calls slow aside."""

    limit = ls.broadcast_state("bigint")
    seen = ls.value_state("bigint")

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        self.limit.set(record.ms)

    def on_record(self, record: Any, ctx: Any) -> None:
        self.seen.set(self.seen.get(0) + 1)
        if record.ms > self.limit.get(100):
            ctx.emit_to("slow", user=record.user, ms=record.ms)
        else:
            ctx.emit(user=record.user, seen=self.seen.get())


def test_broadcast_records_are_seen_by_every_key_in_the_order_of_time() -> None:
    tester = ProcessTester(
        Slow(),
        "user string, ms bigint, at timestamp",
        key="user",
        time="at",
        broadcast="ms bigint, at timestamp",
        schema="user string, seen bigint",
        side_outputs={"slow": "user string, ms bigint"},
    )
    records = [_at(1, "ann", ms=50), _at(3, "ann", ms=50), _at(3, "bob", ms=50), _at(5, "bob", ms=5)]
    made = tester.epoch(records, broadcast=[{"ms": 20, "at": DAY + timedelta(seconds=2)}])
    assert made == [{"user": "ann", "seen": 1}, {"user": "bob", "seen": 2}]
    assert tester.aside == {"slow": [{"user": "ann", "ms": 50}, {"user": "bob", "ms": 50}]}
    assert tester.broadcast_state() == {"limit": 20}
    tester.send(_at(9, "eve", ms=21))
    assert tester.aside["slow"][-1] == {"user": "eve", "ms": 21}


class Pairs(ls.Process):
    """Joins two streams by hand."""

    waiting = ls.list_state("string")

    def on_left(self, record: Any, ctx: Any) -> None:
        self.waiting.append(record.item)

    def on_right(self, record: Any, ctx: Any) -> None:
        for item in self.waiting:
            ctx.emit(item=item, page=record.page)


def test_two_connected_streams_share_the_state_of_a_key_and_come_in_one_order() -> None:
    tester = ProcessTester(
        Pairs(),
        "user string, item string, at timestamp",
        other="user string, page string, at timestamp",
        key="user",
        time="at",
        schema="item string, page string",
    )
    left = [_at(1, item="a"), _at(3, item="b"), _at(1, "bob", item="c")]
    assert tester.epoch(left, other=[_at(2, page="x"), _at(4, page="y")]) == [
        {"item": "a", "page": "x"},
        {"item": "a", "page": "y"},
        {"item": "b", "page": "y"},
    ]


class Faulty(ls.Process):
    """Does wrong what it is told."""

    number = ls.value_state("bigint")
    tags = ls.map_state("string", "double")
    shared = ls.broadcast_state("bigint")

    def on_broadcast(self, record: Any, ctx: Any) -> None:
        told: dict[int, Callable[[], Any]] = {
            1: lambda: self.number.set(1),
            2: lambda: ctx.emit(user="ann", n=1),
            3: lambda: ctx.set_epoch_timer(after="1 second"),
        }
        told[record.n]()

    def on_record(self, record: Any, ctx: Any) -> None:
        {
            "raise": lambda: 1 // record.n,
            "column": lambda: record.usr,
            "part": lambda: ctx.key.usr,
            "state": lambda: self.number.set("three"),
            "true": lambda: self.number.set(True),
            "large": lambda: self.number.set(1 << 63),
            "map": lambda: self.tags.__setitem__("a", "b"),
            "missing": lambda: ctx.emit(user="ann"),
            "extra": lambda: ctx.emit(user="ann", n=1, m=2),
            "type": lambda: ctx.emit(user="ann", n="one"),
            "side": lambda: ctx.emit_to("nowhere", user="ann"),
            "timer": lambda: ctx.set_epoch_timer(5),
            "event": lambda: ctx.set_timer(DAY),
            "epoch": ctx.set_epoch_timer,
            "on_timer": lambda: ctx.set_epoch_timer(after="0 seconds"),
            "shared": lambda: self.shared.set(2),
        }[record.what]()


@pytest.mark.parametrize(
    ("what", "code", "says"),
    [
        ("raise", "LS0301", "ZeroDivisionError"),
        ("raise", "LS0301", "key: Key(user='ann')"),
        ("raise", "LS0301", "test_process.py:"),
        ("raise", "LS0301", "Record(user='ann', what='raise', n=0)"),
        ("column", "LS0301", "there are: user, what, n"),
        ("part", "LS0301", "there are: user"),
        ("state", "LS0313", 'state "number" holds bigint'),
        ("true", "LS0313", "True"),
        ("large", "LS0313", "9223372036854775808"),
        ("map", "LS0313", 'state "tags" holds double'),
        ("missing", "LS0302", "it lacks: n"),
        ("extra", "LS0302", "it does not know: m"),
        ("type", "LS0303", "'one'"),
        ("side", "LS0302", 'no side output "nowhere"'),
        ("timer", "LS0314", "which is a int"),
        ("event", "LS0314", "no event time"),
        ("epoch", "LS0314", "after="),
        ("on_timer", "LS0301", "no on_timer(self, timer, ctx)"),
        ("shared", "LS0315", '"shared"'),
    ],
)
def test_what_a_process_does_wrong_is_said_with_what_it_was_given(what: str, code: str, says: str) -> None:
    tester = ProcessTester(
        Faulty(),
        "user string, what string, n bigint",
        key="user",
        schema="user string, n bigint",
        broadcast="n bigint",
    )
    with pytest.raises(FunctionError) as caught:
        tester.send({"user": "ann", "what": what, "n": 0})
    assert caught.value.code == code, caught.value
    assert says in str(caught.value)


@pytest.mark.parametrize(("n", "says"), [(1, 'state "number"'), (2, "emit(...)"), (3, "set_epoch_timer(...)")])
def test_a_broadcast_record_can_only_write_broadcast_state(n: int, says: str) -> None:
    tester = ProcessTester(
        Faulty(), "user string, what string", key="user", schema="user string, n bigint", broadcast="n bigint"
    )
    with pytest.raises(FunctionError) as caught:
        tester.epoch(broadcast=[{"n": n}])
    assert caught.value.code == "LS0316" and says in caught.value.fact


def test_state_outside_of_a_turn_is_explained() -> None:
    with pytest.raises(FunctionError) as caught:
        Burst().fails.append(DAY)
    assert caught.value.code == "LS0316"


def _logins() -> Any:
    return ls.Job("job").source("logins", ls.journal("logins", schema="user string, at timestamp"))


class NoMethod(ls.Process):
    """Has nothing to do."""


class Generator(ls.Process):
    """Yields, which nobody reads."""

    def on_record(self, record: Any, ctx: Any) -> Any:
        yield record


class OneArgument(ls.Process):
    """Forgets the context."""

    def on_record(self, record: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Burst, "Burst()"),
        (len, "not a process function"),
        (NoMethod(), "has no on_record"),
        (Generator(), "ctx.emit"),
        (OneArgument(), "cannot be called"),
        (Slow(), "no broadcast stream"),
    ],
)
def test_what_is_no_process_function_is_refused_when_the_job_is_made(wrong: Any, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        _logins().key_by("user").process(wrong, schema="user string")
    assert caught.value.code == "LS0151" and says in str(caught.value)


def test_streams_that_cannot_be_connected_are_refused_with_the_way_out() -> None:
    logins = _logins()
    for other in (logins, logins.key_by("user", "at"), "rules"):
        with pytest.raises(PlanError) as caught:
            logins.key_by("user").connect(other)
        assert caught.value.code == "LS0152"
    with pytest.raises(PlanError) as caught:
        logins.connect(logins.broadcast()).process(Slow(), schema="user string")
    assert caught.value.code == "LS0153" and "seen" in caught.value.fact
    with pytest.raises(PlanError) as caught:
        logins.key_by("user").process(Burst(), schema="user string", ordered=True)
    assert caught.value.code == "LS0112"
    with pytest.raises(PlanError) as caught:
        ls.value_state("bigint", ttl="0 seconds")
    assert caught.value.code == "LS0151"
    with pytest.raises(PlanError) as caught:
        logins.side("late")
    assert caught.value.code == "LS0140"


class Changed(ls.Process):
    """Burst with another state."""

    fails = ls.list_state("string")
    count = ls.value_state("bigint")

    def on_record(self, record: Any, ctx: Any) -> None:
        pass


def test_other_states_are_named_when_a_checkpoint_is_compared_and_another_result_is_no_difference() -> None:
    def prints(process: ls.Process, schema: str) -> Any:
        job = ls.Job("job")
        logins = job.source("logins", ls.journal("logins", schema="user string, at timestamp"))
        logins.key_by("user").process(process, schema=schema, name="burst").to(ls.files("out"))
        return job.graph().fingerprint()

    old = prints(Burst(), "user string, fails bigint")
    assert differences(old, prints(Burst(), "user string, fails bigint, more string")) == []
    (said,) = differences(old, prints(Changed(), "user string"))
    assert "list of timestamp" in said and "list of string" in said and "value of bigint" in said


class Typed(ls.Process):
    """Burst's state and a few more, declared with Python's types."""

    fails = ls.list_state(datetime)
    names = ls.map_state(str, int)
    share = ls.reducing_state(float, max)

    def on_record(self, record: Any, ctx: Any) -> None:
        self.fails.append(record.at)
        self.names[record.user] = self.names.get(record.user, 0) + 1
        ctx.emit(user=ctx.key.user, share=self.share.add(1.0 / self.names[record.user]))


class TypedBySpark(Typed):
    """The same, declared with Spark's types."""

    fails = ls.list_state("timestamp")
    names = ls.map_state("string", "bigint")
    share = ls.reducing_state("double", max)


def test_a_state_declared_with_a_type_of_pythons_is_the_same_state() -> None:
    for process in (Typed(), TypedBySpark()):
        tester = ProcessTester(process, "user string, at timestamp", key="user", schema="user string, share double")
        assert [row["share"] for row in tester.send(_at(0), _at(1))] == [1.0, 1.0]
        assert tester.state("ann") == {"fails": [_at(0)["at"], _at(1)["at"]], "names": {"ann": 2}, "share": 1.0}
    described = [{name: state.describe() for name, state in one.states().items()} for one in (Typed, TypedBySpark)]
    assert described[0] == described[1]


@pytest.mark.parametrize("given", [list, dict, object, timedelta, Burst, list[str]])
def test_a_type_that_says_too_little_about_a_state_is_refused(given: Any) -> None:
    with pytest.raises(PlanError) as caught:
        ls.value_state(given)
    assert caught.value.code == "LS0105" and "str, bool, float, bytes, datetime, date, int" in caught.value.why
