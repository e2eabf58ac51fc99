"""The co-group operator against a naive one that looks at all records at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.errors import FunctionError
from lockstep.keyed.codec import decode, encode, time_us
from lockstep.keyed.cogroup import CoGroupOperator
from lockstep.keyed.engine import BucketTurn
from lockstep.keyed.operator import Arrival, Cell, Timer
from lockstep.keyed.windows.assigners import Regular

SCHEMA = pa.schema(
    [("key", pa.string()), ("start", pa.int64()), ("end", pa.int64())]
    + [(side, pa.list_(pa.int64())) for side in ("left", "right")]
)
COLUMNS = (("user", "n"), ("who", "m"))


class Event(NamedTuple):
    """A record of one of the two streams."""

    key: str | None
    input: int
    at_us: int | None
    n: int


def gathered(key: Any, left: list[Any], right: list[Any], window: Any) -> list[dict[str, Any]]:
    """Both lists and the window, as a record."""
    numbers = {"left": [one.n for one in left], "right": [one.m for one in right]}
    return [{"key": key.user, "start": time_us(window.start), "end": time_us(window.end), **numbers}]


def operator(size_us: int, every_us: int, function: Any = gathered) -> CoGroupOperator:
    return CoGroupOperator("co_group", function, SCHEMA, Regular(size_us, every_us, 0), ("user",), COLUMNS)


def drive(
    made: CoGroupOperator, epochs: list[tuple[int | None, list[Event]]]
) -> list[tuple[int, tuple[Any, ...], int]]:
    """What comes out in each epoch; state goes through bytes between epochs."""
    cells: dict[Any, Any] = {}
    timers: dict[Any, Any] = {}
    found = []
    for number, (watermark_us, events) in enumerate(epochs):
        turn = BucketTurn(watermark_us, 0, 1, 0)
        for key in sorted({*timers, *(event.key for event in events)}, key=repr):
            ordered = sorted((e for e in events if e.key == key), key=lambda e: -1 if e.at_us is None else e.at_us)
            cell = Cell(decode(encode(cells.get(key))))
            turn.begin((key,), timers.get(key))
            fire(made, cell, turn)
            if ordered:
                made.on_records(cell, [Arrival(e.input, (e.key, e.n), e.at_us) for e in ordered], turn)
                fire(made, cell, turn)
            cells[key], timers[key] = cell.data if cell.changed else cells.get(key), turn.timers()
        rows = zip(turn.outputs[0].rows, turn.outputs[0].at_us, strict=True)
        found += [(number, values, at_us) for values, at_us in rows if at_us is not None]
    return found


def fire(made: CoGroupOperator, cell: Cell, turn: BucketTurn) -> None:
    while (timer := turn.next_due()) is not None:
        made.on_timer(cell, timer, turn)


def naive(
    size_us: int, every_us: int, epochs: list[tuple[int | None, list[Event]]]
) -> list[tuple[int, tuple[Any, ...], int]]:
    """Every window that could be, over everything that was in time for it."""
    found = []
    windows: dict[Any, Any] = defaultdict(lambda: ([], []))
    for number, (watermark_us, events) in enumerate(epochs):
        for event in sorted(events, key=lambda e: -1 if e.at_us is None else e.at_us):
            for start in range(-10 * every_us, 200, every_us) if event.at_us is not None else ():
                open_still = watermark_us is None or start + size_us > watermark_us
                if event.at_us is not None and start <= event.at_us < start + size_us and open_still:
                    windows[event.key, start][event.input].append((event.at_us, number, event.n))
    for (key, start), (left, right) in windows.items():
        end = start + size_us
        closed = [n for n, (watermark_us, _) in enumerate(epochs) if watermark_us is not None and watermark_us >= end]
        if closed:
            lists = [[n for *_, n in sorted(side, key=lambda one: one[:2])] for side in (left, right)]
            found.append((closed[0], (key, start, end, *lists), end - 1))
    return found


events = st.builds(
    Event,
    key=st.sampled_from(["a", "b", None]),
    input=st.integers(0, 1),
    at_us=st.one_of(st.none(), st.integers(0, 120)),
    n=st.integers(0, 1_000_000),
)


@settings(max_examples=60, deadline=None)
@given(
    window=st.sampled_from([(10, 10), (30, 10), (25, 10)]),
    batches=st.lists(st.tuples(st.integers(-20, 60), st.lists(events, max_size=12)), min_size=1, max_size=6),
    known=st.booleans(),
)
def test_windows_close_with_all_that_came_in_time(
    window: tuple[int, int], batches: list[tuple[int, list[Event]]], known: bool
) -> None:
    passed, epochs = 0, []
    for step, records in batches:
        passed += max(0, step)
        epochs.append((passed if known or passed else None, records))
    epochs.append((1000, []))

    def numbered(results: list[tuple[int, tuple[Any, ...], int]]) -> list[tuple[int, tuple[Any, ...], int]]:
        # Records of one epoch with the same time come in the order of their positions, which are not part of this test.
        return sorted(((e, (*v[:3], *map(sorted, v[3:])), at) for e, v, at in results), key=repr)

    assert numbered(drive(operator(*window), epochs)) == numbered(naive(*window, epochs))


def test_records_are_in_order_of_event_time_whatever_epoch_they_came_in() -> None:
    later, earlier = Event("a", 0, 9, 1), Event("a", 0, 3, 2)
    ((_, values, at_us),) = drive(operator(10, 10), [(0, [later]), (0, [earlier]), (10, [])])
    assert (values, at_us) == (("a", 0, 10, [2, 1], []), 9)


def test_nothing_is_kept_of_a_window_that_is_closed() -> None:
    made, cell, turn = operator(10, 10), Cell(), BucketTurn(0, 0, 1, 0)
    turn.begin(("a",), None)
    made.on_records(cell, [Arrival(0, ("a", 1), 5)], turn)
    assert cell.data == {0: ([(5, ("a", 1), ())], [])}
    made.on_timer(cell, Timer("event", 10), turn)
    assert cell.data is None


@pytest.mark.parametrize(
    ("function", "code"),
    [(lambda *_: 1 / 0, "LS0301"), (lambda *_: [{"other": 1}], "LS0302"), (lambda *_: {"start": "x"}, "LS0303")],
)
def test_a_function_that_raises_or_returns_nonsense_is_explained(function: Any, code: str) -> None:
    with pytest.raises(FunctionError) as caught:
        drive(operator(10, 10, function), [(0, [Event("a", 0, 5, 1)]), (10, [])])
    assert caught.value.code == code
    assert "1 and 0 records" in caught.value.why


def test_a_function_may_return_nothing_one_record_or_several() -> None:
    for made, count in ((None, 0), ({"key": "x"}, 1), (({"key": str(n)} for n in range(3)), 3)):
        found = drive(operator(10, 10, lambda *_, made=made: made), [(0, [Event("a", 1, 5, 1)]), (10, [])])
        assert len(found) == count
