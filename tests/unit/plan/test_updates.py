"""Results that replace each other: what would be wrong is refused, with the reason; what is right is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import PlanError
from lockstep.plan.kinds import kind_of

SCHEMA = "user string, city string, ms bigint, at timestamp"
Made = Callable[[ls.Job, Any], Any]


def _refusal(made: Made, sink: Any) -> str:
    """The code that a job is refused with, empty if it is not."""
    job = ls.Job("updates")
    events = job.source("a", ls.journal("a", schema=SCHEMA)).event_time("at")
    made(job, events).to(sink)
    try:
        job.graph()
    except PlanError as error:
        return error.code
    return ""


def _keyed(*key: str) -> Any:
    return ls.sqlite("out.db", table="t", key=key)


def _sql(text: str) -> Made:
    return lambda job, _: job.sql(text)


def _has_changes(query: str, sink: Any) -> bool:
    """Whether some rows of a query's job are taken back when they hold no longer."""
    job = ls.Job("updates")
    job.source("a", ls.journal("a", schema=SCHEMA)).event_time("at")
    job.sql(query).to(sink)
    return any(kind_of(step).name == "changes" for step in job.graph().steps)


COUNTS = "select user, city, count(*) n, sum(ms) total, max(ms) slowest, avg(ms) mean from a group by user, city"
LAST = "select user, city, max(struct(ms, user)) m from a group by user, city"
MINUTES = "select user, city, count(*) n from a group by user, city, window(at, '1 minute')"


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        (f"select city, sum(n) from ({COUNTS}) group by city", True),
        (f"select city, count(*) from ({COUNTS}) group by city", True),
        (f"select n, collect_set(user) from ({COUNTS}) group by n", True),
        (f"select city, max(total) from ({COUNTS}) group by city", True),
        (f"select town, sum(m) from (select upper(city) town, n * 2 m from ({COUNTS})) group by town", True),
        # Old totals add nothing here that the newest do not.
        (f"select city, max(n) from ({COUNTS}) group by city", False),
        (f"select city, max(N) from ({COUNTS}) group by city", False),
        (f"select city, min(-slowest) from ({COUNTS}) group by city", True),
        (f"select city, max(-n) from ({COUNTS}) group by city", True),
        (f"select city, max(100 - n) from ({COUNTS}) group by city", True),
        (f"select city, max(m.user) from ({LAST}) group by city", True),
        (f"select city, collect_set(upper(user)) from ({COUNTS}) group by city", False),
        (f"select city, collect_set(if(user = 'n total', 1, 2)) from ({COUNTS}) group by city", False),
        (f"select city, collect_set(user) from ({COUNTS}) group by city", False),
        # Final results are records.
        (f"select city, sum(n) from ({MINUTES}) group by city", False),
        (f"select city, sum(n) from ({MINUTES}) where n > 3 group by city", False),
    ],
)
def test_a_query_of_a_query_counts_the_rows_that_hold(query: str, changes: bool) -> None:
    assert _has_changes(query, ls.files("out")) == changes


def test_a_query_is_refused_where_nothing_says_which_row_is_taken_back() -> None:
    seen = f"select city, max(seen) from (select city, epoch_time() seen, user from ({COUNTS})) group by city"
    assert _refusal(_sql(seen), ls.files("out")) == "LS0126"
    twice = f"select city, sum(n) from ({COUNTS} union all {COUNTS}) group by city"
    assert _has_changes(twice, ls.files("out"))
    first = f"select city, first(n) from ({COUNTS}) group by city"
    assert _refusal(_sql(first), ls.files("out")) == "LS0128"


@pytest.mark.parametrize(
    ("query", "changes"),
    [
        (f"select * from ({COUNTS}) where mean > 5", True),
        (f"select * from ({COUNTS}) where n < 5", True),
        (f"select * from ({COUNTS}) where n > 5 or total > 3", True),
        (f"select * from ({COUNTS}) where 5 > n", True),
        (f"select * from ({COUNTS}) where total is not null", True),
        (f"select * from ({COUNTS}) where case when user = 'a' and n > 5 then false else true end", True),
        (f"select * from ({COUNTS}) where city = 'Rome' and concat(city, 'it\\'s') = 'x' and mean > 5", True),
        ("select user, city, sum(ms) as s from a group by user, city having s > 100 and city = 'Rome'", True),
        # What passed once passes for ever.
        (f"select * from ({COUNTS}) where n >= 5 and slowest > 7 and user <> 'root'", False),
        (f"select * from ({COUNTS}) where city in ('Rome', 'Bonn')", False),
        (f"select * from ({COUNTS}) where city = 'total' and user <> 'n'", False),
        (f"select * from ({COUNTS}) where 5 <= n and 7.5 < slowest", False),
        (f"select * from ({COUNTS}) where n is not null and slowest is not null", False),
        (f"select user, city, mean > 5 as is_slow from ({COUNTS})", False),
        (f"select * from ({MINUTES}) where n < 5", False),
    ],
)
def test_a_keyed_sink_is_told_what_no_longer_passes(query: str, changes: bool) -> None:
    assert _has_changes(query, _keyed("user", "city")) == changes
    # A sink without a key takes every result, and says so.
    assert not _has_changes(query, ls.files("out"))


@pytest.mark.parametrize(
    ("sink", "says"),
    [
        (_keyed("user"), "told apart by city, user; the key is: user"),
        (ls.delta("out", key=("user", "city")), "cannot delete a row yet"),
    ],
)
def test_a_row_is_taken_back_only_where_the_sink_finds_it(sink: Any, says: str) -> None:
    job = ls.Job("updates")
    job.source("a", ls.journal("a", schema=SCHEMA))
    job.sql(f"select * from ({COUNTS}) where mean > 5").to(sink)
    with pytest.raises(PlanError, match=says) as caught:
        job.graph()
    assert caught.value.code == "LS0127"


def test_a_row_does_not_leave_the_window_of_the_one_it_replaces() -> None:
    def windows(of: str) -> Made:
        return lambda _, events: (
            _by_user(events.with_columns(day=F.date_trunc("day", "at")), "day")
            .agg(last=F.max("at"))
            .event_time(of)
            .window(ls.tumbling("1 hour"))
            .agg(newest=F.max("last"))
        )

    # The latest time of a user moves on from hour to hour, and its older values stay in theirs.
    assert _refusal(windows("last"), ls.files("out")) == "LS0126"
    assert _refusal(windows("day"), ls.files("out")) == ""


def _by_user(events: Any, *more: str) -> Any:
    return events.key_by("user", *more)


def _tags(job: ls.Job) -> Any:
    return job.source("tags", ls.journal("tags", schema="user string, tag string, tagged timestamp")).event_time(
        "tagged"
    )


def _near(events: Any, tags: Any) -> Any:
    return events.join(tags, on="user", between=("-1 second", "1 second"))


@pytest.mark.parametrize(
    ("made", "code"),
    [
        (lambda _, events: _by_user(events).agg(n=F.sum("ms")).filter(F.col("n") > 5), "LS0127"),
        (lambda _, events: _by_user(events).max_by("ms").filter(F.col("city") == "Rome"), "LS0127"),
        (lambda job, events: _near(_by_user(events).max_by("ms"), _tags(job)), "LS0126"),
        (lambda job, events: _near(_by_user(events).max_by("ms").as_events(), _tags(job)), ""),
        (lambda _, events: _by_user(events).max_by("ms").distinct("user", within="1 m"), "LS0126"),
        (lambda job, events: _near(events, _tags(job)), ""),
        (lambda _, events: _by_user(events).agg(n=F.count("*")).filter(F.col("n") > 5), ""),
        # A result after each record is a record: the first visit of a user stays the first.
        (lambda _, events: _by_user(events).count(as_="n", per_record=True).filter("n = 1"), ""),
        (lambda _, events: events.filter("ms > 5"), ""),
        (lambda _, events: _by_user(events).agg(n=F.count("*")).filter(F.lit(5) < F.col("n")), ""),
        (lambda _, events: _by_user(events).agg(n=F.count("*")).filter(F.lit(5) > F.col("n")), "LS0127"),
        (lambda _, events: _by_user(events).agg(n=F.max("ms")).filter(F.col("n").isNotNull()), ""),
        (lambda _, events: _by_user(events).agg(n=F.max("ms")).filter(F.isnotnull("n")), ""),
        (lambda _, events: _by_user(events).agg(n=F.max("ms")).filter(F.col("n").isNull()), "LS0127"),
        (lambda _, events: _by_user(events).agg(cities=F.collect_set("city")).explode("cities", as_="city"), "LS0127"),
        (lambda _, events: _by_user(events).window(ls.tumbling("1 m")).agg(n=F.count("*")).filter("n < 5"), ""),
        (
            lambda _, events: (
                _by_user(events).window(ls.session("1 m")).allowed_lateness("1 m").agg(n=F.sum("ms")).filter("n > 5")
            ),
            "LS0127",
        ),
    ],
)
def test_the_methods_are_checked_like_the_queries(made: Made, code: str) -> None:
    assert _refusal(made, _keyed("user")) == code


def _counts(events: Any) -> Any:
    return _by_user(events, "city").agg(n=F.count("*"))


def _ever(stream: Any) -> Any:
    return stream.window(ls.global_()).updates()


@pytest.mark.parametrize(
    ("made", "code"),
    [
        # Ten updates of one count would be ten records, and have the first ten ranks.
        (lambda _, events: _ever(_by_user(_counts(events))).top(3, by="n"), "LS0126"),
        (lambda _, events: _ever(_by_user(_counts(events))).top(3, by="city"), "LS0126"),
        (lambda _, events: _ever(_by_user(events)).top(3, by="ms"), ""),
        (lambda _, events: _by_user(events, "city").agg(mean=F.avg("ms")).key_by("user").max_by("mean"), "LS0126"),
        (lambda _, events: _by_user(_counts(events)).max_by("n"), ""),
        (lambda _, events: _by_user(_counts(events)).max_by("n", per_record=True), ""),
        (lambda _, events: _by_user(_counts(events)).min_by("n"), "LS0126"),
        (lambda _, events: _by_user(_counts(events)).max_by(-F.col("n")), "LS0126"),
        (lambda _, events: _by_user(events, "city").agg(n=F.min("ms")).key_by("user").min_by("n"), ""),
        # Of equal counts the first stays, and the other columns are those of a row that was replaced.
        (
            lambda _, events: (
                _by_user(events, "city").agg(n=F.count("ms"), last=F.max("at")).key_by("user").max_by("n")
            ),
            "LS0126",
        ),
        (lambda _, events: _by_user(_counts(events)).max_by("city"), "LS0126"),
        (lambda _, events: _by_user(_counts(events)).agg(m=F.max(-F.col("n"))), "LS0126"),
        (lambda _, events: _by_user(_counts(events)).agg(m="max(100 - n)"), "LS0126"),
        (lambda _, events: _by_user(_counts(events)).agg(m="max(n)"), ""),
        (
            lambda _, events: (
                _by_user(events)
                .agg(cities=F.collect_set("city"))
                .explode("cities", as_="city")
                .key_by("city")
                .agg(n=F.count("*"))
            ),
            "LS0126",
        ),
        (
            lambda _, events: (
                _by_user(events).max_by("ms").with_columns(seen=ls.epoch_time()).key_by("user").agg(n=F.max("seen"))
            ),
            "LS0126",
        ),
    ],
)
def test_a_row_that_was_replaced_has_no_rank_and_is_no_extreme(made: Made, code: str) -> None:
    assert _refusal(made, ls.files("out")) == code


def test_a_round_of_a_loop_is_final() -> None:
    def body(shares: Any) -> tuple[Any, Any]:
        received = shares.key_by("user", "round").agg(ms=F.sum("ms")).select("user", "ms", "round")
        return received.filter("ms > 1"), received

    def made(_: ls.Job, events: Any) -> Any:
        return events.select("user", "ms").iterate(body, rounds=9).key_by("user").agg(total=F.sum("ms"))

    assert _refusal(made, _keyed("user")) == ""


def test_the_refusal_says_why_and_what_to_write_instead() -> None:
    job = ls.Job("updates")
    events = job.source("a", ls.journal("a", schema=SCHEMA))
    _counts(events).key_by("city").agg(n=F.sum("n")).to(ls.files("out"))
    with pytest.raises(PlanError, match="which replace each other") as caught:
        job.graph()
    assert ".latest() before it" in str(caught.value) and ".as_events() means" in str(caught.value)
