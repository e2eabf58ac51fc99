"""Pages of the codes LS01xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0102": Page(
        "A name is not possible",
        """\
The name of a job stands in folder names, metrics and the ledger: a small letter, then small
letters, digits and dashes. The name of a step or a source is a letter, then letters, digits, _ or
-; at most 64 characters.""",
    ),
    "LS0103": Page(
        "A duration does not parse",
        """\
A duration is a number and a unit, perhaps several of them: "5 seconds", "200 ms", "1 minute 30
seconds", "2 h". A bare number has no unit and is refused: is 5 seconds or minutes? A
datetime.timedelta works too.""",
    ),
    "LS0104": Page(
        "An option of the job is unknown or out of range",
        """\
Job("name", option=...) takes the settings of the [run] table in lockstep.toml. Durations may be
given without the "_s" at the end of their names: epoch_interval="200 ms" is epoch_interval_s=0.2.
The error lists all options.""",
    ),
    "LS0105": Page(
        "A schema does not parse",
        """\
A schema is a text with names and types as in Spark's DDL, separated by commas:
    user string, ok boolean, at timestamp, tags array<string>, place struct<lat:double,lon:double>
The error points at the place. Types: string, boolean, tinyint, smallint, int, bigint, float,
double, decimal(p,s), date, timestamp, timestamp_ntz, binary, array<T>, map<K,V>,
struct<name:T,...>. A name with blanks stands in back quotes. Intervals, variants and lengths
(varchar(10)) are not supported.

A state may also be declared with a type of Python: str, bool, int, float, bytes, datetime, date.""",
    ),
    "LS0106": Page(
        "A reserved name",
        """\
Columns whose names start with two underscores are Lockstep's own: positions, marks and the epoch
time travel in them. So are lockstep_change and lockstep_event_time, which travel between stages and to
sinks. Give your column another name.""",
    ),
    "LS0107": Page(
        "An unknown column",
        """\
The step uses a column that the stream does not have at this point. The error lists those it has;
remember that .select drops all others, .rename gives new names, and after .agg there are only keys,
window_start, window_end and the aggregates.

In functions such as F.lower("user") a plain string is the name of a column. For the text itself
write F.lit("user").""",
    ),
    "LS0108": Page(
        "Not a source, a sink or a stream",
        """\
job.source(name, spec) wants a source such as ls.journal(...), ls.files(..., schema=...),
ls.rate(...) or ls.collection(...). .to(spec) wants a sink such as ls.files("out/x"), ls.sqlite(...)
or ls.console(). .union wants streams of the same job; a stream by key is one again after .agg(...).""",
    ),
    "LS0109": Page(
        "A source without a schema",
        """\
A source has to say what its records look like before the first one is read: schema="user string, at
timestamp". ls.files(...) without a schema is a sink.""",
    ),
    "LS0110": Page(
        "A union of different columns",
        """\
.union matches columns by name, and all streams must have the same ones (in any order). The error
says which are missing where. Bring them in line with .select, .rename or .with_columns before.""",
    ),
    "LS0111": Page(
        "A second event time, or one in the wrong place",
        """\
A record has one event time. .event_time may stand once on the way from a source to a sink, before
the aggregation, and its durations are not negative. To use another time, change the expression of
the one that is there.""",
    ),
    "LS0112": Page(
        "A window without an event time",
        """\
A window closes when event time has passed its end, so the stream must say which time a record
happened at:
    .event_time("at", out_of_order="5 seconds").key_by("user").window(ls.tumbling("1 minute")).agg(n=F.count("*"))""",
    ),
    "LS0114": Page(
        "A window that is not possible",
        """\
.window(...) takes ls.tumbling("1 minute"), ls.sliding("1 minute", every="10 seconds"),
ls.session("30 minutes"), ls.count(100), ls.global_(), or an instance of your own subclass of
ls.WindowAssigner. Sizes and gaps are more than zero, and every= is at most the size: otherwise
records between two windows would be in none.""",
    ),
    "LS0115": Page(
        "A job without a sink",
        """\
A stream that goes nowhere computes nothing that anyone could see. End at least one with .to(...);
.to(ls.console()) prints it.""",
    ),
    "LS0116": Page(
        "Two steps with one name",
        """\
State, metrics and errors know a step by its id, so it is unique in a job. Ids come from name=...,
or are made of the kind of step and a number (filter, filter_2). Choose another name=.""",
    ),
    "LS0118": Page(
        "A guarantee that the sink cannot give",
        """\
Exactly once needs a sink that can tell, in the same act as the writing, whether an epoch is there
already. Files and SQLite tables can; the console cannot. Use a sink that can, or say what a crash may
do: guarantee="at-least-once" (an epoch that was just written may be written again) or
guarantee="at-most-once" (every epoch is noted as taken before it is written, so one may be missing,
and none comes twice). `lockstep check` shows what each sink gives. A sink that can do more than was
asked for does more.""",
    ),
    "LS0119": Page(
        "A union of streams with and without an event time",
        """\
After a union there is one stream, and all its records must have an event time, or none. Declare it
on each stream before the union (each may use another column and another lateness), or once after
it.""",
    ),
    "LS0126": Page(
        "Results that replace each other are taken for records",
        """\
A rolling aggregation (key_by(...).agg(...), GROUP BY without a window) gives a new total of a key in
every epoch that changes it, and each total replaces the one before. A second aggregation would take
each of them for a record: with ann at 1, then 2, then 3, sum(n) is 6 and not 3, and how much it is
depends on where epochs are cut. A join would keep pairs with each of them, .distinct the first for ever.
So say which of the two is meant:

  counts.latest().key_by("city").agg(total=F.sum("n"))       the row that each key has now: 3
  counts.as_events().key_by("city").agg(total=F.sum("n"))    every result is a record: 6

In SQL the first is always meant, and nothing has to be said; a query is refused only where nothing tells
which row a new one replaces (sessions, joins of such results, top). Where old totals add nothing that the
newest one does not, no job is refused: the largest of counts, or the set of the keys. Windows have final
results, and those after each record (per_record=True) are records. Process functions see every update:
what they add up is yours.""",
    ),
    "LS0127": Page(
        "A keyed sink would keep a row that was replaced",
        """\
The rows of a rolling aggregation replace each other, and a keyed sink keeps the newest row that comes
as far as the sink. After a filter, a join or an explode, a new result may not come: ann's average falls
below the limit, and the sink still has her old row, for ever. So say what is meant:

  means.latest().filter("mean > 5")       the rows that hold now: the sink deletes hers
  means.as_events().filter("mean > 5")    every result is a record: the sink keeps the last that passed

In SQL (WHERE or HAVING on such results) the first is always meant. To delete a row the sink has to find
it: its key= has the columns that tell rows apart, those of GROUP BY. SQLite and Postgres can delete; to
others write without key=, and they take every row that begins to hold.

A condition that stays true needs none of this: one on the keys, a count or a maximum above a number, a
minimum below one.""",
    ),
    "LS0128": Page(
        "A step that cannot read rows that are taken back",
        """\
After .latest() a stream has changes: a row begins to hold, and is taken back when another one replaces
it. Steps that look at one row at a time (.filter, .select, .with_columns, .drop, .rename, .explode, a
join with a table), .union, .key_by(...).agg(...) and sinks know how to take a row back. Others would take
every change for a record: functions in Python, joins of streams, windows, loops, and aggregates that ask
which row came first (first, last, collect_list, max_by).

.as_events() before such a step makes records of the rows that begin to hold, and takes none back. A step
after .latest() cannot use epoch_time(): a row would be taken back with another time than it came with.
A union wants changes on all sides, or records: .latest() on each stream of rolling results.""",
    ),
    "LS0129": Page(
        "There is no latest row",
        """\
.latest() is the row that each key has now, in a stream whose results replace each other: a rolling
aggregation, .max_by, .reduce or .fold by key, a window that gives results before its end. It stands
right after that step, before the columns that tell rows apart are gone. Sessions grow together and a
function over a window gives any number of rows, so nothing says which of them a new one replaces.

.as_events() says that every result of such a stream is meant, as a record of its own. A stream of records
needs neither.""",
    ),
    "LS0131": Page(
        "A Python function that a step cannot call",
        """\
.map, .flat_map and .map_batches call a Python function with one argument: a record as a dict, or a
batch as an Arrow table. They need schema= for what comes back, since nobody can tell from a
function which columns it returns. Functions are not async; one that yields belongs into .flat_map.
on_error is "fail" (stop the job) or "skip" (put the record into the dead-letter journal). The same
holds for the lambdas of .filter and others: lambda r: r.ok.""",
    ),
    "LS0132": Page(
        "Columns without a name, twice, or none at all",
        """\
A step was given no columns, one without a name, or two of the same name (Spark does not tell upper
from lower case). Expressions get their names from the keyword, .agg(n=F.count("*")), or from
.alias("n").""",
    ),
    "LS0133": Page(
        "There is no such method",
        """\
Streams have: filter, select, with_columns, drop, rename, union, event_time, key_by, window, map,
flat_map, map_batches, to. After .key_by(...) or .window(...) there is only .agg(...) (and
.window(...) after .key_by(...)), which gives a stream again.""",
    ),
    "LS0134": Page(
        "name= names the step, not a column",
        """\
In every method name= is the id of the step. For a column that is called "name" write
.with_columns(F.lower("x").alias("name")), .select(..., F.lower("x").alias("name")) or
.rename({"name": "user"}).""",
    ),
    "LS0135": Page(
        "Two sinks write to the same place",
        """\
A place (a folder, a table) holds each epoch once, and belongs to one sink. Give the sinks different
places, or unite the streams with .union(...) and write them once.""",
    ),
    "LS0136": Page(
        "Streams of different jobs",
        """\
A job is one graph. Streams that are united must come from the same Job object: make both sources
with the same job.source(...).""",
    ),
}
