"""Fixtures for pytest. In the `conftest.py` at the top: ``pytest_plugins = ["lockstep.testing.fixtures"]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from lockstep.testing.tables import Rows, differences

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def lockstep_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One Spark session for all tests, with the settings of a replica: starting one takes seconds."""
    # Tests that never ask for it do not wait for PySpark to be imported either.
    from lockstep.testing.session import opened_session

    with opened_session(tmp_path_factory.mktemp("lockstep-spark")) as opened:
        yield opened


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Let ``assert result.sink() == [...]`` say which rows differ."""
    if op == "==" and isinstance(left, Rows) and isinstance(right, list | tuple | Rows):
        return differences(left, right)
    if op == "==" and isinstance(right, Rows) and isinstance(left, list | tuple):
        return differences(right, left)
    return None
