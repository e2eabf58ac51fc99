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
time travel in them. Give your column another name.""",
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
        "Results that replace each other are added up",
        """\
A rolling aggregation (key_by(...).agg(...), GROUP BY without a window) gives a new total of a key in
every epoch that changes it, and each total replaces the one before. A second aggregation would take
each of them for a record: with ann at 1, then 2, then 3, sum(n) is 6 and not 3, and how much it is
depends on where epochs are cut.

Aggregate the records themselves by the keys of the second step (count(*) instead of sum(n)), or use
windows, whose results are final. Where old totals add nothing that the newest one does not, the job is
not refused: the largest of counts, or the set of the keys. In .top(...) one key would have several
ranks, so it is always refused; .max_by("n") is fine if n never falls and all other columns are keys.
Results after each record (per_record=True) are records, and process functions see every update: what
they add up is yours.""",
    ),
    "LS0127": Page(
        "A keyed sink would keep a row that was replaced",
        """\
The rows of a rolling aggregation replace each other, and a keyed sink keeps the newest row that comes
as far as the sink. After a filter (WHERE or HAVING on such results), a join or an explode, a new result
may not come: ann's average falls below the limit, and the sink still has her old row, for ever.

A condition that stays true is not refused: one on the keys, a count or a maximum above a number, a
minimum below one. For others write all rows, with the condition as a column
(.with_columns(is_slow="mean > 5")), and look for it when you read the table; or write to a sink
without key=, which takes every result as it comes.""",
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
