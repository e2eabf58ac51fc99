"""Tables, page and documents of a comparison; and that docs/benchmarks.md is what the stored results say."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.compare.docs import AFTER, BEFORE, docs
from benchmarks.compare.merging import merged, replaced
from benchmarks.compare.page import page, summary
from benchmarks.compare.results import path_of, save, stored
from benchmarks.compare.runner import Selection, agenda
from benchmarks.compare.tables import rows_of, tables
from benchmarks.errors import BenchmarkError
from lockstep.bench.epoch.bench import spark_medians
from lockstep.bench.epoch.probe import PARTS, STEPS
from lockstep.bench.epoch.starting import Step, phases
from lockstep.bench.report import RESULTS_FOLDER

ROOT = Path(__file__).parents[3]
RIGHT = {"expected": 5, "published": 5, "lost": 0, "repeated": 0, "wrong": 0, "live_repeated": 0, "right": True}


def _cell(measure: str, engine: str, turn: int = 0, **found: Any) -> dict[str, Any]:
    return {"measure": measure, "workload": "word_count", "engine": engine, "turn": turn, "took_s": 1.0, **found}


def _latency(p50_ms: float, p99_ms: float = 20.0) -> dict[str, Any]:
    return {"p50_ms": p50_ms, "p99_ms": p99_ms, "max_ms": 30.0, "cpu_cores": 0.5, "memory_peak_mb": 100.0}


@pytest.fixture
def document() -> dict[str, Any]:
    engines = {
        name: {"title": name.title(), "guarantee": "some", "version": "1", "missing": None}
        for name in ("lockstep-1", "lockstep-2", "spark")
    }
    kill = {"longest_gap_s": 12.0, "gap_before_s": 0.4, "worst_wait_ms": 12_100.0, "normal_after_s": 14.0}
    lossy = {**RIGHT, "right": False, "lost": 3, "live_repeated": 9}
    return {
        "bench": "compare",
        "quick": False,
        "at": "2026-01-02T03:04:05Z",
        "command": "python -m benchmarks compare",
        "machine": {"cores": 2, "memory_gb": 8.0, "os": "Linux", "processor": "some"},
        "versions": {"python": "3.11", "java": "17"},
        "engines": engines,
        "workloads": {
            "word_count": {"title": "word count", "steps": "count", "results": "updates", "rates_per_s": {"l": 1000}}
        },
        "size": {},
        "cells": [
            _cell("latency", "spark", figures=_latency(200.0), check=RIGHT, curve=[]),
            _cell("latency", "lockstep-1", figures=_latency(80.0), check=RIGHT, curve=[]),
            _cell("latency", "lockstep-2", figures=_latency(150.0), check=RIGHT, curve=[]),
            _cell("latency", "lockstep-1", 1, figures=_latency(90.0), check=RIGHT, curve=[]),
            _cell("latency", "lockstep-1", 2, figures=_latency(100.0), check=RIGHT, curve=[]),
            _cell("failover", "spark", figures=kill, check=lossy, curve=[[-1.0, 300.0], [12.0, 12_100.0]]),
            _cell("failover", "lockstep-2", error="LS0630 it fell over\n  why: so"),
            _cell("failover", "lockstep-1", skipped="it has no time"),
        ],
        "interrupted": False,
        "took_s": 100.0,
    }


def test_rounds_become_their_median_and_engines_keep_their_order(document: dict[str, Any]) -> None:
    rows = rows_of(document, "latency", "word_count")
    assert [row["engine"] for row in rows] == ["Lockstep-1", "Lockstep-2", "Spark"]
    assert [row["p50 ms"] for row in rows] == [90.0, 150.0, 200.0]


def test_a_wrong_result_a_failure_and_what_was_not_measured_stay_in_the_table(document: dict[str, Any]) -> None:
    said = {row["engine"]: row["result"] for row in rows_of(document, "failover", "word_count")}
    assert said["Spark"] == "WRONG: 3 lost"
    assert said["Lockstep-2"] == "failed: LS0630 it fell over"
    assert said["Lockstep-1"] == "not measured: it has no time"


def test_what_replicas_cost_is_told_from_the_latencies(document: dict[str, Any]) -> None:
    cost = next(table for table in tables(document) if table.title.startswith("what replicas cost"))
    assert [(row["replicas"], row["p50 ms"]) for row in cost.rows] == [(1, 90.0), (2, 150.0)]


def test_all_workloads_stand_beside_each_other_and_a_wrong_result_has_no_figure(document: dict[str, Any]) -> None:
    document["workloads"]["chain_1"] = {**document["workloads"]["word_count"], "title": "one step"}
    wrong = {**RIGHT, "right": False, "lost": 3}
    document["cells"] += [
        {**_cell("latency", "spark", figures=_latency(7.0, 9.0), check=RIGHT), "workload": "chain_1"},
        {**_cell("latency", "lockstep-1", figures=_latency(5.0), check=wrong), "workload": "chain_1"},
    ]
    glance = next(table for table in tables(document) if table.title.startswith("latency, p50"))
    assert glance.rows == [
        {"workload": "word count", "Lockstep-1": "90 / 20", "Lockstep-2": "150 / 20", "Spark": "200 / 20"},
        {"workload": "one step", "Lockstep-1": "not right", "Lockstep-2": "-", "Spark": "7 / 9"},
    ]


def test_the_page_needs_nothing_else_and_says_what_went_wrong(document: dict[str, Any]) -> None:
    text = page(document)
    assert "<svg" in text
    assert "WRONG: 3 lost" in text
    assert all(word not in text for word in ("<script src", "<link", "<img"))


def test_results_are_stored_and_found_again(document: dict[str, Any], tmp_path: Path) -> None:
    save(document, tmp_path)
    (found,) = stored(tmp_path / RESULTS_FOLDER)
    assert {key: value for key, value in found.items() if key != "file"} == document
    assert path_of(document, tmp_path).name == found["file"] == "compare-20260102T0304.json"


def test_of_each_measure_the_newest_run_is_shown_and_a_quick_one_only_if_there_is_no_other(
    document: dict[str, Any],
) -> None:
    full = {**document, "file": "a.json"}
    quick = {**document, "file": "b.json", "quick": True, "at": "2026-01-03T00:00:00Z"}
    restarts = [_cell("restart", "spark", figures={"fresh_result_s": 15.0}, check=RIGHT, curve=[])]
    later = {**quick, "file": "c.json", "cells": [*quick["cells"], *restarts]}
    shown = merged([full, quick, later])
    assert shown is not None and shown["runs"] == [summary(full), summary(later)]
    assert shown["cells"] == [*(cell for cell in full["cells"] if "skipped" not in cell), *restarts]
    assert merged([]) is None


def test_what_a_newer_run_replaced_is_still_told_with_its_result(document: dict[str, Any]) -> None:
    wrong = {"right": False, "lost": 3, "repeated": 0, "wrong": 0, "live_repeated": 0}
    latencies = [cell for cell in document["cells"] if cell["measure"] == "latency"]
    cells = [{**cell, "check": wrong} for cell in latencies if "figures" in cell]
    before = {**document, "file": "a.json", "cells": cells}
    after = {**document, "file": "b.json", "at": "2026-01-03T00:00:00Z"}
    told = replaced([before, after])
    assert told is not None and {row["measured"] for row in told.rows} == {before["at"]}
    assert {row["result"] for row in told.rows} == {"WRONG: 3 lost"}
    assert [row["engine"] for row in told.rows] == ["Lockstep-1", "Lockstep-2", "Spark"]
    assert "Measured earlier" in docs([before, after]) and "Measured earlier" not in docs([after])
    assert replaced([after]) is None


def test_a_run_that_has_less_does_not_replace_a_table_and_one_that_has_more_does(document: dict[str, Any]) -> None:
    full = {**document, "file": "a.json"}
    latencies = [cell for cell in document["cells"] if cell["measure"] == "latency"]
    part = {**full, "file": "b.json", "at": "2026-01-03T00:00:00Z", "cells": latencies[:1], "took_s": 9.0}
    assert (merged([full, part]) or {})["runs"] == [summary(full)]
    more = {**part, "cells": [*latencies, _cell("latency", "flink", figures=_latency(5.0), check=RIGHT, curve=[])]}
    assert (merged([full, more]) or {})["runs"] == [summary(full), summary(more)]


def test_before_and_after_stand_under_one_another() -> None:
    def epoch(name: str, p50_ms: float) -> dict[str, Any]:
        return {
            "bench": "epoch",
            "quick": False,
            "at": "2026-01-02T03:04:05Z",
            "file": name,
            "machine": {"cores": 2, "memory_gb": 8.0},
            "tables": {"the warm epoch": [{"replicas": 1, "period_p50_ms": p50_ms}]},
            "targets": [],
            "notes": [],
        }

    text = docs([epoch(BEFORE, 160.0), epoch(AFTER, 75.0)])
    assert "| before | 1 | 160 |\n| after | 1 | 75.00 |" in text
    assert "## Before and after" not in docs([epoch(BEFORE, 160.0)])


def test_the_benchmarks_document_is_what_the_stored_results_say() -> None:
    written = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert written == docs(stored(ROOT / RESULTS_FOLDER)), "run 'python -m benchmarks docs'"


def test_names_that_do_not_exist_are_refused_with_those_that_do() -> None:
    for selection in (Selection(measures=["speed"]), Selection(engines=["storm"]), Selection(workloads=["sort"])):
        with pytest.raises(BenchmarkError, match="there is no") as raised:
            agenda(selection)
        assert raised.value.code == "BM01"


def test_a_quick_comparison_fits_into_half_an_hour_by_its_own_estimate() -> None:
    from benchmarks.compare.plan import QUICK, Remaining

    planned = agenda(Selection(quick=True))
    everything = [*planned.todo, *(cell for cell, _ in planned.left_out)]
    assert Remaining(QUICK).left_s(everything) < 35 * 60


def test_the_probe_finds_every_method_it_looks_at() -> None:
    for module, owner, method, _ in (*PARTS, *STEPS):
        there: Any = importlib.import_module(module)
        there = getattr(there, owner) if owner else there
        assert hasattr(there, method), f"{module} {owner}.{method} is gone: change PARTS or STEPS in the probe"


def test_what_a_spare_did_before_the_kill_costs_nothing() -> None:
    second = 1_000_000
    noted = [
        Step("process", 1 * second, 2 * second),
        Step("jvm", 2 * second, 3 * second),
        Step("session", 2 * second, 4 * second),
        Step("warm-up", 5 * second, 12 * second),
        Step("seed", 13 * second, 14 * second),
        Step("start", 14 * second, 15 * second),
        Step("first-epoch", 15 * second, 16 * second),
    ]
    found = phases(noted, kill_us=10 * second)
    assert found["process_s"] == found["jvm_s"] == found["session_s"] == 0.0
    assert found["warm_up_s"] == 2.0
    assert found["total_s"] == 6.0
    assert sum(value for name, value in found.items() if name != "total_s") == found["total_s"]


def test_the_time_spark_is_busy_leaves_out_the_wait_for_a_sealed_epoch() -> None:
    reports = [
        {"at": "2026-01-01T00:00:00.000Z", "duration_ms": {"triggerExecution": 999, "latestOffset": 0}},
        {
            "at": "2026-01-01T00:00:10.000Z",
            "duration_ms": {"triggerExecution": 150, "latestOffset": 60, "addBatch": 80},
        },
    ]
    from_us = 1_767_225_605_000_000
    assert spark_medians(reports, from_us) == {
        "triggerExecution_ms": 150.0,
        "latestOffset_ms": 60.0,
        "addBatch_ms": 80.0,
        "busy_ms": 90.0,
    }


def test_the_list_says_of_every_engine_whether_it_can_run_here(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["list", "--json"])
    assert ended.value.code == 0
    found = json.loads(capsys.readouterr().out)
    assert {"lockstep-1", "lockstep-2", "lockstep-3", "spark"} <= set(found["engines"])
    assert {"word_count", "tumbling_window", "chain_4", "two_rates", "quiet_input"} <= set(found["workloads"])
    assert all((one["version"] is None) == (one["missing"] is not None) for one in found["engines"].values())


def test_a_typo_measures_nothing_and_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["compare", "--measure", "latncy"])
    assert ended.value.code == 2
    assert "those there are: failover, latency" in capsys.readouterr().err
