"""Metrics over real stores, read by Prometheus' own parser; the rules and the board that are shipped with them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from lockstep.clock import US_PER_S
from lockstep.control.operations.verbs import JobVerbs
from lockstep.serve.app import create_app
from lockstep.serve.monitoring.metrics import METRICS
from tests.unit.serve.made_up import MadeUp

SHIPPED = files("lockstep.serve.monitoring")
PROMTOOL = shutil.which("promtool")
_NAME = re.compile(r"\blockstep_[a-z_]+")
_LABELS = frozenset({"lockstep_job"})


@pytest.fixture
def made(tmp_path: Path) -> Iterator[MadeUp]:
    one = MadeUp(tmp_path)
    one.begin()
    one.live(20, away=range(8, 12), late=2)
    yield one
    one.store.close()


def scraped(made: MadeUp) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    with TestClient(create_app(made.service()), base_url="http://127.0.0.1:8470") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            found[sample.name, tuple(sorted(sample.labels.items()))] = sample.value
    return found


def test_the_metrics_say_what_the_store_says(made: MadeUp) -> None:
    made.spare()
    made.differ(5, "rows differ")
    JobVerbs(made.store, made.job, made.clock).restart()
    made.clock.now_us += 2 * US_PER_S
    found = scraped(made)
    job = ("lockstep_job", made.job)
    newest = made.store.published(0, 19)[-1]
    assert found["lockstep_epochs_sealed_total", (job,)] == 20
    assert found["lockstep_epochs_published_total", (job,)] == 20
    age_s = (made.clock.now_us - newest.published_us) / US_PER_S
    assert found["lockstep_last_publication_age_seconds", (job,)] == pytest.approx(age_s)
    ages = sorted(one.published_us - one.ingested_oldest_us for one in made.store.published(0, 19))  # type: ignore[operator]
    assert found["lockstep_latency_seconds", (job, ("quantile", "1"))] == pytest.approx(ages[-1] / US_PER_S)
    assert found["lockstep_latency_seconds", (job, ("quantile", "0.5"))] == pytest.approx(ages[9] / US_PER_S)
    assert found["lockstep_replicas_wanted", (job,)] == 2
    assert found["lockstep_replicas_healthy", (job,)] == 2
    assert found["lockstep_replica_lag_epochs", (job, ("replica", "r1"))] == 2
    assert found["lockstep_replica_restarts_total", (job, ("replica", "r1"))] == 1
    assert found["lockstep_replica_recovery_seconds", (job, ("replica", "r1"))] == pytest.approx(2.0)
    assert found["lockstep_divergences_total", (job,)] == 1
    assert found["lockstep_operations", (job, ("state", "asked"))] == 1
    assert found["lockstep_operation_age_seconds", (job,)] == pytest.approx(2.0)
    assert found["lockstep_spares_ready", (job,)] == 1
    assert found["lockstep_job_state", (job, ("state", "healthy"))] == 1
    assert sum(v for (name, _), v in found.items() if name == "lockstep_job_state") == 1
    assert found["lockstep_jobs", ()] == 1


def test_names_follow_the_conventions_and_labels_are_few(made: MadeUp) -> None:
    for metric in METRICS:
        assert re.fullmatch(r"lockstep_[a-z_]+", metric.name) and metric.help.endswith(".")
        assert not re.search(r"_(ms|us|minutes|kb|mb)(_|$)", metric.name), "base units: seconds and bytes"
        assert set(metric.labels) <= {"replica", "state", "quantile"}
    labels = {name for _, sample in scraped(made) for name, _ in sample}
    assert labels <= {"lockstep_job", "replica", "state", "quantile", "version", "pyspark", "python"}


def test_a_job_whose_store_cannot_be_read_does_not_hide_the_others(made: MadeUp) -> None:
    broken = made.folder / ".lockstep" / "jobs" / "broken"
    shutil.copytree(made.folder / ".lockstep" / "jobs" / made.job, broken)
    for file in broken.glob("*.db*"):
        file.write_bytes(b"no database at all" * 500)
    found = scraped(made)
    assert found["lockstep_job_readable", (("lockstep_job", "broken"),)] == 0
    assert found["lockstep_job_readable", (("lockstep_job", made.job),)] == 1
    assert found["lockstep_epochs_sealed_total", (("lockstep_job", made.job),)] == 20


def exported(made: MadeUp) -> set[str]:
    return {metric.name for metric in METRICS} | {name for name, _ in scraped(made)}


@pytest.mark.parametrize("file", ["alerts.yml", "grafana.json"])
def test_every_metric_that_is_asked_for_exists(made: MadeUp, file: str) -> None:
    asked = set(_NAME.findall(SHIPPED.joinpath(file).read_text(encoding="utf-8"))) - _LABELS
    assert len(asked) > 8 and asked <= exported(made), asked - exported(made)


def test_the_board_can_be_imported() -> None:
    board = json.loads(SHIPPED.joinpath("grafana.json").read_text(encoding="utf-8"))
    assert {one["name"] for one in board["templating"]["list"]} == {"datasource", "lockstep_job"}
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) and len(ids) >= 12
    for panel in board["panels"]:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 and panel["targets"]


@pytest.mark.skipif(PROMTOOL is None, reason="no promtool: apt-get install prometheus")
def test_the_alerts_come_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    rules = SHIPPED.joinpath("alerts.yml").read_text(encoding="utf-8")
    (tmp_path / "alerts_test.yml").write_bytes(Path(__file__).with_name("alerts_test.yml").read_bytes())

    def tested(text: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "alerts.yml").write_text(text, encoding="utf-8")
        command = [str(PROMTOOL), "test", "rules", "alerts_test.yml"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    good = tested(rules)
    assert good.returncode == 0, good.stdout + good.stderr
    assert tested(rules.replace("age_seconds > 60", "age_seconds > 6000")).returncode != 0
