"""The files that Spark keeps a replica's state in: what is read from them, and damage to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import check_state, standing
from lockstep.runtime.state.state_metadata import state_operators, state_partitions

OPERATORS = {
    "symmetricHashJoin",  # interval and window joins
    "stateStoreSave",  # tumbling and sliding windows, rolling results
    "sessionWindowStateStoreSaveExec",
    "transformWithStateInPySparkExec",  # distinct, fold, process functions, general windows
}
"""All that Spark has under the steps that a job can have."""


def assert_notes_are_sparks(session: SparkSession, folders: list[Path]) -> None:
    """What is read from the files is what Spark's own reader says."""
    seen: set[str] = set()
    for folder in folders:
        at = standing(folder)
        assert at is not None
        rows = session.read.format("state-metadata").load(str(folder)).collect()
        said = {(row.operatorId, row.operatorName, row.stateStoreName, row.numPartitions) for row in rows}
        operators = state_operators(folder, at.batch)
        assert {(o.number, o.name, s.name, s.partitions) for o in operators for s in o.stores} == said
        seen |= {operator.name for operator in operators}
    assert seen == OPERATORS


def assert_damage_is_found(folders: list[Path]) -> None:
    """In any store of any operator, with the files that Spark wrote."""
    for folder in folders:
        at = standing(folder)
        assert at is not None
        for partition in state_partitions(folder, at.batch):
            path = partition.folder / f"{at.batch + 1}.changelog"
            whole = path.read_bytes()
            path.write_bytes(whole[:-1])
            with pytest.raises(RunError, match="LS0604") as caught:
                check_state(folder, at.batch)
            assert str(partition) in str(caught.value)
            path.write_bytes(whole)
        check_state(folder, at.batch)
