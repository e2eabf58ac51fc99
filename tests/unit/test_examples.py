"""Every example is listed, loads and can be planned; what runs without Spark is run."""

from __future__ import annotations

import random
import re
import runpy
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from lockstep.api.loading import load_job
from lockstep.errors import StoreError
from lockstep.keyed.tester import ProcessTester
from lockstep.plan.draw import draw
from lockstep.plan.specs import SourceSpec
from lockstep.store.arrow import batch_from_json_lines
from lockstep.store.journal import open_journal
from tests.example_references import PAYMENTS, alerts, found, monitored, payments

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SINKS = {
    "failed_logins.py": {"files"},
    "fraud.py": {"files"},
    "pagerank.py": {"ranks"},
    "saas_monitor.py": {"alerts", "counts"},
    "word_count.py": {"files", "sqlite"},
}


@pytest.mark.parametrize("name", SINKS)
def test_an_example_loads_and_can_be_planned(name: str) -> None:
    graph = load_job(str(EXAMPLES / name)).job.graph()
    own = {sink.id for sink in graph.sinks if not sink.id.startswith(("stage-", "loop-"))}
    assert own == SINKS[name]
    assert graph.name in draw(graph)


def test_every_example_is_a_job_here_or_a_helper_and_is_listed() -> None:
    files = {file.name for file in EXAMPLES.glob("*.py")}
    assert files == {*SINKS, "make_logins.py", "serve_lines.py"}
    listed = set(re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text()))
    assert listed == files


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.id", 1),
        ("$.sharing.users[1].name", "bob"),
        ("$.labels[0]", "payroll"),
        ("$.labels[5]", None),
        ("$.labels.name", None),
        ("$.id.x", None),
        ("$.none.at.all", None),
        ("$", {"id": 1, "sharing": {"users": [{"name": "ann"}, {"name": "bob"}]}, "labels": ["payroll"]}),
    ],
)
def test_a_json_path_finds_a_value_or_none(path: str, value: Any) -> None:
    document = {"id": 1, "sharing": {"users": [{"name": "ann"}, {"name": "bob"}]}, "labels": ["payroll"]}
    assert runpy.run_path(str(EXAMPLES / "saas_monitor.py"))["value_at"](document, path) == value


def test_the_lines_in_the_text_of_the_monitor_fit_its_journals() -> None:
    text = runpy.run_path(str(EXAMPLES / "saas_monitor.py"))["__doc__"]
    specs: dict[str, SourceSpec] = {
        step.id: step.spec for step in load_job(str(EXAMPLES / "saas_monitor.py")).job.graph().sources
    }
    for journal in ("rules", "documents"):
        lines = text.split(f"lockstep put {journal} <<'END'\n")[1].split("    END")[0].strip().splitlines()
        assert batch_from_json_lines([line.strip() for line in lines], specs[journal].schema).num_rows == 2


def test_the_fraud_rules_find_what_they_find_in_plain_python() -> None:
    example = runpy.run_path(str(EXAMPLES / "fraud.py"))
    tester = ProcessTester(example["Fraud"](), PAYMENTS, schema=example["ALERTS"], key="card", time="at")
    epochs = payments(random.Random(11))
    expected = alerts(epochs)
    counts = Counter(alert["rule"] for alert in expected)
    assert all(counts[rule] >= 20 for rule in ("probe", "burst", "travel", "held")), counts
    newest = None
    for epoch in epochs:
        if newest is not None:
            tester.move_watermark(newest - timedelta(seconds=1))
        tester.epoch(epoch)
        newest = max(payment["at"] for payment in epoch)
    order = ["card", "at", "rule"]
    assert sorted(tester.emitted, key=itemgetter(*order)) == sorted(expected, key=itemgetter(*order))


def test_own_rules_hold_for_one_customer_and_common_rules_for_all() -> None:
    """The two halves of the monitor, over the same input as the whole of it in the Spark ring."""
    example = runpy.run_path(str(EXAMPLES / "saas_monitor.py"))
    options = {"schema": example["FINDINGS"], "key": "customer", "time": "at"}
    own = ProcessTester(example["OwnRules"](), example["DOCUMENTS"], other=example["RULES"], **options)
    common = ProcessTester(example["RulesForAll"](), example["DOCUMENTS"], broadcast=example["RULES"], **options)
    documents, rules = monitored(random.Random(5))
    for several, changes in zip(documents, rules, strict=True):
        own.epoch(several, other=[one for one in changes if one["customer"] is not None])
        common.epoch(several, broadcast=[one for one in changes if one["customer"] is None])
    order = itemgetter("at", "rule")
    expected = found(documents, rules)
    assert len(own.emitted) > 30 < len(common.emitted)
    assert sorted([*own.emitted, *common.emitted], key=order) == sorted(expected, key=order)


def test_lines_go_from_the_server_through_the_socket_into_the_journal_of_the_word_count(tmp_path: Path) -> None:
    pipe = subprocess.PIPE
    server_command = [sys.executable, str(EXAMPLES / "serve_lines.py"), "0"]
    with subprocess.Popen(server_command, stdout=pipe, text=True) as server:
        try:
            assert server.stdout is not None
            found = re.search(r"port (\d+)", server.stdout.readline())
            assert found is not None
            command = [sys.executable, "-m", "lockstep", "ingest", "socket", "--port", found[1], "--journal", "lines"]
            with subprocess.Popen(command, cwd=tmp_path, stderr=pipe, text=True) as ingest:
                try:
                    _wait_for_lines(tmp_path, 2)
                    ingest.send_signal(signal.SIGINT)
                    assert "acknowledged by journal lines" in ingest.communicate(timeout=20)[1]
                finally:
                    ingest.kill()
        finally:
            server.kill()
    (source,) = load_job(str(EXAMPLES / "word_count.py")).job.graph().sources
    # The job declares the journal as the command has made it.
    open_journal(tmp_path / ".lockstep", "lines", source.spec.schema).close()


def _wait_for_lines(folder: Path, count: int) -> None:
    deadline_s = time.monotonic() + 20
    while time.monotonic() < deadline_s:
        try:
            journal = open_journal(folder / ".lockstep", "lines")
        except StoreError:
            time.sleep(0.05)  # not made yet
            continue
        end = journal.ends()[0]
        journal.close()
        if end >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no lines came")
