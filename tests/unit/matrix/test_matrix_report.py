"""What people read of a run of the matrix."""

from __future__ import annotations

from tests.matrix.life import Cell
from tests.matrix.report import has_failed, page, summary, text_table
from tests.matrix.sinks import differences

TABLE = {
    ("joins", 1): [Cell("run", "ok", took_s=2.0), Cell("output", "ok", took_s=1.0)],
    ("loop", 2): [Cell("run", "failed", "1 < 2"), Cell("output", "not reached")],
    ("union", 3): [Cell("run", "not applicable", "one sink"), Cell("output", "ok")],
}


def test_the_table_names_jobs_and_events_and_the_page_says_why() -> None:
    assert summary(TABLE) == "3 jobs, 3 lives, 6 cells: 3 ok, 1 failed, 1 not applicable, 1 not reached"
    assert has_failed(TABLE)
    assert text_table(TABLE).splitlines() == [
        "       p  1  2 ",
        "joins  1  ok ok",
        "loop   2  FA · ",
        "union  3  –  ok",
        "",
        "  1 run",
        "  2 output",
    ]
    html = page(TABLE, seed=7)
    assert "<b>loop</b>, 2 partitions, run: 1 &lt; 2" in html and "--seed 7" in html


def test_rows_are_compared_with_the_epoch_that_published_them_and_as_often_as_they_are_there() -> None:
    found = [(0, "a"), (3, "b"), (3, "b"), (9, "c")]
    assert differences(found, [(0, "a"), (3, "b"), (3, "b"), (5, "c")], last=5) == ""
    assert differences(found, [(0, "a"), (3, "b"), (2, "b"), (5, "c")], last=5) == (
        "1 missing: (2, 'b'); 1 too many: (3, 'b')"
    )
    assert differences(found, [(0, "a"), (0, "b"), (0, "b"), (0, "c")], last=0) == "", "where epochs do not count"
