"""The pure parts of the benches: statistics, gaps around a kill, verdicts and their two forms."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lockstep.bench.checking import Check, compare
from lockstep.bench.gaps import disturbance, gaps_before, longest_gap_after, wants_sealer
from lockstep.bench.report import Figures, Report, Verdict, as_json, save, show
from lockstep.bench.statistics import Row, percentile, spread

S = 1_000_000


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_percentile_is_the_nearest_rank_one(values: list[float], part: float) -> None:
    # numpy multiplies the part with the count as we do not, so both neighbours of a rank on the edge are right.
    wanted = {float(np.percentile(values, 100 * near, method="inverted_cdf")) for near in (part - 1e-12, part)}
    assert percentile(values, part) in wanted


def test_a_percentile_of_nothing_is_not_a_number() -> None:
    assert math.isnan(percentile([], 0.5))


def test_the_spread_of_a_single_measurement_is_nothing() -> None:
    assert spread([5.0]) == 0.0


def test_the_gap_in_which_the_kill_fell_counts_from_its_beginning() -> None:
    seen = [(0, 1 * S), (1, 2 * S), (2, 7 * S), (3, 8 * S)]
    assert longest_gap_after(seen, kill_us=4 * S, after_s=4)[0] == 5.0


def test_a_gap_before_the_kill_is_not_held_against_it() -> None:
    seen = [(0, 0), (1, 9 * S), (2, 10 * S), (3, 11 * S), (4, 12 * S)]
    assert longest_gap_after(seen, kill_us=10 * S + 1, after_s=2)[0] == 1.0


def test_output_that_never_comes_back_is_a_gap_to_the_end_of_the_time() -> None:
    seen = [(0, 1 * S), (1, 2 * S)]
    assert longest_gap_after(seen, kill_us=3 * S, after_s=20)[0] == 21.0


def test_output_that_stops_later_is_a_gap_too() -> None:
    seen = [(0, 1 * S), (1, 2 * S), (2, 3 * S)]
    assert longest_gap_after(seen, kill_us=int(2.5 * S), after_s=10)[0] == 9.5


def test_gaps_before_the_kill_lie_wholly_in_the_time_before() -> None:
    seen = [(0, 0), (1, 5 * S), (2, 6 * S), (3, 8 * S), (4, 12 * S)]
    assert gaps_before(seen, kill_us=10 * S, before_s=6) == [1.0, 2.0]


def test_the_ratio_is_the_longest_gap_after_against_the_p99_before() -> None:
    seen = [(number, number * S // 10) for number in range(101)] + [(101, 10 * S + S // 2)]
    found = disturbance(seen, kill_us=10 * S + 1, before_s=10, after_s=0.5)
    assert (found.before_p99_s, found.after_max_s, found.ratio) == (0.1, 0.5, 5.0)


def test_without_output_before_the_kill_no_target_is_met() -> None:
    found = disturbance([], kill_us=0, before_s=20, after_s=20)
    assert not Verdict("ratio", found.ratio, 2.0).met


@given(st.lists(st.booleans(), min_size=1, max_size=30))
def test_at_least_half_of_the_victims_sealed_the_newest_epoch(by_chance: list[bool]) -> None:
    of_sealers = 0
    for kills, chance in enumerate(by_chance):
        of_sealers += wants_sealer(kills, of_sealers) or chance
    assert of_sealers * 2 >= len(by_chance)


def test_every_kind_of_difference_is_counted_once() -> None:
    expected = {("a", 0): (1, 1), ("b", 0): (2, 2), ("c", 0): (3, 3)}
    found = [(("a", 0), (1, 1)), (("a", 0), (1, 1)), (("b", 0), (2, 9)), (("d", 0), (4, 4))]
    assert compare(expected, found) == Check(expected=3, lost=1, repeated=1, wrong=2)
    assert compare(expected, list(expected.items())).sound


@pytest.mark.parametrize(
    ("verdict", "met"),
    [
        (Verdict("at most", 2.0, 2.0), True),
        (Verdict("at most", 2.01, 2.0), False),
        (Verdict("at least", 0.9, 0.9, at_least=True), True),
        (Verdict("at least", 0.89, 0.9, at_least=True), False),
        (Verdict("not measured", math.nan, 2.0), False),
        (Verdict("not measured", math.nan, 0.9, at_least=True), False),
    ],
)
def test_a_target_is_met_up_to_its_limit_and_never_by_what_was_not_measured(verdict: Verdict, met: bool) -> None:
    assert verdict.met is met


def _report(*verdicts: Verdict) -> Report:
    rows: list[Row] = [{"side": "ours", "rate": 1234.5678, "gap_s": math.nan, "sound": True}]
    return Report("store", quick=True, settings={"rate": 1}, tables=[Figures("rates", rows)], verdicts=verdicts)


def test_a_report_is_valid_json_with_machine_and_versions() -> None:
    text = json.dumps(as_json(_report(Verdict("gap", math.inf, 2.0))), allow_nan=False)
    found = json.loads(text)
    assert found["tables"]["rates"] == [{"side": "ours", "rate": 1234.57, "gap_s": None, "sound": True}]
    assert found["targets"] == [{"target": "gap", "value": None, "limit": 2.0, "kind": "at most", "met": False}]
    assert found["machine"]["cores"] >= 1
    assert {"python", "pyspark", "pyarrow", "java", "lockstep"} <= set(found["versions"])


def test_a_report_is_met_only_if_every_target_is() -> None:
    assert _report(Verdict("one", 1, 2)).met
    assert not _report(Verdict("one", 1, 2), Verdict("two", 3, 2)).met


def test_a_shown_report_names_the_missed_target_and_keeps_its_headings_on_one_line() -> None:
    text = io.StringIO()
    show(_report(Verdict("gap", 3.0, 2.0)), Console(file=text, width=40))
    lines = text.getvalue().splitlines()
    assert "NOT MET gap: 3.00 (at most 2.00)" in lines
    assert any(line.split() == ["side", "rate", "gap", "s", "sound"] for line in lines)


def test_a_saved_report_is_found_by_its_name_and_date(tmp_path: Path) -> None:
    path = save(_report(), tmp_path)
    assert path.parent == tmp_path / "benchmarks" / "results"
    assert path.name.startswith("store-quick-20")
    assert json.loads(path.read_text())["bench"] == "store"
