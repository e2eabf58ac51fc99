"""One Spark session for the whole ring, with the pins that every replica has."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.api.job import Job
from lockstep.config import SparkSettings
from lockstep.runtime.environment import open_session, process_environment
from tests.spark.harness import Trial

NewTrial = Callable[..., Trial]


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    before = dict(os.environ)
    # Workers inherit what this process has: it becomes a replica's process for as long as the session lives.
    os.environ.update(process_environment())
    time.tzset()
    opened = open_session("tests", SparkSettings(master="local[2]"), tmp_path_factory.mktemp("scratch"))
    yield opened
    opened.stop()
    os.environ.clear()
    os.environ.update(before)
    time.tzset()


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
