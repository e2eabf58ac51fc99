"""Every example in the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.testing import running
from tests.spark.guides import run_page

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"
PAGES = [*sorted(page for page in GUIDE.glob("*.md") if page.name != "README.md"), ROOT / "README.md"]
ONLY_TO_READ = {
    "cluster.md",
    "delta.md",
    "monitoring.md",
    "pages.md",
    "places.md",
    "savepoints.md",
    "service.md",
    "state-from-outside.md",
}
"""Pages about servers, tables and browsers that have tests of their own, with nothing to run on the way."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_examples_of_a_page_run(
    page: Path, lockstep_spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if page.name != "testing.md":
        # The steps have tests with two replicas of their own; here it would only double the time.
        monkeypatch.setattr(running, "REPLICAS", 1)
    ran = run_page(page, tmp_path, {"lockstep_spark": lockstep_spark, "tmp_path": tmp_path})
    assert (ran == 0) == (page.name in ONLY_TO_READ)
