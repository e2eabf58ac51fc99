"""Pages of the codes LS016x: windows and triggers; and LS0360, what goes wrong inside them."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0160": Page(
        "A trigger that never fires",
        """\
Nothing would ever come out of the window. An interval is longer than zero, a count is at least one.
A global window has no end, so it needs a trigger that fires by itself: ls.every("10 seconds") or
ls.on_count(100). Late firings, ls.late(...), need .allowed_lateness(...): without it a window is
gone when it ends, and no record comes late to it.""",
    ),
    "LS0161": Page(
        "A negative lateness",
        """\
.allowed_lateness("1 minute") keeps a window for a minute of event time after its end, and gives
another result when a record comes for it in that time. It cannot be less than zero. To close
windows earlier, make out_of_order= of .event_time(...) smaller.""",
    ),
    "LS0162": Page(
        "An option that this kind of window does not have",
        """\
Late records, and what to do with them, exist only where event time decides which window a record
belongs to. Windows of processing time take each record in the epoch it comes in; count windows are
full or not; a global window never ends.

A count window gives its result when it is full, so it has no trigger and no updates; a global
window with ls.on_count(...) does what a count window with a trigger would.""",
    ),
    "LS0163": Page(
        "A function of a window that cannot be called",
        """\
.reduce(function) calls it with two records and gets one back. .fold(initial, function) calls it
with the value so far and a record, and gets the new value back. .process(function) calls it with
the list of the window's records and the window (key, start, end, pane, ...), and gets a dict, or
any number of them. In each case these are two arguments. For .process an object with a method
process(records, window) does too: write a subclass of ls.WindowFunction and pass an instance of
it.

.aggregate(...) takes an instance of a subclass of ls.WindowAggregator with three methods: create()
returns a new accumulator, add(accumulator, record) the next one, finish(accumulator) the result.""",
    ),
    "LS0164": Page(
        "Contradicting options of a window",
        """\
.updates() gives the new result of a window in every epoch that changes it. .trigger(...) says
otherwise when results come. Choose one: .updates() for tables that should always show the newest
value, a trigger for anything more particular.""",
    ),
    "LS0165": Page(
        "Not a trigger, or not a window assigner",
        """\
.trigger(...) takes ls.at_watermark(...), ls.every("10 seconds"), ls.on_count(100), ls.early(...) or
ls.late(...). early= and late= of ls.at_watermark take ls.every(...), ls.on_count(...) or
ls.early(...) and ls.late(...).

time= of a window is "event" or "processing". Windows by ingestion time, when records came into the
journal or topic, are windows of event time: ls.journal("hits", schema=..., timestamp_column="arrived"),
and then .event_time("arrived"). An assigner of your own is an instance
of a subclass of ls.WindowAssigner with a method assign(record) that returns a list of pairs
(start, end) of datetimes.""",
    ),
    "LS0166": Page(
        "A window over a column that does not follow event time",
        """\
A window closes when event time has passed its end. So the column that puts records into windows,
over= of .window(...), is the event time itself, or lies at a fixed distance from it: window_end of the
results of an earlier window of event time (of any number of them, one over the other), and window_start
if that window has a fixed length (a session has none).

Another column of the results of a window can be declared as their event time:
.event_time("closed_at", out_of_order="1 minute").""",
    ),
    "LS0167": Page(
        "The top of nothing, or of too many",
        """\
.top(3, by="delay") keeps three records for each key and window, and gives each its rank. The number is
a whole one from 1 to 1000. For more, write the records to a sink and sort them there, or use
.process(function, schema=...), which sees all records of a window.""",
    ),
    "LS0360": Page(
        "A window assigner returned something that is no list of windows",
        """\
assign(record) of a window assigner returns a list of pairs (start, end), both datetimes with a time
zone (a datetime without one is read as UTC), and start before end. An empty list means that the
record is in no window; it counts as late. The assigner sees nothing but the record and must
give the same answer for it in every replica: no clocks, no random numbers, no state of its own.""",
    ),
}
