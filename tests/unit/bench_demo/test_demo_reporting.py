"""What the demo shows: the report needs nothing but itself, the summary says how it went."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

import lockstep.bench.demo.report as report
from lockstep.api.loading import load_job
from lockstep.bench.demo.checking import Comparison
from lockstep.bench.demo.picture import draw
from lockstep.bench.demo.progress import Progress
from lockstep.bench.demo.results import Results, measured
from lockstep.bench.demo.running import JOB_FILE
from lockstep.bench.demo.summary import show_summary
from lockstep.observe import pages
from lockstep.store.arrow import arrow_schema, batch_from_json_lines
from tests.unit.bench_demo.parts_for_demo import part

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def results() -> Results:
    return Results((measured(part(1)), measured(part(2))), took_s=140.0)


@pytest.fixture
def broken() -> Results:
    return Results((measured(part(1)), measured(part(2, comparison=Comparison(500, 500, wrong=("<alert>",))))), 140.0)


def test_the_report_is_one_file_that_loads_nothing(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "machine_text", lambda: "2 cores")
    page = report.report_html(results)
    fetched = [(tag, value) for tag, name, value in _attributes(page) if name in ("src", "data", "action")]
    links = [value for _, name, value in _attributes(page) if name.endswith("href") and not value.startswith("#")]
    assert (fetched, links, "@import" in page, re.findall(r"url\((?!#)", page)) == ([], [], False, [])
    assert page.count("<svg") == 1
    assert "No alert lost" in page
    assert "2 cores" in page


def test_the_report_says_what_is_wrong_as_text(broken: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "machine_text", lambda: "")
    page = report.report_html(broken)
    assert "Not as promised" in page
    assert "&lt;alert&gt;" in page
    assert "<alert>" not in page


def test_the_picture_is_small_enough_for_a_readme(results: Results) -> None:
    picture = draw(results)
    ElementTree.fromstring(picture)
    assert picture.count("kill -9") >= 2
    assert len(picture) < 150_000


def test_the_summary_has_both_curves_the_table_and_the_verdict(results: Results, broken: Results) -> None:
    good, bad = _shown(results), _shown(broken)
    assert good.count("kill -9") == 2
    assert "alerts lost" in good
    assert "As promised: 1,000 alerts" in good
    assert "NOT as promised" in bad
    assert "two replicas: 1 alerts are wrong: <alert>" in bad
    assert max(len(line) for line in good.splitlines()) <= 80


def test_without_a_terminal_progress_is_plain_lines() -> None:
    file = io.StringIO()
    with Progress(Console(file=file, highlight=False)) as progress:
        progress.title("Part 1")
        progress.show("not yet: the last line is younger than the interval")
        progress.say("kill -9 r0", "bold red")
    assert [line[10:] for line in file.getvalue().splitlines()] == ["", "Part 1", "kill -9 r0"]
    assert "\x1b" not in file.getvalue()


def test_the_job_that_the_demo_runs_can_be_planned() -> None:
    (sink,) = load_job(str(JOB_FILE)).job.graph().sinks
    assert sink.spec.to_json()["path"] == "out/alerts"


def test_the_logins_that_are_made_fit_the_journal_that_they_are_put_into() -> None:
    (source,) = load_job(str(ROOT / "examples" / "failed_logins.py")).job.graph().sources
    command = [sys.executable, str(ROOT / "examples" / "make_logins.py")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.kill()
    assert batch_from_json_lines(lines, arrow_schema(source.spec.schema), 1).num_rows == 3


def _attributes(page: str) -> list[tuple[str, str, str]]:
    found: list[tuple[str, str, str]] = []

    class Collector(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.extend((tag, name, value or "") for name, value in attrs)

    Collector().feed(page)
    return found


def _shown(results: Results) -> str:
    file = io.StringIO()
    show_summary(results, Console(file=file, width=80, highlight=False))
    return file.getvalue()
