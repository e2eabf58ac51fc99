"""How a run looks: the live table, plain lines, JSON lines."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from lockstep.cli.live_table import LiveTable, live_table
from lockstep.cli.plain_lines import JsonLines, PlainLines, status_line
from lockstep.control.status.event_words import event_text
from lockstep.control.status.health import Event, Health, ReplicaHealth, State
from lockstep.control.status.overview import Overview

DIVERGED: Event = (9, 0, "divergence", "r1", 'r1 against r0.1: no majority\nepoch 7, sink "out":\n  here: (1,)')


def _replica(name: str, state: str = "running", **others: object) -> ReplicaHealth:
    usual: dict[str, object] = {
        "alive": True,
        "epoch": 12345,
        "lag_epochs": 0,
        "within_lead": True,
        "epoch_s": 0.123,
        "restarts": 0,
        "pid": 4194304,
        "note": "",
    }
    return ReplicaHealth(name, state, **{**usual, **others})  # type: ignore[arg-type]


def _overview(state: State, reason: str, *replicas: ReplicaHealth, events: tuple[Event, ...] = ()) -> Overview:
    latency = {"p50": 240.0, "p99": 512.0, "max": 600.0, "count": 10.0}
    return Overview(12345, 1, 12344, Health(state, reason, replicas), 1003.4, latency, events)


STARTING = _overview("starting", "Spark is starting", _replica("r0", "starting", starting_s=7.2, epoch=-1))
DEGRADED = _overview(
    "degraded", "r1 is seeding", _replica("r0"), _replica("r1", "seeding", starting_s=12.0, restarts=3)
)
HEALTHY = _overview("healthy", "every replica is within the lead", _replica("r0"), _replica("r1", lag_epochs=2))


def _drawn(overview: Overview, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(live_table("failed-logins", overview))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("overview", [STARTING, DEGRADED, HEALTHY], ids=["starting", "degraded", "healthy"])
def test_the_live_table_fits_80_columns(overview: Overview) -> None:
    wide, narrow = _drawn(overview, 120), _drawn(overview, 80)
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert len(wide.splitlines()) <= len(narrow.splitlines()) <= len(wide.splitlines()) + 2
    for name in ("r0", "restarts", "per epoch", "4194304"):
        assert name in narrow


def test_a_replica_that_starts_shows_its_seconds_and_no_numbers_of_an_earlier_start() -> None:
    line = next(line for line in _drawn(DEGRADED, 80).splitlines() if line.startswith("r1"))
    assert "seeding 12 s" in line
    assert "12,345" not in line


def test_a_degraded_job_says_why() -> None:
    assert "degraded: r1 is seeding" in _drawn(DEGRADED, 80)
    assert "degraded" not in _drawn(HEALTHY, 80)


def test_while_everything_starts_nothing_looks_wrong() -> None:
    drawn = _drawn(STARTING, 80)
    assert "starting 7 s" in drawn
    assert "10 to 20 seconds to boot" in drawn
    assert "degraded" not in drawn


def test_a_divergence_is_loud_on_a_terminal_and_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    overview = _overview("healthy", "", _replica("r0"), events=(DIVERGED,))
    table = LiveTable("failed-logins", console)
    table.begin()
    table.show(overview)
    table.end(overview)
    assert isinstance(console.file, io.StringIO)
    assert "REPLICAS DISAGREE" in console.file.getvalue()
    PlainLines("failed-logins").show(overview)
    said = capsys.readouterr().err
    assert "REPLICAS DISAGREE" in said
    assert 'epoch 7, sink "out"' in said


def test_plain_lines_tell_a_change_at_once_and_otherwise_wait(capsys: pytest.CaptureFixture[str]) -> None:
    lines = PlainLines("failed-logins")
    for overview in (STARTING, STARTING, DEGRADED, DEGRADED, HEALTHY):
        lines.show(overview)
    said = capsys.readouterr().err.splitlines()
    assert [line.split()[2].rstrip(",") for line in said] == ["starting", "degraded", "healthy"]


def test_a_status_line_holds_what_the_table_does() -> None:
    line = status_line("failed-logins", DEGRADED)
    for part in ("epoch 12345", "1,003 rows/s", "p50 240 ms", "p99 512 ms", "r1 is seeding", "r0 running at 12345"):
        assert part in line


def test_json_lines_are_one_document_a_line_also_for_texts_of_several_lines() -> None:
    stream = io.StringIO()
    JsonLines("failed-logins", stream).show(_overview("healthy", "", _replica("r0"), events=(DIVERGED,)))
    event, status = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (event["type"], event["kind"], event["replica"]) == ("event", "divergence", "r1")
    assert (status["type"], status["rows_per_s"], status["replicas"][0]["pid"]) == ("status", 1003.4, 4194304)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("seeded", "from r0 at epoch 120", "r1 seeded from r0 at epoch 120"),
        ("replica-ended", "exit code -9", "r1 ended (exit code -9)"),
        ("something-new", "{odd} text", "r1 something new: {odd} text"),
    ],
)
def test_events_in_words(kind: str, text: str, said: str) -> None:
    assert event_text((1, 0, kind, "r1", text)) == said
