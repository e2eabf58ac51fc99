"""What the benches feed and how they look on: events, feeder, observer, sales."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from lockstep.bench.events import Sent, batch, expected_windows, json_lines, read_sent, waits_ms
from lockstep.bench.feeder import feed
from lockstep.bench.gaps import SeenEpoch
from lockstep.bench.observer import epoch_file, observe, read_seen_epochs
from lockstep.bench.sales import CLOSING_KEY, Sales, differing, expected, in_order, lines, write_sales
from lockstep.bench.stopping import Stop
from lockstep.bench.throughput import Step, rate


def test_the_journal_and_the_socket_get_the_same_events() -> None:
    sent = Sent(first=998, count=5, at_us=1_700_000_000_000_001)
    from_socket = [json.loads(line) for line in json_lines(sent).splitlines()]
    from_journal = batch(sent).to_pylist()
    assert [(one["seq"], one["customer"]) for one in from_socket] == [
        (one["seq"], one["customer"]) for one in from_journal
    ]
    assert {one["at_us"] for one in from_socket} == {sent.at_us}
    assert {int(one["at"].timestamp() * 1e6) for one in from_journal} == {sent.at_us}


def test_expected_windows_hold_every_event_once() -> None:
    sent = [Sent(0, 300, 1_999_999), Sent(300, 200, 2_000_000)]
    windows = expected_windows(sent, window_us=2_000_000)
    assert sum(events for events, _ in windows.values()) == 500
    assert sum(total for _, total in windows.values()) == sum(range(500))
    assert sum(events for (_, start), (events, _) in windows.items() if start == 0) == 300


def test_waits_are_those_that_a_look_at_each_event_gives() -> None:
    sent = [Sent(0, 3, 1_000), Sent(3, 2, 5_000), Sent(5, 4, 9_000)]
    visible = [(1, 6_000), (4, 8_000), (4, 8_500), (8, 20_000)]
    at = {seq: one.at_us for one in sent for seq in range(one.first, one.first + one.count)}
    seen = {seq: min(when for last, when in visible if last >= seq) for seq in at}
    wanted = [(seen[seq] - at[seq]) / 1000 for seq in sorted(at) if seen[seq] >= 7_000]
    assert waits_ms(sent, visible, from_us=7_000).tolist() == wanted


class _Time:
    """A clock that moves by a fixed step at every look, and says stop after some of them."""

    def __init__(self, step_us: int, looks: int) -> None:
        self.now_us = 0
        self.stop = Stop()
        self._step_us, self._looks = step_us, looks

    def __call__(self) -> int:
        self.now_us += self._step_us
        self._looks -= 1
        if self._looks <= 0:
            self.stop.ask()
        return self.now_us


def test_a_feeder_keeps_its_rate_without_a_gap_or_a_repeat() -> None:
    clock = _Time(step_us=500_000, looks=10)
    sent: list[Sent] = []
    noted: list[Sent] = []

    def send(one: Sent) -> None:
        assert noted == sent, "what was sent before is noted before the next is sent"
        sent.append(one)

    feed(send, noted.append, rate=1000, stop=clock.stop, clock=clock)
    assert [one.first for one in sent[1:]] == [one.first + one.count for one in sent[:-1]]
    assert all(one.first + one.count <= one.at_us / 1e6 * 1000 for one in sent)
    assert sent[-1].first + sent[-1].count >= 3000
    assert noted == sent


def test_a_feeders_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    log = tmp_path / "sent.log"
    log.write_text("0 10 111\n10 5 222\n")
    assert read_sent(log) == [Sent(0, 10, 111), Sent(10, 5, 222)]


def test_an_observer_notes_epochs_in_order_and_none_beyond_a_gap(tmp_path: Path) -> None:
    seen: list[SeenEpoch] = []
    stop = Stop()
    thread = threading.Thread(target=observe, args=(tmp_path, ".json", seen.append, stop))
    thread.start()
    for epoch in (0, 1, 3):
        Path(epoch_file(tmp_path, epoch, ".json")).touch()
    while len(seen) < 2:
        stop.wait(0.001)
    stop.ask()
    thread.join()
    assert [epoch for epoch, _ in seen] == [0, 1]


def test_a_line_that_is_still_being_written_is_left_for_later(tmp_path: Path) -> None:
    log = tmp_path / "seen.log"
    log.write_text("0 100\n1 200\n2 3")
    assert read_seen_epochs(log) == [(0, 100), (1, 200)]
    assert read_seen_epochs(tmp_path / "missing") == []


def test_expected_sales_are_those_that_a_plain_loop_counts(tmp_path: Path) -> None:
    source = tmp_path / "sales"
    write_sales(source, Sales(records_per_file=2_000, warm_up_files=1, measured_files=2))
    wanted: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for path in source.glob("sales-0*.jsonl"):
        for line in path.read_text().splitlines():
            record = json.loads(line)
            minute = int(datetime.fromisoformat(record["ts"]).timestamp()) // 60 * 60_000_000
            wanted[record["key"], minute][0] += 1
            wanted[record["key"], minute][1] += record["amount"]
    rows = [(row["key"], row["window_start"], row["events"], row["total"]) for row in expected(source).to_pylist()]
    assert sorted(rows) == sorted((key, start, *counts) for (key, start), counts in wanted.items())
    assert sum(row[2] for row in rows) == 6_000


def test_sales_are_the_same_however_they_are_cut_into_pieces() -> None:
    assert [*lines(0, 70), *lines(70, 30)] == list(lines(0, 100))


def test_files_of_sales_are_in_the_order_of_their_times_with_the_closing_ones_last(tmp_path: Path) -> None:
    source = tmp_path / "sales"
    write_sales(source, Sales(records_per_file=10, warm_up_files=2, measured_files=2))
    by_time = sorted(source.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    assert [path.name for path in by_time] == sorted(path.name for path in by_time)
    assert by_time[-1].name.startswith("sales-closing")


def test_a_difference_in_one_row_is_found_and_a_repeated_row_too() -> None:
    columns = {"window_start": [0, 0], "events": [1, 2], "total": [3, 4]}
    wanted = in_order(pa.table({"key": ["a", "b"], **columns}))
    other = in_order(pa.table({"key": ["a", "b"], **columns, "events": [1, 9]}))
    assert differing(wanted, wanted) == 0
    assert differing(other, wanted) == 2
    assert differing(in_order(pa.concat_tables([wanted, wanted.slice(0, 1)])), wanted) == 1


def test_the_closing_records_are_not_compared() -> None:
    rows = pa.table({"key": ["a", CLOSING_KEY], "window_start": [0, 0], "events": [1, 1], "total": [3, 0]})
    assert in_order(rows).num_rows == 1


def test_a_rate_counts_the_pauses_between_batches() -> None:
    assert rate([Step(11.0, 12.0, 50), Step(14.0, 15.0, 50)], since_s=10.0) == 20.0


def test_nanoseconds_and_microseconds_are_the_same_time() -> None:
    at = [datetime(2024, 1, 1)]
    tables = [
        pa.table({"key": ["a"], "window_start": pa.array(at, pa.timestamp(unit)), "events": [1], "total": [2]})
        for unit in ("us", "ns")
    ]
    assert differing(in_order(tables[0]), in_order(tables[1])) == 0
