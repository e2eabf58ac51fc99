"""Pages of the codes LS017x: rolling results, distinct, branches."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0170": Page(
        "An aggregate that cannot be added up record by record",
        """\
Where results are given for each record, in windows with triggers, and where an aggregate of Spark would
depend on the order of records, Lockstep adds records up itself. It knows count, count_if,
count_distinct, approx_count_distinct, sum, avg, min, max, min_by, max_by, bool_and, bool_or, bit_and,
bit_or, bit_xor, collect_set, collect_list, first, last, median, percentile, stddev, variance, covar
and corr (pop and samp), each on its own. A percentile is a number from 0 to 1, or a list of them.

An expression around aggregates belongs into the step after: instead of
    .agg(mean=F.sum("ms") / F.count("*"), per_record=True)
write
    .agg(total=F.sum("ms"), n=F.count("*"), per_record=True).with_columns(mean="total / n")""",
    ),
    "LS0171": Page(
        "An aggregate over a type that it does not take",
        """\
Sums, averages, percentiles and spreads are of numbers, bool_and, bool_or and count_if of booleans,
bit_and and its like of whole numbers; min, max and what has to tell values apart need a type with an
order, which a map has not. Nothing is converted silently. Convert first, for example
F.sum(F.col("ms").cast("bigint")).""",
    ),
    "LS0172": Page(
        "The initial value of a fold does not fit its schema",
        """\
.fold(initial, function, schema=...) gives the function's accumulator as the result, and that has the
fields of the schema. So the initial value has them too: a dict such as {"n": 0, "total": 0.0}, or a
tuple in the order of the fields. With a single field its value alone will do: .fold(0, ..., schema="n
bigint"). Types count as well: 0 is a bigint, 0.0 a double.""",
    ),
    "LS0173": Page(
        "distinct or dedup without a time bound",
        """\
To know whether a record was there before, .distinct(...) (and .dedup) has to remember what it has let through.
Without a bound that grows for ever. within="10 minutes" says how far apart in time two records with the
same key may be and still be duplicates; choose it longer than a duplicate can come after its first (a
producer's retries, say). Afterwards the key is forgotten.

keep= of .dedup(...) is "first" or "last". The last is known when no other can come within the bound.""",
    ),
    "LS0174": Page(
        "A branch that is not there",
        """\
.split(fast="ms < 100", slow="ms < 1000") gives an object with a stream for each name, as attributes or
items, and one called rest with the records that fit no condition. The error names the branches there
are. A branch cannot be called rest, nor anything that cannot be an attribute.""",
    ),
    "LS0175": Page(
        "explode needs one array and its name",
        """\
.explode makes a record for each element of one array: .explode("items", as_="item"), or
.explode(item="items"), or .explode(word="split(text, ' ')") for one that is computed. A map has two names,
as_=("key", "value"), an array has one. For two arrays explode one after the other, which gives a record
for every pair; F.arrays_zip puts two arrays together element by element.""",
    ),
    "LS0176": Page(
        "A union of streams whose columns have different types",
        """\
The streams have the same columns, but one of them has another type in one stream than in the other.
Spark would find a common type where it can (a bigint and a string become a string), quietly, and then
sums and comparisons after the union would mean something else.

Convert one side before the union: .with_columns(n=F.col("n").cast("bigint")).""",
    ),
}
