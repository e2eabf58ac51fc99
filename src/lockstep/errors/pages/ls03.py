"""Pages of the codes LS03xx."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0301": Page(
        "A Python function raised",
        """\
The function of a .map, .flat_map or .map_batches step raised an exception. The message names the
step, the line of your code, the exception and the record that it was given.

Every replica meets the same record in the same epoch, so starting again would fail again: the job
stops, and nothing of that epoch is published. No record is lost. What to do, in order:

1. Mend the function and run the job again. It goes on with the very epoch that failed.
2. Or let the step pass over such records: on_error="skip" puts each into the job's dead-letter
   journal, once, with the error beside it, and the job goes on. `lockstep tail JOB.dead-letters`
   shows them. (.map_batches gets whole batches, and can only fail.)

If the function asks another service, remember that replicas may get different answers: such
questions belong before the job or after it.""",
    ),
    "LS0302": Page(
        "A Python function returned something that is no record",
        """\
What the function returned cannot be read as a record of the step's schema=. Allowed are a dict, a
tuple with one value for each column in order, a dataclass, or the record that came in; .flat_map
returns a list of those (or yields them), and .map_batches a pyarrow RecordBatch or Table.

Usual causes: a branch of the function that ends without `return` (the message then shows None), a
.map that wants to drop a record (use .filter, or .flat_map with an empty list), a field that
schema= does not have, or one record where .flat_map expects a list of them.""",
    ),
    "LS0303": Page(
        "A Python function returned a value of another type",
        """\
The columns are right, but a value does not fit the type that schema= gives it: text where a number
is expected, a number that is too large for int, a float for bigint, a time that is a text.
The message shows Arrow's own words and the whole record.

Convert the value in the function, or change the type in schema=. For .map_batches the names of the
columns must be those of schema= too. Values are not converted silently: a replica with another
version of a library might convert them differently.""",
    ),
    "LS0304": Page(
        "map_batches changed the number of records after event_time",
        """\
After .event_time every record has its event time, which travels beside it, hidden. A batch function
that returns more or fewer rows than it was given leaves nobody able to say which of them had which
time.

Put .event_time after this step (then the rows that it returns get theirs), or use .flat_map, where
each new record inherits the time of the record that it was made from.""",
    ),
    "LS0305": Page(
        "map_batches changed the number of records before a step that needs their order",
        """\
Records have a position (source, partition, offset), which travels beside them, hidden. Steps by key,
sinks with a key and dead letters use it, so that every replica sees records in the same order. A batch
function that returns more or fewer rows than it was given leaves nobody able to say which record each
row was made from, and batches are cut differently in every replica: so would be the order.

Use .flat_map, where each new record has the position of the one that it was made from. Or return one
row for each record: mark what is to go and .filter(...) it, return arrays and .explode(...) them. (With
native aggregations, .agg(...) by expressions, and sinks without a key, the order does not matter, and
batches may grow and shrink.)""",
    ),
}
