"""Chains of pass-through steps, inputs of different rates, an input that goes quiet, and windows over much input."""

from __future__ import annotations

from benchmarks.engines.contract import Input, Records, Results, Row
from benchmarks.engines.workloads.basic import (
    CLOSING_EVENTS,
    EVENT,
    OUT_OF_ORDER_MS,
    WINDOW_MS,
    event,
    late_ms,
    sums,
    window_sums,
)
from benchmarks.engines.workloads.definition import Definition, mixed

CHAIN_LENGTHS = (1, 2, 3, 4)
QUIET_FROM_S = 10.0
QUIET_S, QUIET_QUICK_S = 90.0, 15.0
BOUNDED, BOUNDED_QUICK = 2_000_000, 300_000
BOUNDED_KEYS = 1000
BOUNDED_WINDOW_MS = 10_000
BOUNDED_BEGIN_MS = 1_704_067_200_000
"""2024-01-01; one record every millisecond of event time."""


def step_record(_source: str, seq: int, _sent_us: int) -> Row:
    """A record on its way through a chain."""
    return {"value": mixed(seq), "hops": 0}


def chain(length: int) -> Definition:
    """So many steps in a row, each a Python function that gives the record back with one hop more."""

    def passed(records: Records) -> list[Row]:
        return [{"seq": row["seq"], "value": row["value"], "hops": length} for row in records["events"]]

    columns = (("seq", "bigint"), ("sent_us", "bigint"), ("value", "bigint"), ("hops", "bigint"))
    return Definition(
        name=f"chain_{length}",
        title=f"chain of {length} pass-through step{'s' if length > 1 else ''}",
        inputs=(Input("events", 5000, columns),),
        steps=f"{length} Python function(s) in a row that pass each record on with hops + 1",
        results=Results.EACH,
        columns=("seq", "value", "hops"),
        key=("seq",),
        make=step_record,
        reference=passed,
    )


def _united(name: str, title: str, inputs: tuple[Input, ...]) -> Definition:
    return Definition(
        name=name,
        title=title,
        inputs=inputs,
        steps="both inputs in one; number and sum of amounts by key and second of event time, once when final",
        results=Results.FINAL,
        columns=("key", "window_start_ms", "events", "total"),
        key=("key", "window_start_ms"),
        make=event,
        reference=window_sums,
        closing_keys={one.source: CLOSING_EVENTS for one in inputs},
        window_ms=WINDOW_MS,
        out_of_order_ms=OUT_OF_ORDER_MS,
    )


def two_rates() -> Definition:
    """One input of 10,000 records a second, one of 5: the slow one must not hold the other back for long."""
    inputs = (Input("fast", 10_000, EVENT), Input("slow", 5, EVENT))
    return _united("two_rates", "inputs of 10,000/s and 5/s", inputs)


def quiet_input(*, quick: bool) -> Definition:
    """Two inputs of which one says nothing for a long time: results of the other have to go on."""
    until_s = QUIET_FROM_S + (QUIET_QUICK_S if quick else QUIET_S)
    inputs = (Input("steady", 1000, EVENT), Input("moody", 1000, EVENT, (QUIET_FROM_S, until_s)))
    return _united("quiet_input", f"an input quiet for {until_s - QUIET_FROM_S:.0f} s", inputs)


def bounded_event(_source: str, seq: int, _sent_us: int) -> Row:
    """Up to a second out of order; from other bits than the key, so that every key has all amounts."""
    mix = mixed(seq)
    late = mix // 7 % 1000 if seq > 1000 else 0
    return {
        "at_ms": BOUNDED_BEGIN_MS + seq - late,
        "key": f"k{mix % BOUNDED_KEYS:04d}",
        "amount": (mix >> 14) % 1000,
    }


def bounded_window(*, quick: bool) -> Definition:
    """Windows over a large input that is there at once: how much an engine gets through."""
    return Definition(
        name="bounded_window",
        title="windows over 2 million JSON events",
        inputs=(Input("events", 1000, EVENT),),
        steps="number and sum of amounts by key and ten seconds of event time, up to 2 s out of order, once when final",
        results=Results.FINAL,
        columns=("key", "window_start_ms", "events", "total"),
        key=("key", "window_start_ms"),
        make=bounded_event,
        reference=lambda records: sums(records, BOUNDED_WINDOW_MS),
        closing_keys={"events": tuple({"key": f"k{number:04d}", "amount": 0} for number in range(BOUNDED_KEYS))},
        window_ms=BOUNDED_WINDOW_MS,
        out_of_order_ms=2000,
        bounded_records=BOUNDED_QUICK if quick else BOUNDED,
    )


__all__ = ["CHAIN_LENGTHS", "bounded_window", "chain", "late_ms", "quiet_input", "two_rates"]
