"""A slice of the matrix: one job with a bit of everything through its whole life; and the mistakes that it must find.

The whole is ``make matrix``; the whole life of this job is in ``make test-long``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.faults.windows import Window
from tests.matrix.__main__ import FOLDER, chosen
from tests.matrix.life import Cell, Life
from tests.matrix.plants import PLANTS

SEED, PARTITIONS = 1, 3
"""The same for everybody and every day: `make matrix SEED=n` looks further."""
SLICE = ("run", f"kill: {Window.PUBLISHED_NOT_COMMITTED}", "history trimmed", "seeded", "output")
"""A crash, a stop and a start over trimmed history, a seed: each start once, and each is more than a plain one."""


def _lived(
    session: SparkSession, folder: Path, job: str, *, partitions: int, seed: int, only: Sequence[str] = ()
) -> list[Cell]:
    (case,) = chosen(job)
    return Life(case, session, folder / FOLDER, partitions, seed).live(only=only)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("events", [SLICE, pytest.param((), marks=pytest.mark.long)], ids=["slice", "whole"])
def test_a_bit_of_everything_lives_through_everything(
    session: SparkSession, tmp_path: Path, events: Sequence[str]
) -> None:
    cells = _lived(session, tmp_path, "a bit of everything", partitions=PARTITIONS, seed=SEED, only=events)
    assert {cell.event for cell in cells} >= set(events)
    assert [cell for cell in cells if cell.outcome != "ok"] == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("plant", "job", "event"),
    [("old-check-state", "interval joins", "stop and start"), ("old-upsert", "keyed sinks", "output")],
)
def test_the_matrix_finds_a_mistake_that_was_made(
    session: SparkSession, tmp_path: Path, plant: str, job: str, event: str
) -> None:
    with PLANTS[plant]():
        cells = _lived(session, tmp_path, job, partitions=2, seed=1, only=("run", event))
    assert [cell.event for cell in cells if cell.outcome == "failed"] == [event]
