"""Pages of the codes LS018x: joins and tables."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0180": Page(
        "A join that is not possible",
        """\
.join(other, on=...) brings together records of two streams, or of a stream and a table, whose key
columns are equal. on= is the name of a column, a list of names, or a dict from left to right names
where they differ. how= is "inner", "left", "right" or "full"; with a table it is "inner" or "left",
since a table's row without a partner would never be known to stay without one.

.co_group wants another stream by key, with as many key columns.""",
    ),
    "LS0181": Page(
        "A join without event time",
        """\
Records of two streams wait for each other, and event time says how long: until no partner can come
any more. So both streams need .event_time(...) before they are joined or co-grouped. Time moves on
with the slower of the two.""",
    ),
    "LS0182": Page(
        "A join without a time bound, or with an odd one",
        """\
Without a bound a record would have to be kept for ever, because its partner may still come: the
state would grow without end. Say how far apart the two may be:
    orders.join(payments, on="order_id", between=("-5 minutes", "10 minutes"))
means that the payment happened from 5 minutes before to 10 minutes after the order, both included.
Or join what is in the same window:
    clicks.join(views, on="user", window=ls.tumbling("1 minute"))
The first bound is not later than the second, and bounds are whole milliseconds. A join with
ls.table(...) has no bound at all: a table does not change during a run.""",
    ),
    "LS0183": Page(
        "A join would have a column twice",
        """\
The result has the key columns once, then the other columns of the left stream, then those of the
right one. If both have a column of the same name (case does not count), rename one before the join
with .rename(at="paid_at"), or let the join do it: suffixes=("_order", "_payment") are added to the
names that clash, on their side; one of them may be empty.""",
    ),
    "LS0184": Page(
        "Keys of different types",
        """\
The key columns of the two sides have types whose values are never equal, or only after a conversion
that fails on some records, such as text and number. Convert one side before the join:
    .with_columns(order_id=F.col("order_id").cast("bigint"))
Whole numbers and decimals of different widths may be compared.""",
    ),
    "LS0185": Page(
        "A window that two streams cannot share",
        """\
For a window join or a co-group both streams must agree where windows begin and end, by event time
alone: ls.tumbling(...) or ls.sliding(...). Sessions, count windows and windows of processing time
depend on the records of one stream, or on when they came.""",
    ),
    "LS0186": Page(
        "A table is missing, or is no table",
        """\
ls.table(path) reads one Parquet, CSV or JSON-lines file, or a folder whose files are all of one of
these formats (names that begin with "." or "_" do not count). The path is relative to the project
folder. The format is read off the name, or given with format=.""",
    ),
    "LS0187": Page(
        "A table does not fit its schema",
        """\
CSV and JSON lines do not say which types their columns have: give schema="id bigint, name string".
A Parquet file has its own schema; schema= then picks some columns. The error names the file and the
line, or the type that streams do not have.""",
    ),
}
