"""Queries in SQL become the steps that the methods of the same meaning make."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lockstep as ls
from lockstep import F
from lockstep.errors import LockstepError
from lockstep.plan.draw import words
from lockstep.plan.expression import Sql
from lockstep.plan.steps import Select, Step

LOGINS = (
    "user string, ok boolean, ms bigint, price double, tags array<string>, address struct<city:string>, at timestamp"
)


def _job() -> ls.Job:
    job = ls.Job("queries")
    job.source("logins", ls.journal("logins", schema=LOGINS)).event_time("at", out_of_order="5 seconds", name="timed")
    job.source("clicks", ls.journal("clicks", schema="user string, page string, at timestamp")).event_time("at")
    return job


def _made(query: str) -> list[str]:
    """The steps that a query makes, as `lockstep plan` writes them."""
    job = _job()
    known = len(job._registry.steps)
    job.sql(query)
    return [words(step) for step in job._registry.steps[known:]]


def _columns(query: str) -> tuple[str, ...]:
    return _job().sql(query).columns


def test_where_is_a_filter_and_group_by_a_rolling_aggregation() -> None:
    assert _made("select user, count(*) as n from logins where not ok group by user") == [
        "filter NOT `ok`",
        "aggregate by user: n = count(*)",
    ]


def test_a_query_makes_the_steps_that_the_methods_make() -> None:
    by_sql, by_hand = _job(), _job()
    by_sql.sql("select user, max(ms) as slowest from logins where ms > 5 group by user having slowest > 9")
    timed = ls.Stream(by_hand._registry, by_hand._registry.steps[1])
    timed.filter(Sql("`ms` > 5")).key_by("user").agg(slowest=F.max("ms")).filter(Sql("`slowest` > 9"))
    assert [words(step) for step in by_sql._registry.steps] == [words(step) for step in by_hand._registry.steps]


def test_select_star_alone_is_the_stream_itself() -> None:
    job = _job()
    assert job.sql("select * from logins")._step is job._registry.steps[1]


def test_a_source_goes_by_its_name_and_carries_its_event_time() -> None:
    assert _made("select count(*) as n from logins group by window(at, '1 minute')") == [
        "aggregate, tumbling 1 minute: n = count(*)",
        "select n",
    ]


def test_streams_go_by_the_name_of_their_last_step_or_by_the_name_they_are_passed_by() -> None:
    job = _job()
    failed = job.sql("select user, ms from logins where not ok", name="failed")
    assert failed._step.id == "failed"
    assert job.sql("select ms from failed").columns == ("ms",)
    assert job.sql("select page from LOGINS", logins=job.sql("select page from clicks")).columns == ("page",)


def test_a_name_is_given_to_a_query_that_changes_nothing_too() -> None:
    job = _job()
    assert job.sql("select * from logins", name="everyone")._step.id == "everyone"


def test_names_are_found_without_regard_to_case_with_tables_and_inside_structs() -> None:
    assert _made("SELECT L.USER AS who, l.Address.city FROM Logins AS l WHERE address.city = 'Rome'") == [
        "filter `address`.`city` = 'Rome'",
        "select who = user, city = `address`.`city`",
    ]


def test_columns_without_a_name_are_called_by_their_function_or_number() -> None:
    assert _columns("select user, count(*), sum(ms), sum(price) from logins group by user") == (
        *("user", "count", "sum", "sum_2"),
    )
    assert _columns("select ms + 1, upper(user) from logins") == ("column_1", "upper")


def test_stars_stand_for_all_columns() -> None:
    assert _columns("select c.*, upper(page) as loud from clicks c") == ("user", "page", "at", "loud")


@pytest.mark.parametrize("group", ["user", "1", "who", "lower(user), 1"])
def test_group_by_takes_columns_numbers_aliases_and_expressions(group: str) -> None:
    made = _made(
        f"select lower(user) as who, count(*) as n from logins group by {group}".replace("by user", "by lower(user)")
    )
    assert made == ["aggregate by who = lower(`user`): n = count(*)"]


def test_a_column_comes_before_an_alias_in_group_by() -> None:
    made = _made("select count(*) as n, max(ms) as user from logins group by user")
    assert made == ["aggregate by user: n = count(*), user_2 = max(ms)", "select n, user = user_2"]


def test_expressions_over_aggregates_are_computed_after_them_and_each_aggregate_once() -> None:
    assert _made("select user, sum(ms) / count(*) as mean, sum(MS) as total from logins group by user") == [
        "aggregate by user: total = sum(ms), count = count(*)",
        "select user, mean = `total` / `count`, total",
    ]


def test_having_sees_keys_aliases_and_aggregates_of_its_own() -> None:
    made = _made(
        "select user, max(ms) - min(ms) as spread from logins group by user having spread * 2 > 9 and count(*) > 3"
    )
    assert made == [
        "aggregate by user: max = max(ms), min = min(ms), count = count(*)",
        "filter (`max` - `min`) * 2 > 9 AND `count` > 3",
        "select user, spread = `max` - `min`",
    ]


def test_a_filtered_aggregate_passes_over_the_other_records() -> None:
    made = _made(
        "select user, count(*) filter (where ok) good, sum(ms) filter (where not ok) bad from logins group by user"
    )
    assert made == [
        "aggregate by user: good = count(CASE WHEN `ok` THEN 1 END), bad = sum(CASE WHEN NOT `ok` THEN `ms` END)"
    ]


def test_aggregates_without_group_by_have_one_key_for_everything() -> None:
    assert _made("select count(*) as n from logins") == ["aggregate by everything = 1: n = count(*)", "select n"]


def test_group_by_without_aggregates_gives_the_keys() -> None:
    assert _made("select user from logins group by user")[-1] == "select user"


@pytest.mark.parametrize(
    ("window", "drawn"),
    [
        ("window(at, '1 minute')", "tumbling 1 minute"),
        ("window(at, '1 minute', '10 seconds')", "sliding 1 minute every 10 seconds"),
        ("window(at, '1 minute', '60 seconds')", "tumbling 1 minute"),
        ("tumble(at, interval '90' second)", "tumbling 90 seconds"),
        ("tumble(at, interval 1 minute 30 seconds)", "tumbling 90 seconds"),
        ("hop(at, interval '10' second, interval '1' minute)", "sliding 1 minute every 10 seconds"),
        ("session(at, interval 5 minutes)", "session with a gap of 5 minutes"),
        ("session_window(at, '5 minutes')", "session with a gap of 5 minutes"),
    ],
)
def test_windows_in_group_by_are_windows_of_event_time(window: str, drawn: str) -> None:
    (made, _) = _made(f"select user, window_start, count(*) as n from logins group by user, {window}")
    assert made.startswith(f"aggregate by user, {drawn}")


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("window_start", "window_end"),
        ("window.start", "window.end"),
        ("tumble_start(at, interval 1 minute)", "tumble_end(at, interval 1 minute)"),
        ("window(at, '1 minute').start", "window(at, '1 minute').end"),
    ],
)
def test_the_bounds_of_a_window_can_be_written_in_many_ways(start: str, end: str) -> None:
    made = _made(f"select {start} as a, {end} as b, count(*) as n from logins group by tumble(at, interval 1 minute)")
    assert made[0] == "aggregate, tumbling 1 minute: n = count(*)"
    assert made[1] in (
        "select a = window_start, b = window_end, n",
        "select a = named_struct('start', `window_start`, 'end', `window_end`).start, "
        "b = named_struct('start', `window_start`, 'end', `window_end`).end, n",
    )


def test_the_event_time_may_have_another_name_by_then() -> None:
    made = _made("select count(*) n from (select at as happened from logins) group by window(happened, '1 minute')")
    assert made[1] == "aggregate, tumbling 1 minute: n = count(*)"


def test_union_all_matches_columns_by_their_order() -> None:
    assert _made("select user, page from clicks union all select 'none', user from logins") == [
        "select user, page",
        "select column_1 = 'none', user",
        "select user = column_1, page = user",
        "union of select, select_3",
    ]


def test_queries_in_from_and_in_with_are_streams() -> None:
    made = _made(
        """
        with failed as (select * from logins where not ok),
             counted(who, n) as (select user, count(*) from failed group by user)
        select * from (select who, n * 2 as twice from counted) where twice > 10
        """
    )
    assert made == [
        "filter NOT `ok`",
        "aggregate by user: count = count(*)",
        "select who = user, n = count",
        "select who, twice = `n` * 2",
        "filter `twice` > 10",
    ]


def test_a_query_of_with_hides_a_stream_of_the_same_name() -> None:
    assert _columns("with Clicks as (select ms from logins) select * from clicks") == ("ms",)


def test_expressions_are_left_to_spark_word_for_word() -> None:
    (made,) = _made(
        r"""select case when ms > 5 then 'it''s' else '\\d' end as a, cast(ms as decimal(10, 2)) as b, tags[0] as c,
        Transform(tags, x -> concat(x, user)) as d, timestampadd(HOUR, 1, at) as e, extract(year from at) as f,
        user rlike '\\w+' as g, ms <=> 3 as h, -- a comment
        if(ok, 1, 2) as i from logins"""
    )
    assert made == (
        r"select a = CASE WHEN `ms` > 5 THEN 'it''s' ELSE '\\d' END, b = CAST(`ms` AS DECIMAL(10, 2)), c = `tags`[0], "
        r"d = TRANSFORM(`tags`, x -> concat(x, `user`)), e = timestampadd(HOUR, 1, `at`), f = EXTRACT(YEAR FROM `at`), "
        r"g = `user` RLIKE '\\w+', h = `ms` IS NOT DISTINCT FROM 3, i = IF(`ok`, 1, 2)"
    )


def test_the_epoch_time_is_a_column_that_comes_and_goes() -> None:
    assert _made("select user from logins where at > epoch_time()") == [
        "with epoch_time = epoch_time()",
        "filter `at` > `epoch_time`",
        "select user",
    ]
    assert _made("select user, max(epoch_time()) as seen from logins group by user")[1] == (
        "aggregate by user: seen = max(epoch_time)"
    )


def test_an_interval_join_takes_keys_and_bounds_from_on() -> None:
    made = _made(
        """select l.user, page, c.at as clicked from logins l join clicks c
        on c.user = l.user and c.at between l.at - interval 5 minutes and l.at + interval 1 hour
        and l.ms > length(page)"""
    )
    assert made == [
        "select c_user = user, page, c_at = at",
        "inner join of timed with select on user = c_user, -5 minutes to 1 hour after it",
        "filter `ms` > length(`page`)",
        "select user, page, clicked = c_at",
    ]


@pytest.mark.parametrize(
    ("bound", "drawn"),
    [
        ("c.at >= l.at and c.at <= l.at + interval 1 hour", "0 seconds to 1 hour"),
        ("l.at >= c.at - interval 1 hour and l.at <= c.at", "0 seconds to 1 hour"),
        ("l.at between c.at - interval 2 hours and c.at + interval 1 minute", "-1 minute to 2 hours"),
        ("c.at - interval 1 minute <= l.at and l.at - interval 1 minute <= c.at", "-1 minute to 1 minute"),
    ],
)
def test_time_bounds_of_a_join_can_be_written_from_either_side(bound: str, drawn: str) -> None:
    made = _made(f"select page from logins l join clicks c on l.user = c.user and {bound}")
    assert drawn in made[1]


def test_an_outer_join_keeps_the_keys_of_both_sides_apart() -> None:
    made = _made(
        """select l.user, c.user as other from logins l left join clicks c
        on l.user = c.user and c.at between l.at and l.at + interval 1 hour and c.page like 'a%' where c.user is null"""
    )
    assert made == [
        "select c_user = user, page, c_at = at",
        "filter `page` LIKE 'a%'",
        "with join_key = user",
        "with join_key = c_user",
        "left join of with_columns with with_columns_2 on join_key, 0 seconds to 1 hour after it",
        "filter `c_user` IS NULL",
        "select user, other = c_user",
    ]


def test_keys_of_a_join_may_be_expressions() -> None:
    made = _made(
        "select page from logins l join clicks c on lower(l.user) = lower(c.user) and c.at between l.at and l.at"
    )
    assert made[1:3] == ["with join_key = lower(`user`)", "with join_key = lower(`c_user`)"]


def test_a_column_twice_in_a_join_needs_its_table_but_the_merged_key_does_not() -> None:
    query = "select user, {} from logins l join clicks c on l.user = c.user and c.at between l.at and l.at"
    assert _columns(query.format("l.at")) == ("user", "at")
    with pytest.raises(LockstepError) as refused:
        _columns(query.format("at"))
    assert refused.value.hint == "l.at or c.at."


def test_a_star_after_a_join_has_the_merged_key_once() -> None:
    query = "select * from clicks a join clicks b on a.user = b.user and b.at between a.at and a.at + interval 1 hour"
    assert _columns(query) == ("user", "page", "at", "b_page", "b_at")


def test_a_table_is_joined_by_its_keys_alone(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ["a"], "page": ["b"], "tier": [1]}), tmp_path / "users.parquet")
    users = ls.table(tmp_path / "users.parquet")
    job = _job()
    joined = job.sql(
        "select c.page, u.page as home, u.id from clicks c join u on lower(user) = u.id and tier > 1", u=users
    )
    drawn = [words(step) for step in job._registry.steps[4:]]
    assert drawn[0] == "with join_key = lower(`user`)"
    assert drawn[1].endswith("on join_key = id")
    assert drawn[2:] == ["filter `tier` > 1", "select page, home = page_u, id = join_key"]
    assert joined.columns == ("page", "home", "id")
    left = job.sql("select user, tier from clicks left join users u on user = u.id where tier is null", users=users)
    assert left.columns == ("user", "tier")
    for query, code in (
        ("select * from users", "LS0231"),
        ("select tier from clicks full join users u on user = u.id", "LS0237"),
        ("select tier from clicks join users u on user = lower(u.id)", "LS0237"),
        ("select u.id from clicks left join users u on user = u.id", "LS0232"),
    ):
        with pytest.raises(LockstepError, match=code):
            job.sql(query, users=users)


def test_lateral_view_makes_a_record_for_each_element() -> None:
    assert _made("select user, tag from logins lateral view explode(tags) t as tag where t.tag <> ''") == [
        "explode `tags` as tag",
        "filter `tag` <> ''",
        "select user, tag",
    ]


def test_a_failed_query_leaves_no_steps_behind() -> None:
    job = _job()
    known: list[Step] = list(job._registry.steps)
    with pytest.raises(LockstepError):
        job.sql("select user from logins where ok union all select nothing from clicks")
    assert job._registry.steps == known


def test_a_query_is_part_of_the_plan_like_any_step() -> None:
    job = _job()
    job.sql("select user from logins", name="users").to(ls.console(), guarantee="at-least-once")
    steps = job.graph().steps
    assert [type(step) for step in steps if step.id == "users"] == [Select]


def test_distinct_counts_and_statistics_are_aggregates_like_others() -> None:
    assert _made("select user, count(distinct ms, ok) n, median(ms) m from logins group by user") == [
        "aggregate by user: n = count_distinct(ms, ok), m = median(ms)"
    ]
    made = _made(
        "select user, max_by(address.city, ms) c, stddev(ms) / avg(ms) s, percentile(ms, array(0.5, 0.9)) p, "
        "corr(ms, price) filter (where ok) r, first(ms, true) f from logins group by user, window(at, '1 minute')"
    )
    assert made[0] == (
        "window by user, tumbling 1 minute: c = max_by(`address`.`city`, ms), stddev = stddev(ms), avg = avg(ms), "
        "p = percentile(ms, [0.5, 0.9]), r = corr(CASE WHEN `ok` THEN `ms` END, CASE WHEN `ok` THEN `price` END), "
        "f = first(ms, true)"
    )


PARTS = "(select user, window_start, window_end, count(*) n from logins group by user, {window})"


@pytest.mark.parametrize(
    ("first", "second", "drawn", "moved_us"),
    [
        ("window(at, '1 minute')", "window(window_end, '1 hour')", "tumbling 1 hour from 3599999999 us", 1),
        ("session(at, '1 minute')", "hop(window_end, '1 minute', '1 hour')", "every 1 minute from 59999999 us", 1),
        ("window(at, '1 minute')", "window(window_start, '1 hour')", "1 hour from 59999999 us", -59_999_999),
        ("hop(at, '1 second', '1 minute')", "session(window_end, '1 hour')", "session with a gap of 1 hour", 1),
    ],
)
def test_a_window_over_a_bound_of_another_goes_by_what_that_column_says(
    first: str, second: str, drawn: str, moved_us: int
) -> None:
    made = _made(f"select max(n) m, window_end from {PARTS.format(window=first)} group by {second}")
    assert any(drawn in step for step in made)
    assert any(f"timestamp_micros(unix_micros(`window_end`) + {moved_us})" in step for step in made)


@pytest.mark.parametrize("window", ["session(at, '1 minute')"])
def test_starts_of_windows_without_a_fixed_length_are_no_time_to_go_by(window: str) -> None:
    with pytest.raises(LockstepError) as refused:
        _made(f"select max(n) m from {PARTS.format(window=window)} group by window(window_start, '1 hour')")
    assert refused.value.code == "LS0234"
    assert "window_end" in refused.value.hint


def test_a_condition_cannot_hide_records_from_what_takes_null_for_a_value() -> None:
    with pytest.raises(LockstepError) as refused:
        _made("select last(ms) filter (where ok) from logins group by user")
    assert refused.value.code == "LS0233"


MINUTES = "SELECT user, window_start, window_end, count(*) AS n FROM logins GROUP BY user, {window}"
PLACES = "row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS place"


def _ranked(
    by: str = "window_start, window_end",
    order: str = "n DESC",
    where: str = "place <= 3",
    window: str = "window(at, '1 minute')",
) -> str:
    inner = f"SELECT *, {PLACES.format(by=by, order=order)} FROM ({MINUTES.format(window=window)})"
    return f"SELECT user, n, place, window_start FROM ({inner}) AS r WHERE {where}"


def _renamed_ranking() -> str:
    minutes = MINUTES.format(window="window(at, '1 minute')")
    place = PLACES.format(by="window_start, window_end", order="n DESC")
    return f"WITH m AS ({minutes}), r(who, at) AS (SELECT user, {place} FROM m) SELECT * FROM r WHERE at <= 3"


def test_the_first_rows_of_each_window_are_its_top() -> None:
    made = _made(_ranked("window_start, window_end, user"))
    order = "named_struct('known_0', NOT (`n`) IS NULL, 'value_0', `n`)"
    assert made[1:] == [
        f"window by user, tumbling 1 us: top 3 by {order}: place",
        "with window_start = timestamp_micros(unix_micros(`window_end`) + -60000000)",
        "select user, window_start, window_end, n, place",
        "filter `place` <= 3",
        "select user, n, place, window_start",
    ]


@pytest.mark.parametrize(
    ("where", "number"),
    [
        ("place <= 3", 3),
        ("r.PLACE < 3", 2),
        ("3 >= place AND n > 7", 3),
        ("n > 7 AND (place = 1)", 1),
        ("4 > place AND place <= 2", 2),
        ("place BETWEEN 2 AND 5", 5),
    ],
)
def test_the_bound_of_a_row_number_is_found_in_the_query_around_it(where: str, number: int) -> None:
    assert f": top {number} by " in _made(_ranked(where=where))[1]


@pytest.mark.parametrize(
    ("order", "known", "ascending"),
    [
        ("n DESC", "NOT (`n`) IS NULL", False),
        ("n", "NOT (`n`) IS NULL", True),
        ("n DESC NULLS FIRST", "(`n`) IS NULL", False),
        ("n ASC NULLS LAST", "(`n`) IS NULL", True),
    ],
)
def test_nulls_have_the_place_that_sql_gives_them(order: str, known: str, ascending: bool) -> None:
    made = _made(_ranked(order=order))[1]
    assert f"'known_0', {known}, " in made
    assert (", ascending" in made) is ascending


@pytest.mark.parametrize(
    "query",
    [
        "WITH r AS (SELECT *, {place} FROM m) SELECT place, user FROM R WHERE place <= 2",
        "SELECT place, user FROM (SELECT user, {place} FROM m) WHERE place <= 2",
        "WITH r AS (SELECT *, {place} FROM m) SELECT * FROM (SELECT place, user FROM r WHERE place <= 2)",
    ],
)
def test_a_ranking_may_stand_in_with_or_in_from(query: str) -> None:
    job = _job()
    minutes = job.sql(MINUTES.format(window="window(at, '1 minute', '10 seconds')"))
    place = PLACES.format(by="window_start, window_end", order="n DESC, user DESC")
    made = job.sql(query.format(place=place), m=minutes)
    assert made.columns == ("place", "user")
    drawn = [words(step) for step in job._registry.steps]
    assert sum(": top 2 by " in one for one in drawn) == 1
    assert any("`window_end`) + -60000000" in one for one in drawn)


@pytest.mark.parametrize(
    ("query", "fact"),
    [
        (_ranked(where="n > 3"), "row_number() without an upper bound"),
        (_ranked(where="place <= 3 OR n > 3"), "row_number() without an upper bound"),
        (_ranked(where="p.place <= 3"), "row_number() without an upper bound"),
        (_renamed_ranking(), "a list of columns behind WITH"),
        (_ranked(by="user"), "row_number() is not divided by window"),
        (_ranked(by="window_end, upper(user)"), "row_number() is divided by something that is no column"),
        (_ranked(window="session_window(at, '1 minute')"), "row_number() is not divided by window"),
        (_ranked(order="n DESC, user"), "row_number() is ordered up and down"),
        (_ranked(where="place <= 0"), "asks for the top 0"),
        ("SELECT row_number() OVER (ORDER BY ms) AS place FROM logins", "OVER cannot be used"),
        (
            "SELECT * FROM (SELECT *, sum(ms) OVER (PARTITION BY user) AS s FROM logins) WHERE s <= 3",
            "OVER cannot be used",
        ),
        (
            "SELECT * FROM (SELECT user, count(*) AS n, row_number() OVER (PARTITION BY window_start ORDER BY user) "
            "AS place FROM logins GROUP BY user, window(at, '1 minute')) WHERE place <= 3",
            "row_number() stands beside an aggregation",
        ),
    ],
)
def test_other_rankings_are_refused_with_the_way_to_write_them(query: str, fact: str) -> None:
    with pytest.raises(LockstepError) as refused:
        _job().sql(query)
    assert refused.value.code in ("LS0233", "LS0167")
    assert fact in refused.value.fact
    assert refused.value.hint
