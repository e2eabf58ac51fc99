"""A checkpoint in another number of partitions: Spark's own offline repartitioning, on a copy that nobody else uses.

It adds a batch with the offsets of the one before, so batch numbers and epochs drift apart from then on.
"""

from __future__ import annotations

from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lockstep.config import PARTITIONS
from lockstep.errors import RunError
from lockstep.runtime.state.checkpoint import check_state, partitions_of, standing
from lockstep.runtime.state.state_metadata import note_partitions, relocate


def repartition(session: SparkSession, checkpoint: Path, partitions: int) -> bool:
    """Bring a checkpoint that is at rest to so many partitions; whether that was needed."""
    before = partitions_of(checkpoint)
    if before is None or before == partitions:
        return False
    # Steps with Python state note where their schemas are: in a copy that has to be the copy.
    relocate(checkpoint)
    try:
        session._streamingCheckpointManager.repartition(str(checkpoint), partitions)
    except (PySparkException, Py4JError) as error:
        raise RunError(
            "LS0619",
            f"state in {before} partitions could not be brought to {partitions}",
            why=str(error).splitlines()[0],
            hint=f'"{PARTITIONS}" = {before} goes on with the state as it is; the replica\'s log has the whole error.',
        ) from None
    at = standing(checkpoint)
    assert at is not None, "repartitioning adds a batch"
    note_partitions(checkpoint, at.batch)
    check_state(checkpoint, at.batch)
    return True
