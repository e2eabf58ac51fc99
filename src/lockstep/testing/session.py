"""The Spark session that tests share: opened once, with the pins that every replica has."""

from __future__ import annotations

import atexit
import logging
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lockstep.config import SparkSettings
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.boot import boot
from lockstep.runtime.spark.environment import open_session
from lockstep.runtime.spark.launching import jvm_command, jvm_conf
from lockstep.testing.forked_workers import forked_workers

CORES = 2
"""Enough to see what goes wrong in parallel; more of them only wait for each other over a test's few records."""

INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Spark compiles Java for every query; over a test's few records that costs more than it saves, a sixth in all."""

_shared: list[SparkSession] = []


@contextmanager
def opened_session(scratch: Path, cores: int = CORES, conf: Mapping[str, str] = INTERPRETED) -> Iterator[SparkSession]:
    """A session for as long as the block lasts. Until then this process has a replica's environment, UTC included."""
    before = dict(os.environ)
    # Workers inherit what this process has: it becomes a replica's process for as long as the session lives.
    os.environ.update(process_environment())
    time.tzset()
    settings = SparkSettings(master=f"local[{cores}]", conf=conf)
    # As a replica starts its own; a session that was opened here before has left one, which PySpark uses again.
    if SparkContext._gateway is None and (command := jvm_command(settings)):
        boot(command, scratch, jvm_conf(settings))
    opened = open_session("lockstep-tests", settings, scratch)
    _hush(opened)
    _shared.append(opened)
    try:
        with forked_workers() as program:
            opened.sparkContext.pythonExec = program
            yield opened
    finally:
        _shared.remove(opened)
        opened.stop()
        os.environ.clear()
        os.environ.update(before)
        time.tzset()


def _hush(session: SparkSession) -> None:
    """Spark logs a query that ends with an error at length: a test gets the error itself, and wanted each crash."""
    jvm = session.sparkContext._jvm
    assert jvm is not None
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel("org.apache.spark.sql.execution.streaming", log4j.Level.OFF)
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)


def shared_session() -> SparkSession:
    """The session that is open, or one that stays open until this process ends."""
    if not _shared:
        stack = ExitStack()
        atexit.register(stack.close)
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="lockstep-tests-", ignore_cleanup_errors=True))
        stack.enter_context(opened_session(Path(scratch)))
    return _shared[-1]
