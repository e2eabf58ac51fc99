"""What a program sees of a job: rows of its sinks, a picture that is whole and escaped, a screen that is redrawn."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pyarrow as pa
import pytest

import lockstep as ls
from lockstep.errors import LockstepError
from lockstep.library.picture import SHOWN_S, Screen, job_html, lateness_svg
from lockstep.library.rows import ROWS_SHOWN_MAX, SinkRows, sink_rows
from lockstep.library.supervising import Owner
from lockstep.library.view import Home
from lockstep.store.protocols import Published

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
ROWS = [{"user": f"u{number}", "n": number, "at": datetime(2026, 1, 1, tzinfo=UTC)} for number in range(30)]
STATUS: dict[str, Any] = {
    "job": "counts",
    "state": "degraded",
    "reason": "one of <two> replicas",
    "head": {"epoch": 1200, "epoch_time": ""},
    "rows_per_s": 12.5,
    "latency_last_minute_ms": {"p50": 200.0, "p99": 900.0, "max": 900.0, "count": 10},
    "dead_letters": 0,
    "replicas": [
        {
            "replica": "r0",
            "state": "running",
            "epoch": 1200,
            "lag_epochs": 0,
            "epoch_ms": 51.0,
            "restarts": 0,
            "starting_s": None,
            "pid": 4711,
        },
        {
            "replica": "r1",
            "state": "starting",
            "epoch": -1,
            "lag_epochs": 0,
            "epoch_ms": 0.0,
            "restarts": 2,
            "starting_s": 7.2,
            "pid": 0,
        },
    ],
}


def _published(epoch: int, latency_s: float | None) -> Published:
    at_us = NOW + epoch * SECOND
    oldest_us = None if latency_s is None else at_us - round(latency_s * SECOND)
    return Published(epoch, "r0", at_us, 1, oldest_us, oldest_us, 0.1)


def test_rows_are_a_sequence_an_arrow_table_and_a_data_frame() -> None:
    rows = SinkRows(pa.Table.from_pylist(ROWS))
    assert list(rows) == ROWS and len(rows) == 30
    assert (rows[0], rows[-1], rows[5:7], rows[28:99]) == (ROWS[0], ROWS[29], ROWS[5:7], ROWS[28:])
    with pytest.raises(IndexError):
        rows[30]
    assert rows.arrow().to_pylist() == ROWS
    pd.testing.assert_frame_equal(rows.pandas(), pd.DataFrame(ROWS), check_dtype=False)


def test_polars_is_asked_for_and_a_missing_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SinkRows(pa.Table.from_pylist(ROWS))
    monkeypatch.setitem(sys.modules, "polars", None)
    with pytest.raises(LockstepError) as caught:
        rows.polars()
    assert caught.value.code == "LS0025" and "pip install polars" in caught.value.hint
    pretended = ModuleType("polars")
    pretended.from_arrow = lambda table: ("frame", table.num_rows)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "polars", pretended)
    assert rows.polars() == ("frame", 30)


def test_a_notebook_shows_the_first_rows_escaped() -> None:
    html = SinkRows(pa.table({"<name>": ["<b>&"] * 30}))._repr_html_()
    table = ElementTree.fromstring(html)
    cells = [cell.text for cell in table.iter("td")]
    assert cells == ["<b>&"] * ROWS_SHOWN_MAX
    assert [cell.text for cell in table.iter("th")] == ["<name>"]
    assert "and 10 more rows" in html


def _graph() -> Any:
    job = ls.Job("sinks")
    users = job.source("users", ls.collection([{"user": "ann"}], schema="user string"))
    users.to(ls.files("rows"), name="rows").to(ls.console(), name="printed")
    return job.graph()


def test_a_sink_without_a_publication_has_no_rows_and_its_columns(tmp_path: Path) -> None:
    rows = sink_rows(_graph(), "rows", tmp_path, None)
    assert (len(rows), rows.columns) == (0, ("user",))


def test_a_sink_that_is_not_there_or_cannot_be_read_is_told(tmp_path: Path) -> None:
    for name, code in (("row", "LS0642"), (None, "LS0642"), ("printed", "LS0696")):
        with pytest.raises(LockstepError) as caught:
            sink_rows(_graph(), name, tmp_path, None)
        assert caught.value.code == code
    assert "console" in caught.value.why


def test_the_picture_of_a_job_has_its_replicas_and_a_curve_through_every_epoch_that_is_shown() -> None:
    published = [_published(epoch, None if epoch % 10 == 3 else 0.2 + epoch / 1000) for epoch in range(200)]
    html = job_html(STATUS, published, "in <here>")
    parsed = ElementTree.fromstring(html)
    assert "<script" not in html and "http://" not in html.replace("http://www.w3.org/2000/svg", "")
    cells = [cell.text for cell in parsed.iter("td")]
    assert cells == [
        "r0",
        "running",
        "1,200",
        "0",
        "51 ms",
        "0",
        "4711",
        "r1",
        "starting 7 s",
        None,
        None,
        None,
        "2",
        None,
    ]
    text = "".join(parsed.itertext())
    assert "one of <two> replicas" in text and "in <here>" in text
    assert "epoch 1,200, 12 rows/s, latency p50 200 ms, p99 900 ms" in text
    shown = [one for one in published if one.ingested_oldest_us is not None and one.epoch > 199 - SHOWN_S]
    (line,) = parsed.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(line.attrib["points"].split()) == len(shown)


def test_later_is_to_the_right_and_slower_is_higher() -> None:
    svg = ElementTree.fromstring(lateness_svg([_published(0, 0.5), _published(10, 2.0), _published(20, 1.0)]))
    (line,) = svg.iter("{http://www.w3.org/2000/svg}polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    across, down = [x for x, _ in points], [y for _, y in points]
    assert across == sorted(across)
    assert down[1] < down[2] < down[0]


class _Drawn:
    def __init__(self) -> None:
        self.said = "first"

    def __str__(self) -> str:
        return self.said

    def _repr_html_(self) -> str:
        return f"<p>{self.said}</p>"


def test_a_notebook_is_redrawn_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: list[str] = []

    def display(drawn: _Drawn, *, display_id: bool) -> SimpleNamespace:
        assert display_id
        outputs.append(drawn._repr_html_())
        return SimpleNamespace(update=lambda later: outputs.__setitem__(-1, later._repr_html_()))

    notebook = ModuleType("IPython")
    notebook.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    notebook.display = SimpleNamespace(display=display)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", notebook)
    screen, drawn = Screen(), _Drawn()
    screen.show(drawn)
    drawn.said = "second"
    screen.show(drawn)
    assert outputs == ["<p>second</p>"]


def test_a_terminal_gets_a_line_whenever_something_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    screen, drawn = Screen(), _Drawn()
    for said in ("one", "one", "two"):
        drawn.said = said
        screen.show(drawn)
    assert capsys.readouterr().err == "one\ntwo\n"


def test_a_temporary_folder_goes_with_the_last_who_holds_it(tmp_path: Path) -> None:
    home = Home.new("job")
    folder = home.project
    assert folder.is_dir() and str(folder) in home.text
    del home
    assert not folder.exists()
    kept = Home.given(tmp_path / "shop")
    folder = kept.project
    del kept
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("temporary", "lines", "stops"),
    [(False, [], 1), (True, [], 2), (False, [b"stop\n"], 1), (False, [b"kill\n"], 2)],
)
def test_a_program_that_is_gone_ends_its_job_at_once_only_if_nobody_can_come_for_it(
    temporary: bool, lines: list[bytes], stops: int
) -> None:
    import os

    owner = Owner(os.getppid(), temporary)
    assert owner.stops_wanted == 0
    owner.listen(lines)
    assert owner.stops_wanted == stops
    assert Owner(-1, temporary).is_gone, "its parent is another process"
