"""Pages of the codes LS0230 to LS0238: queries in SQL."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0230": Page(
        "A query in SQL does not parse",
        """\
job.sql(...) was given a text that is not a query; the error shows the place. A query is one statement:
    SELECT user, count(*) AS failures FROM logins WHERE NOT ok GROUP BY user HAVING failures > 3
Texts stand in single quotes ('it''s'), names with blanks or dashes in back quotes (`my-logins`).""",
    ),
    "LS0231": Page(
        "A query reads a stream that is not there",
        """\
After FROM and JOIN stand streams of the job: a source by its name, another stream by the name= of its last
step, or under the name that it is passed by:
    job.sql("SELECT * FROM failed", failed=logins.filter("NOT ok"))
A table, ls.table(...), is passed the same way, and stands after JOIN.""",
    ),
    "LS0232": Page(
        "A query reads a column that is not there",
        """\
The name is no column of the tables after FROM, or of several of them: then write the table's name before it,
logins.user. Names are found without regard to case. A text stands in single quotes: 'ann'. An alias of the
SELECT list can be used in GROUP BY and HAVING, not in WHERE.""",
    ),
    "LS0233": Page(
        "A clause of SQL that a stream does not have",
        """\
A stream has no end. So it cannot be sorted (ORDER BY), has no first records (LIMIT, OFFSET), no rows before
and after (OVER, QUALIFY), and no values that are final and small enough to keep (DISTINCT, UNION without
ALL, a query inside an expression). The error says what does the same for a stream: mostly a window of event
time in GROUP BY, a join with a time bound, or doing it where the sink is read.

One OVER can be used: row_number() over the results of windows, with an upper bound around it:
    SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY window_start, window_end, user ORDER BY n DESC) AS place
                   FROM minutes) WHERE place <= 3
It is .top(3, by="n"). The windows have a fixed length, PARTITION BY has plain columns, ORDER BY goes one way.""",
    ),
    "LS0234": Page(
        "A window in GROUP BY that cannot be",
        """\
Windows are over the event time of the stream, because that is what closes them:
    logins = job.source(...).event_time("at", out_of_order="5 seconds")
    job.sql("SELECT user, window_start, count(*) AS n FROM logins GROUP BY user, window(at, '1 minute')",
            logins=logins)
window(at, size), window(at, size, step), tumble(at, size), hop(at, step, size), session(at, gap) and
session_window(at, gap) can be used, one in a query. Lengths are texts ('1 minute') or intervals (INTERVAL 1
MINUTE). In SELECT, window_start and window_end are there.

Over the results of an earlier window, window(window_end, '1 hour') puts them into hours by the end of their
windows, window(window_start, ...) by the start if these have a fixed length.""",
    ),
    "LS0235": Page(
        "GROUP BY and the SELECT list do not fit together",
        """\
After GROUP BY there is one record for each key, so everything in SELECT and HAVING is a key, inside an
aggregate function, or computed from these. WHERE and GROUP BY look at single records, before there are
groups: conditions on aggregates belong into HAVING, and an aggregate of an aggregate is two queries: SELECT
max(n) FROM (SELECT user, count(*) AS n FROM logins GROUP BY user).""",
    ),
    "LS0236": Page(
        "Columns of a query that do not fit",
        """\
The result has two columns of one name, or the parts of a UNION ALL (which are matched by their order) have
different numbers of columns, or AS name(a, b) names more or fewer than there are. Give names with AS, and
write the columns out instead of *.""",
    ),
    "LS0237": Page(
        "A join in SQL that a stream cannot do",
        """\
Two streams are joined by equal keys and within a bound of event time, or every record would have to be kept for
ever:
    FROM orders AS o JOIN payments AS p
    ON o.id = p.order_id AND p.at BETWEEN o.at AND o.at + INTERVAL 1 HOUR
Both times have to be the event times of their streams. LEFT, RIGHT and FULL JOIN can be used too; then ON holds
nothing but keys, times and conditions on the side that may be missing. A table, ls.table(...), needs the keys
only, after JOIN or LEFT JOIN.""",
    ),
    "LS0238": Page(
        "job.sql(...) was given something else",
        """\
job.sql(text, name=..., stream=...) takes a text in SQL, and streams of the same job or tables by name:
    job.sql("SELECT * FROM failed JOIN users USING (user)", failed=failed, users=ls.table("users.parquet"))""",
    ),
}
