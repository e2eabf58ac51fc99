"""Pages of the codes LS0311 to LS0316: state and timers of process functions."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0311": Page(
        "A value that cannot be kept in state",
        """\
State is written to disk in every epoch, in a form that is the same in every replica and that can be
read without running code: None, bool, int, float, str, bytes, Decimal, date, datetime, and lists,
tuples and dicts of them. An object of a class of your own, a set or a function is none of these.

Keep the fields of the object, and make it again when you read them; keep a set as a sorted list.""",
    ),
    "LS0312": Page(
        "A timer that sets itself again without end",
        """\
A timer whose time has come fires at once, in the same epoch. A timer that sets the next one, and that
one is due already, goes on for ever: after 100,000 timers of one key in one epoch the job stops.

This happens after a pause, or with old data, if a timer sets the next one a little later than itself
and its clock is years ahead. Set the next timer from the present: ctx.epoch_time + interval, or
max(timer.at, ctx.watermark) + interval.""",
    ),
    "LS0313": Page(
        "A state was given a value of another type",
        """\
The state says which type it holds (ls.value_state("bigint")), and the value that was set is of
another. The message names the state and shows the value. Convert the value, or change the type where
the state is declared; then the state of older runs cannot be read any more, and the job says so when
it starts (LS0609).""",
    ),
    "LS0314": Page(
        "A timer that cannot be set",
        """\
An event-time timer (ctx.set_timer) follows the event time of the stream, so there must be one:
.event_time("at", out_of_order="5 seconds") before .key_by(...). Without it, use
ctx.set_epoch_timer(after="10 minutes"), which follows epoch time, the job's own clock.

The time of a timer is a datetime. A timer in the past is allowed: it fires at once, after the record
that is being handled.""",
    ),
    "LS0315": Page(
        "Broadcast state is written outside of on_broadcast",
        """\
Broadcast state is one for all keys, and every part of the job has a copy. The copies stay equal
because every part sees the same broadcast records, in the same order, and nothing else writes to it.
A record of a key is seen by one part only: if it wrote to broadcast state, the copies would differ.

Write it in on_broadcast; keep what belongs to a key in ls.value_state and the like.""",
    ),
    "LS0316": Page(
        "State, timers or results without a key",
        """\
A key has its turn when one of its records or timers is handled. on_broadcast runs for no key, once in
every part of the job: it can write broadcast state, and nothing else. What it emitted would come out
once for each part, and a timer or the state of a key would belong to nobody. A stream without a key
has no timers either.

There is state only while a record or a timer of a key is handled: in on_record, on_timer and the
other methods that Lockstep calls. In __init__, or on an instance made by hand, there is no key yet.

To try a process function without Spark, use ProcessTester from lockstep.testing: it feeds it records
and moves the clocks.""",
    ),
}
