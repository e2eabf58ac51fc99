"""Examples over random input, against the same rules in plain Python."""

from __future__ import annotations

import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import lockstep as ls
from lockstep.api.job import Job
from lockstep.api.loading import load_job
from lockstep.testing import HEARTBEAT, run
from tests.example_references import PAYMENTS, alerts, found, monitored, payments

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def _job(name: str) -> Job:
    return load_job(str(EXAMPLES / name)).job


def _in_order(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(sorted(dict(row).items())) for row in rows), key=repr)


def _in_pairs(epochs: list[list[Any]]) -> list[list[Any]]:
    """Half as many epochs: what each of them costs is the same for few records and for many."""
    return [[*first, *second] for first, second in zip(epochs[::2], epochs[1::2], strict=True)]


def test_the_fraud_rules_find_what_they_find_in_plain_python(lockstep_spark: SparkSession) -> None:
    epochs = _in_pairs(payments(random.Random(11)))
    expected = alerts(epochs)
    example = sys.modules[next(iter(load_job(str(EXAMPLES / "fraud.py")).module_names))]
    job = ls.Job("fraud")
    example.alerts(job.source("payments", ls.journal("payments", schema=PAYMENTS))).to(ls.files("out/alerts"))
    result = run(job, epochs, spark=lockstep_spark, replicas=1)
    assert _in_order(result.sink()) == _in_order(expected)


def test_the_monitor_finds_and_counts_what_plain_python_finds(lockstep_spark: SparkSession) -> None:
    documents, rules = map(_in_pairs, monitored(random.Random(5)))
    times = [record["at"] for epoch in (*documents, *rules) for record in epoch]
    assert len(set(times)) == len(times), "which of two things at the same time was first is not said"
    expected = found(documents, rules)
    inputs: dict[str, list[Any]] = {
        "documents": [*documents, HEARTBEAT],
        "rules": [*rules, HEARTBEAT],
    }
    result = run(_job("saas_monitor.py"), inputs, spark=lockstep_spark, replicas=1)
    assert len(expected) > 50
    assert _in_order(result.sink("alerts")) == _in_order(expected)
    each = Counter(one["customer"] for one in expected)
    counts = [{"customer": who, "findings": n} for who, many in each.items() for n in range(1, many + 1)]
    assert _in_order(result.sink("counts")) == _in_order(counts)


def test_rank_flows_round_the_loop_as_in_power_iteration(lockstep_spark: SparkSession) -> None:
    rounds = 3
    job = _job("pagerank.py")
    links = {
        "home": ["about", "products", "blog"],
        "about": ["home"],
        "products": ["home", "cart"],
        "cart": ["home", "products"],
        "blog": ["home", "post"],
        "post": ["blog", "products", "about"],
    }
    rank = dict.fromkeys(links, 0.15 / 6)
    for _ in range(rounds):
        rank = {
            page: 0.15 / 6 + 0.85 * sum(rank[other] / len(to) for other, to in links.items() if page in to)
            for page in links
        }
    first = [{"page": page, "mass": 0.15 / 6} for page in links]
    result = run(job, [first, *[HEARTBEAT] * (rounds + 1)], spark=lockstep_spark, replicas=1)
    reached = {row["page"]: row["rank"] for row in result.latest("ranks", by="page")}
    assert reached.keys() == rank.keys()
    assert all(abs(reached[page] - rank[page]) < 1e-12 for page in links)
