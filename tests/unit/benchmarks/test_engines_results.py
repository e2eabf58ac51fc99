"""Results compared, and waits told from seen_rows."""

from __future__ import annotations

from benchmarks.engines.catalogue import workload
from benchmarks.engines.checking import compare
from benchmarks.engines.contract import CLOSING_MS, Row, SeenRow


def _window(key: str, start: int, events: int = 1, total: int = 5) -> Row:
    return {"key": key, "window_start_ms": start, "events": events, "total": total}


def test_right_results_agree_and_closing_windows_do_not_count() -> None:
    rows = [_window("a", 1000), _window("a", 2000), _window("a", CLOSING_MS)]
    found = compare(workload("tumbling_window"), rows, [_window("a", 2000), _window("a", 1000)])
    assert found.agrees
    assert (found.expected, found.published, found.lost, found.repeated, found.wrong) == (2, 2, 0, 0, 0)


def test_lost_repeated_and_wrong_results_are_told_apart() -> None:
    rows = [_window("a", 1000), _window("a", 1000), _window("b", 1000, events=9), _window("x", 0)]
    found = compare(workload("tumbling_window"), rows, [_window(key, 1000) for key in "abc"])
    assert not found.agrees
    assert (found.lost, found.repeated, found.wrong) == (1, 1, 2)
    assert found.examples[0] == "('c', 1000, 1, 5) is missing"


def test_of_updates_only_the_last_has_to_be_right() -> None:
    rows = [{"word": "a", "count": 1, "seq": 0}, {"word": "a", "count": 3, "seq": 2}]
    assert compare(workload("word_count"), rows, [{"word": "a", "count": 3}]).agrees
    assert compare(workload("word_count"), rows[:1], [{"word": "a", "count": 3}]).wrong == 1


def test_an_update_seen_again_is_a_repetition() -> None:
    rows = [{"word": "a", "count": count, "seq": count} for count in (1, 2, 1, 2, 3)]
    found = compare(workload("word_count"), rows, [{"word": "a", "count": 3}])
    assert (found.repeated, found.wrong) == (2, 0)


def test_results_without_a_key_are_compared_as_often_as_they_come() -> None:
    bid = {"auction": 1, "price": 2}
    found = compare(workload("nexmark_q2"), [bid, bid, {"auction": 9, "price": 9}], [bid, {"auction": 2, "price": 2}])
    assert (found.lost, found.repeated, found.wrong) == (1, 1, 1)


def test_averages_may_differ_in_the_last_digits() -> None:
    found = compare(workload("nexmark_q4"), [{"category": 1, "average": 0.1 + 0.2}], [{"category": 1, "average": 0.3}])
    assert found.agrees


def test_no_expected_result_at_all_proves_nothing() -> None:
    assert not compare(workload("word_count"), [], []).agrees


def test_a_record_waits_until_a_row_of_its_key_covers_it() -> None:
    one = workload("word_count")
    lines = [{"seq": seq, "sent_us": seq * 1000, "text": "a"} for seq in range(3)]
    seen = [SeenRow(5000, {"word": "a", "count": 2, "seq": 1}), SeenRow(9000, {"word": "a", "count": 3, "seq": 2})]
    waits = one.visible({"lines": lines}).waits_ms(seen)
    assert [wait.wait_ms for wait in waits] == [5.0, 4.0, 7.0]


def test_a_row_per_record_gives_a_wait_once() -> None:
    one = workload("chain_1")
    records = {"events": one.records("events", 0, 2, 1000)}
    row = {"seq": 1, "value": 0, "hops": 1}
    waits = one.visible(records).waits_ms([SeenRow(4000, row), SeenRow(8000, row)])
    assert [wait.wait_ms for wait in waits] == [3.0]


def _events(*times_ms: int) -> list[Row]:
    return [{"seq": seq, "sent_us": at * 1000, "at_ms": at, "key": "a", "amount": 1} for seq, at in enumerate(times_ms)]


def test_a_window_waits_from_the_record_that_made_it_final() -> None:
    one = workload("tumbling_window")
    records = {"events": [*_events(1200, 2400, 2600, 9000), *one.closing("events", 4, 99_000_000)]}
    rows = [SeenRow(2_700_000, _window("a", 1000)), SeenRow(9_900_000, _window("a", 9000))]
    waits = one.visible(records).waits_ms(rows)
    # The window from 1000 to 2000 is final at 2500, which the record at 2600 shows; nothing shows it for the last.
    assert [(wait.sent_us, wait.wait_ms) for wait in waits] == [(2_600_000, 100.0)]


def test_a_window_over_two_inputs_waits_from_the_first_that_has_passed_it() -> None:
    one = workload("two_rates")
    records = {"fast": _events(1200, 2500, 4000), "slow": _events(1500, 3100)}
    waits = one.visible(records).waits_ms([SeenRow(3_200_000, _window("a", 1000))])
    assert [(wait.source, wait.sent_us, wait.wait_ms) for wait in waits] == [("fast", 2_500_000, 700.0)]


def test_what_an_engine_waits_for_a_quiet_input_is_part_of_the_wait() -> None:
    one = workload("quiet_input", quick=True)
    records = {
        "steady": _events(*range(0, 40_000, 500)),
        "moody": _events(*range(0, 10_000, 500), *range(25_000, 40_000, 500)),
    }
    waits = one.visible(records).waits_ms([SeenRow(25_600_000, _window("a", 12_000))])
    assert [(wait.source, wait.wait_ms) for wait in waits] == [("steady", 12_100.0)]
