"""Ingestion time: when a record came into its journal, however late it is computed, and by whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime, timedelta
from typing import Any

import lockstep as ls
from lockstep import F
from tests.spark.conftest import NewTrial
from tests.spark.harness import START_US

SECOND_US = 1_000_000
BEGIN_US = START_US - START_US % (120 * SECOND_US)
BEGIN = datetime.fromtimestamp(BEGIN_US / 1e6, UTC)


def _job() -> ls.Job:
    job = ls.Job("arrivals")
    source = ls.journal("hits", schema="page string, n bigint", partitions=2, timestamp_column="arrived")
    hits = job.source("hits", source).event_time("arrived", idle_after=None)
    small = hits.key_by("page").window(ls.tumbling("4 seconds")).agg(hits=F.count("*"), newest=F.max("arrived"))
    small.to(ls.files("small"), name="small")
    later = small.event_time("newest", idle_after=None, name="again").key_by("page")
    later.window(ls.tumbling("8 seconds")).agg(hits=F.sum("hits"), newest=F.max("newest")).to(
        ls.files("large"), name="large"
    )
    return job


def _windows(came: list[tuple[str, int]], size_s: int) -> Counter[tuple[Any, ...]]:
    """Page, start, count and newest second: plain Python."""
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for page, second in came:
        found[page, second // size_s * size_s].append(second)
    return Counter((page, start, len(all_), max(all_)) for (page, start), all_ in found.items())


def _second(at: datetime) -> int:
    return (at - BEGIN) // timedelta(seconds=1)


def test_windows_are_those_of_the_arrivals_for_a_job_that_comes_an_hour_later_also_after_a_stage_cut(
    trial: NewTrial,
) -> None:
    ran = trial(_job(), records_per_epoch_max=8)
    assert len(ran.graph.stages) == 2
    came: list[tuple[str, int]] = []
    for second in range(16):  # nobody computes: it waits in the journal, most of it in one partition
        ran.now_us = BEGIN_US + second * SECOND_US
        pages = [f"/{n % 3}" for n in range(second % 4)]
        ran.put("hits", [{"page": page, "n": second} for page in pages], 0 if second % 5 else 1)
        came += [(page, second) for page in pages]
    for second in (100, 200):  # closes the windows before it, in the first stage and then in the second
        ran.now_us = BEGIN_US + second * SECOND_US
        for partition in (0, 1):
            ran.put("hits", [{"page": "end", "n": second}], partition)
    ran.now_us = BEGIN_US + 3600 * SECOND_US
    ran.start()
    ran.run(3)
    ran.stop()
    ran.start()
    ran.run(10)
    for name, size_s in (("small", 4), ("large", 8)):
        rows = [
            (row["page"], _second(row["window_start"]), row["hits"], _second(row["newest"]))
            for row in ran.rows(name)
            if row["page"] != "end"
        ]
        assert Counter(rows) == _windows(came, size_s), name
