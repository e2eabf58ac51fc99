"""Pages of the codes LS02xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0201": Page(
        "Python's and, or, not, in, if, len on an expression",
        """\
An expression such as F.col("ok") stands for a value in records that are not there yet. Python's
`and`, `or`, `not`, `in`, `if`, `a < b < c`, `len()` and `for` want an answer at once, and Python
does not let anyone redefine most of them.

Write instead:
    a and b       (a) & (b)          both sides in parentheses: & binds stronger than ==
    a or b        (a) | (b)
    not a         ~a
    a in (1, 2)   a.isin(1, 2)
    1 < a < 5     a.between(1, 5), or (a > 1) & (a < 5)
    x if a else y F.when(a, x).otherwise(y)
    len(a)        F.length(a) for a text, F.size(a) for an array
or write the whole condition as a text in SQL: .filter("ok AND code IN (1, 2)").""",
    ),
    "LS0202": Page(
        "A Column of pyspark in a job",
        """\
The job was given a Column made by pyspark. Such a Column belongs to one running JVM, while a job is
described without Spark and compiled anew in the JVM of every replica.

Use Lockstep's F, which has the same functions under the same names:
    from lockstep import F""",
    ),
    "LS0203": Page(
        "An expression reads a clock, or where it runs",
        """\
Replicas run the same epochs at different moments, perhaps on different hosts and as different
users. What a function such as current_timestamp, current_user or input_file_name answers would
differ between them, and so would their output.

For the time, use ls.epoch_time(): it is sealed in the ledger with every epoch and the same for all
replicas. For anything else about the surroundings, put the value into the job file: F.lit(...).""",
    ),
    "LS0204": Page(
        "An expression is random",
        """\
rand, uuid, shuffle and the like would draw other numbers in every replica, and again in every
replay after a crash.

To spread or to sample, hash something in the record: F.xxhash64(F.col("user")) is as evenly spread
as a random number and always the same. F.pmod(F.xxhash64(F.col("user")), F.lit(100)) < 7 keeps 7 %
of the users. For a unique id, hash what makes the record unique: F.sha2(F.concat_ws("|", "user",
"at"), 256).""",
    ),
    "LS0205": Page(
        "An expression depends on the order of records",
        """\
Between reading and aggregating, Spark moves records between tasks, and they arrive in any order.
Functions such as first, last, collect_list, max_by, mode or stddev give another result for another
order (stddev in its last digits only, but a digit is enough for two replicas to disagree).

Some of them Lockstep computes itself, where they stand on their own: .agg(spread=F.stddev("ms")),
.agg(worst=F.max_by("tail", "delay")). What is inside a larger expression or a text goes to Spark, and
is refused: compute the parts under names of their own, then .with_columns(...). For the others the
error names a replacement.""",
    ),
    "LS0206": Page(
        "There is no such function or method",
        """\
F has the functions of pyspark.sql.functions, under their names with underscores; expressions have
the methods of pyspark's Column. The error says what is nearest. dir(F) lists all functions. A field
of a struct is .getField("name"), and functions that only SQL knows can be written as a text:
F.expr("my_function(a)").""",
    ),
    "LS0207": Page(
        "The epoch time after an aggregation",
        """\
An aggregated row belongs to all the epochs that its records came in, so there is no one epoch time
for it. Take the time before: .with_columns(seen=ls.epoch_time()).key_by(...).agg(last=F.max("seen")).""",
    ),
    "LS0208": Page(
        "Floats added inside a text in SQL",
        """\
The sum of floats depends on the order of addition, and replicas add in different orders. F.sum, F.avg and
the texts "sum(x)" and "avg(x)" are made exact by Lockstep; inside a larger text in SQL it cannot reach them.
Write F.sum(...), cast to a decimal, or accept differences in the last digits with exact_floats=False.""",
    ),
    "LS0209": Page(
        "Types that do not fit together",
        """\
A column is compared or combined with a value of another type. Spark would convert one of them
silently, or fail on the first record that cannot be converted. Convert on purpose:
F.col("code").cast("int") == 200.""",
    ),
    "LS0210": Page(
        "A text in SQL does not parse",
        """\
Spark cannot read the text; the error shows where. Texts are expressions, not queries: "failures >= 5
AND user IS NOT NULL". Text values stand in single quotes, names with blanks in back quotes.""",
    ),
    "LS0211": Page(
        "Spark refuses a step",
        """\
The step was built, but Spark cannot run it as it stands; the error has Spark's reason.""",
    ),
    "LS0212": Page(
        "A float too large to be added exactly",
        """\
F.sum and F.avg add floats exactly, so that replicas agree to the last digit: as decimals with 18 digits after
the point and 20 before it. A value of 1e20 or more has no such decimal (a sum may be larger; infinities and
NaN are added as usual: inf + -inf is NaN). Scale the values down (divide by a power of two, which is exact),
or add them in any order, as Spark does, with .agg(..., exact_floats=False): then replicas may differ in the
last digits, and where a sum leaves the range of a double on the way, in being infinite at all.""",
    ),
    "LS0213": Page(
        "An expression that Spark calls non-deterministic",
        """\
Spark says of some function in the step that it may answer differently each time it is asked (it runs any
Java method, or draws random bytes). Replicas would then disagree. Use a function of the record alone.""",
    ),
    "LS0214": Page(
        "An expression fails on a record",
        """\
The job compiles, but one of the records cannot be computed: a text that is no number, an index beyond
the end of an array. (A division by zero is LS0215, a number too large for its type LS0216.) Spark raises
rather than guess (ANSI mode), and every replica meets the same record, so starting again would fail again:
the job stops, and nothing of that epoch is published. Spark's words in the error name the operation.

Say in the expression what should come out: F.expr("try_cast(code AS int)") gives null, get(items, 5) too;
or .filter(...) such records out before. Then run the job again: it goes on with that epoch.""",
    ),
    "LS0215": Page(
        "A division by zero",
        """\
An expression divides by a value that is zero in one of the records (also as a % b, pmod, div). Spark
raises rather than guess, floats too (ANSI mode), and every replica meets the same record: the job stops,
and nothing of that epoch is published. The error names the step and the expression where Spark knows them.

Say what should come out: F.try_divide(a, b) and F.try_mod(a, b) give null, in SQL try_divide(a, b) and
try_mod(a, b); or .filter("b <> 0") before. Then run the job again: it goes on with that epoch.""",
    ),
    "LS0216": Page(
        "A number too large for its type",
        """\
An addition, a multiplication, a cast or a sum has left the range of its type: a bigint ends at
9,223,372,036,854,775,807, a sum of bigints is a bigint, a sum of decimal(10,2) is a decimal(20,2). Spark
raises rather than wrap around (ANSI mode); every replica meets the same records, so the job stops, and
nothing of that epoch is published. Only the result of a sum of whole numbers or floats has to fit: it may
leave the range on the way and come back, in whatever order the records come.

Compute in a larger type: F.sum(F.col("x").cast("decimal(38,0)")), F.col("a").cast("bigint") * 1000. Or let
it give null: F.try_add, F.try_subtract, F.try_multiply, try_cast(x AS int).""",
    ),
    "LS0221": Page(
        "A function that makes no sense in a stream",
        """\
Some functions of pyspark are about whole tables (sorting, row_number, broadcast), make several
records of one (explode), or register Python code (udf). A
stream has no end, and a step of a job is more than a function. The error names what to use: mostly
.flat_map, .map, or .key_by(...).window(...).agg(...).""",
    ),
    "LS0222": Page(
        "Arguments do not fit a function",
        """\
The number or the names of the arguments are not those of the function in pyspark.sql.functions, a
condition of F.when is no expression, or .otherwise() does not follow F.when(...). The error shows
how the function is called. help() of the same function in pyspark has examples.""",
    ),
    "LS0223": Page(
        "A value that cannot stand in an expression",
        """\
Expressions are made of columns, functions and plain values: text, numbers, True and False, None,
dates, datetimes, decimal.Decimal, bytes, and lists of these. Whole numbers have 64 bits. Anything
else (a stream, a set, an object of your own) has no form in a column. Where a condition is wanted,
give an expression, a text in SQL, or a lambda: lambda r: r.n > 5.""",
    ),
    "LS0224": Page(
        "An aggregate function where there is one record",
        """\
.filter, .select, .with_columns and keys look at one record at a time, and an aggregate cannot be
inside another. count, sum and the like need many records:
    .key_by("user").agg(n=F.count("*"))
The result is a stream again, which .filter("n > 5") and the others can use.""",
    ),
    "LS0225": Page(
        "An aggregation without an aggregate function",
        """\
.agg(...) makes one record out of many. Each of its columns has to say how: F.count("*"),
F.sum("price"), F.max("at"); as a text "count(*)", not "count()". A column beside an aggregate function
(F.sum("a") + F.col("b")) has many values, so it must be one of the keys, or be aggregated too.""",
    ),
}
