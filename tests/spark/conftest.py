"""One Spark session for the whole ring, with the pins that every replica has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.api.job import Job
from tests.spark.harness import Trial

NewTrial = Callable[..., Trial]


@pytest.fixture(scope="session")
def session(lockstep_spark: SparkSession) -> SparkSession:
    """The kit's own fixture, by the short name."""
    return lockstep_spark


@pytest.fixture
def trial(session: SparkSession, tmp_path: Path) -> Iterator[NewTrial]:
    """Makes trials of jobs; whatever still runs at the end of the test is stopped."""
    made: list[Trial] = []

    def new(job: Job, folder: str = "project", **settings: object) -> Trial:
        made.append(Trial(session, job, tmp_path / folder, settings))
        return made[-1]

    yield new
    for one in made:
        one.close()
