"""What a query cannot do is refused with the place in the text, the reason, and what to write instead."""

from __future__ import annotations

import re

import pytest

import lockstep as ls
from lockstep.errors import LockstepError
from lockstep.plan.aggregates import names_by
from lockstep.plan.determinism import REFUSED_AGGREGATES, REFUSED_SCALARS

_OTHERWISE = {"asc", "desc", "window", "session_window"}
"""Words that SQL reads in another way."""


def _job() -> ls.Job:
    job = ls.Job("queries")
    logins = job.source("logins", ls.journal("logins", schema="user string, ok boolean, ms bigint, at timestamp"))
    logins.event_time("at", name="timed")
    job.source("clicks", ls.journal("clicks", schema="user string, page string, at timestamp")).event_time("at")
    job.source("plain", ls.journal("plain", schema="user string, n bigint, at timestamp"))
    return job


def _refused(query: str) -> LockstepError:
    with pytest.raises(LockstepError) as refused:
        _job().sql(query)
    return refused.value


def _marked(error: LockstepError, query: str) -> str:
    """The part of the query that the carets of an error stand under."""
    where, line, carets, *_ = error.why.split("\n")
    number = int(where.split(",")[0].removeprefix("line "))
    assert line.strip() == query.split("\n")[number - 1].strip()
    return line[carets.index("^") : carets.rindex("^") + 1]


@pytest.mark.parametrize(
    ("query", "code", "place", "hint"),
    [
        ("select user fro logins", "LS0230", "logins", "SELECT ... FROM"),
        ("select (user from logins", "LS0230", "from", "SELECT"),
        ("select user from logins where ms = = 3", "LS0230", "=", "SELECT"),
        ("select 'abc from logins", "LS0230", "'", "SELECT"),
        ("insert into logins select 1", "LS0230", "logins select 1", "SELECT"),
        ("select user from login", "LS0231", "login", 'did you mean "logins"?'),
        ("select user from logins join clik c on true", "LS0231", "clik", "clicks"),
        ("select user from other.logins", "LS0231", "logins", "logins"),
        ("select usr from logins", "LS0232", "usr", 'did you mean "user"?'),
        ("select\n  user,\n  upper(l.usr)\nfrom logins l", "LS0232", "l.usr", 'did you mean "user"?'),
        ("select x.user from logins", "LS0232", "x.user", ""),
        ("select user from logins where n > 3", "LS0232", "n", ""),
        ("select user, count(*) as n from logins group by usr", "LS0232", "usr", "user"),
        ("select user, count(*) as n from logins group by user having m > 3", "LS0232", "m", "n"),
        ("select window_start from logins", "LS0232", "window_start", "GROUP BY ..., window(at, '1 minute')"),
        ("select user from logins order by user", "LS0233", "order by", "sort what you read"),
        ("select user from logins limit 3", "LS0233", "limit", "WHERE"),
        ("select user from logins limit 3 offset 2", "LS0233", "limit", "WHERE"),
        ("select distinct user from logins", "LS0233", "distinct", ".distinct(within="),
        ("select user from logins union select user from clicks", "LS0233", "union", "UNION ALL"),
        ("select user from logins except select user from clicks", "LS0233", "except", "UNION ALL"),
        ("select user from logins where ms in (select n from plain)", "LS0233", "n from plain", "join the streams"),
        ("select (select 1) as x from logins", "LS0233", "1", "join the streams"),
        ("select sum(ms) over (order by at) from logins", "LS0233", "sum(ms) over (order by at", "window(at"),
        ("select user from logins group by rollup(user)", "LS0233", "rollup", "one by one"),
        ("select user from logins tablesample (5 rows)", "LS0233", "tablesample", "pmod"),
        ("select * except (ok) from logins", "LS0233", "* except (ok", "one by one"),
        ("select user from logins where ms = :limit", "LS0233", None, "f-string"),
        ("with recursive a as (select user from logins) select * from a", "LS0233", None, "iterate"),
        ("select user from logins lateral view posexplode(tags) t", "LS0233", "posexplode", "explode(tags)"),
        ("select count(*) from plain group by window(at, '1 minute')", "LS0234", "window", '.event_time("at"'),
        ("select count(*) from logins group by window(ms, '1 minute')", "LS0234", "ms", "window(at, ...)"),
        ("select count(*) from logins group by window(at, '1 month')", "LS0234", "'1 month'", "window(at, '1 minute')"),
        ("select count(*) from logins group by tumble(at)", "LS0234", "tumble", "INTERVAL"),
        ("select tumble_start(at, '1 minute') from logins group by user", "LS0234", "tumble_start", "GROUP BY"),
        ("select 1 as x from logins group by window(at, '1 s'), tumble(at, '2 s')", "LS0234", "tumble", "one of them"),
        ("select user, ms from logins group by user", "LS0235", "ms", "max(ms)"),
        ("select * from logins group by user", "LS0235", "*", "GROUP BY"),
        ("select user from logins where count(*) > 3", "LS0235", "count", "HAVING"),
        ("select sum(count(*)) from logins", "LS0235", "count", "FROM (SELECT ...)"),
        ("select user from logins group by count(*)", "LS0235", "count", ""),
        ("select user from logins group by 7", "LS0235", "7", ""),
        ("select user, ok from logins union all select user from clicks", "LS0236", "user from clicks", ""),
        ("select user as a, ok as a from logins", "LS0236", "ok", "AS a_2"),
        ("with a(x, y) as (select user from logins) select x from a", "LS0236", None, ""),
        ("select page from logins l join clicks c on l.user = c.user", "LS0237", "l.user = c.user", "BETWEEN"),
        ("select page from logins cross join clicks", "LS0237", "clicks", "ON a.id = b.id"),
        ("select page from logins, clicks", "LS0237", "clicks", "ON a.id = b.id"),
        ("select 1 as x from logins join logins on true", "LS0237", "logins", "AS other"),
        ("select current_timestamp() from logins", "LS0203", "current_timestamp", "epoch_time()"),
        ("select current_date from logins", "LS0203", "current_date", "to_date(epoch_time())"),
        ("select user from logins where rand() < 0.5", "LS0204", "rand", "xxhash64(user)"),
        ("select mode(ms) from logins group by user", "LS0205", "mode", "count by value"),
        ("select sum(distinct ms) from logins", "LS0221", "sum", "count_distinct(...)"),
        ("select explode(tags) from logins", "LS0221", "explode", "LATERAL VIEW"),
        ("select user, epoch_time() from logins group by user", "LS0207", "epoch_time", "max(epoch_time())"),
        ("select count(*) from logins group by window(at, '1 s', '2 s')", "LS0114", "window", ""),
    ],
)
def test_a_query_is_refused_at_its_place(query: str, code: str, place: str | None, hint: str) -> None:
    error = _refused(query)
    assert (error.code, hint in error.hint) == (code, True), error
    if place is not None:
        assert _marked(error, query) == place


def test_the_error_shows_line_column_and_carets() -> None:
    error = _refused("select user\n  , usr\nfrom logins")
    assert str(error) == (
        'LS0232 unknown column "usr"\n'
        "  why:  line 2, column 5 of the query:\n"
        "          , usr\n"
        "            ^^^\n"
        "        logins has: user, ok, ms, at.\n"
        '  try:  did you mean "user"?'
    )


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("l.user = c.user and c.at >= l.at", "one side only"),
        ("c.at between l.at and l.at + interval 1 hour", "compares no keys"),
        ("l.user = c.user and l.ms > 3 and c.at between l.at and l.at", "cannot be part of a LEFT JOIN"),
        ("l.user = c.user and c.at between l.at and l.at + interval 1 month", "one side only"),
    ],
)
def test_a_join_needs_keys_and_two_bounds_and_an_outer_one_nothing_else(condition: str, words: str) -> None:
    error = _refused(f"select page from logins l left join clicks c on {condition}")
    assert (error.code, words in error.fact) == ("LS0237", True), error


def test_there_is_one_query_in_a_text() -> None:
    assert _refused("select user from logins; select page from clicks").code == "LS0230"
    assert _refused("  ").code == "LS0230"


def test_only_streams_of_this_job_and_tables_can_be_passed() -> None:
    job = _job()
    with pytest.raises(LockstepError, match="LS0238"):
        job.sql(3)  # type: ignore[arg-type]
    with pytest.raises(LockstepError, match=r"LS0238.*neither a stream nor a table"):
        job.sql("select * from a", a="logins")  # type: ignore[arg-type]
    with pytest.raises(LockstepError, match="LS0136"):
        job.sql("select * from a", a=_job().sql("select user from logins"))


@pytest.mark.parametrize("name", sorted({*REFUSED_SCALARS, *REFUSED_AGGREGATES} - _OTHERWISE - names_by("lockstep")))
def test_the_function_that_is_refused_is_named_and_marked_and_not_its_neighbour(name: str) -> None:
    """As it was written: `std` is not `stddev`, though the parser takes one for the other."""
    if name in REFUSED_SCALARS:
        query = f"select lower(user) as a, {name}() as b, length(user) as c from logins"
    else:
        query = f"select user, max(ms) as a, coalesce({name}(ms, 0.5), 1) as b, count(*) as c from logins group by user"
    error = _refused(query)
    assert name in re.split(r"\W+", error.fact), error
    assert _marked(error, query).startswith(name), error
