"""Gaps, latencies and curves: what the demo says of itself is what the reader saw."""

from __future__ import annotations

import pytest

from lockstep.bench.demo.checking import Alert, Comparison
from lockstep.bench.demo.figures import BARS, Point, curve, gap_across_s, span, sparkline
from lockstep.bench.demo.part import Part
from lockstep.bench.demo.results import Results, measured
from lockstep.bench.demo.watching import SeenEpoch
from lockstep.clock import US_PER_S
from tests.unit.bench_demo.parts_for_demo import part, seen_epochs

ALERT = Alert(1, 0, US_PER_S, 1, 5)


def test_a_gap_counts_where_it_ends_even_if_it_began_before_the_span() -> None:
    seen = seen_epochs([1.0, 2.0, 9.0, 9.5])
    assert span(seen, 5 * US_PER_S, 20 * US_PER_S).gap_max_s == pytest.approx(7.0)
    assert span(seen, 0, 5 * US_PER_S).gap_max_s == pytest.approx(1.0)


def test_the_gap_around_a_kill_is_between_the_epochs_before_and_after_it() -> None:
    seen = seen_epochs([1.0, 2.0, 9.0, 9.5])
    assert [gap_across_s(seen, int(at_s * US_PER_S)) for at_s in (0.5, 1.5, 4.0, 9.0, 9.7)] == [0.0, 1.0, 7.0, 0.5, 0.0]


def test_latencies_are_those_of_the_epochs_that_had_records() -> None:
    seen = [*seen_epochs([1.0, 2.0], latency_s=0.3), SeenEpoch(2, 3 * US_PER_S, None, 0, "r0.1")]
    found = span(seen, 0, 10 * US_PER_S)
    assert found.epochs == 3
    assert found.latency_p50_s == found.latency_max_s == pytest.approx(0.3)
    assert len(curve(seen, zero_us=0)) == 2


def test_an_outage_shows_in_the_table_of_the_part_that_had_it() -> None:
    outage = [
        *seen_epochs([float(second) for second in range(1, 30)]),
        SeenEpoch(29, 45 * US_PER_S, 30 * US_PER_S, 1, "r0.2"),
        SeenEpoch(30, 46 * US_PER_S, 45 * US_PER_S, 1, "r0.2"),
    ]
    results = Results((measured(part(1, outage)), measured(part(2))), took_s=140.0)
    rows = {row.label: row.values for row in results.rows()}
    assert rows["longest gap after each kill"] == ("16.0 s", "1.00 s, 1.00 s")
    assert rows["gap around each kill"] == ("16.0 s", "1.00 s, 1.00 s")
    assert rows["latency after each kill, max"] == ("15.0 s", "0.20 s, 0.20 s")
    assert rows["longest gap before"] == ("1.00 s", "1.00 s")
    assert rows["killed replica back after"] == ("15.0 s", "15.0 s, not awaited")
    assert results.top_s == pytest.approx(15.0)


def test_a_story_without_fault_has_nothing_to_complain_of() -> None:
    results = Results((measured(part(1)), measured(part(2))), took_s=140.0)
    assert results.complaints == []
    assert results.to_json()["ok"] is True


@pytest.mark.parametrize(
    ("faulty", "said"),
    [
        (part(comparison=Comparison(500, 499, lost=(ALERT,))), "1 alerts lost"),
        (part(comparison=Comparison(500, 501, repeated=(ALERT,))), "more than once"),
        (part(comparison=Comparison(500, 500, wrong=("x",))), "wrong"),
        (part(digests_different=2), "2 epochs have digests that differ"),
        (part(epochs_compared=0), "nothing was compared"),
        (part(records_missing=3), "were acknowledged, the journal holds"),
    ],
)
def test_every_broken_promise_is_a_complaint(faulty: Part, said: str) -> None:
    results = Results((measured(part(1)), measured(faulty)), took_s=140.0)
    assert results.to_json()["ok"] is False
    assert [said in complaint for complaint in results.complaints] == [True]


def test_the_line_of_bars_grows_through_a_gap_and_is_blank_where_nothing_is_known() -> None:
    line = sparkline([Point(0.0, 0.0), Point(8.0, 8.0)], first_s=-2.0, end_s=10.0, top_s=8.0, width=12)
    assert line[:1] == " "
    assert line[-1:] == " "
    assert line.strip() == "".join(sorted(line.strip(), key=BARS.index))
    assert BARS[-1] in line
