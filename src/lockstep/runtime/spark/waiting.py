"""Queries that are started before their checkpoints are there: what takes long is over when the seed is taken.

Starting a query means a Python process for each source, seconds on a busy machine, and the head moves on meanwhile. So
the queries are started first, on the logs that the rehearsal left, and held at the gate (``runtime/epoch/gate.py``)
right before Spark looks where to go on. Then the seed is taken, put in the place of those logs, and the gate is opened.

Spark reads the newest entry of the offset log twice: once before the sources, for settings that all epochs share, and
once after them, to go on from there. The first reading is why there have to be logs at all.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming import StreamingQuery

from lockstep.compile.job import Compiled
from lockstep.config import PARTITIONS
from lockstep.connect.remote.paths import AnyPath
from lockstep.runtime.epoch import gate as gates
from lockstep.runtime.epoch.source import SourceOptions
from lockstep.runtime.spark.batches import for_each_batch

Epoch = Callable[[DataFrame, int], None]
STILL_S_MAX = 60.0
"""A source that has not come to the gate so long after the one before it will not: Spark may do it in another order."""
_POLL_S = 0.02


class WaitingQueries:
    """One query for each stage, as far as it comes without a checkpoint."""

    def __init__(self, stages: Sequence[Compiled], logs: Mapping[int, Path], gate: Path) -> None:
        """Start them; ``logs`` are the folders, one for each stage, that become links to the checkpoints."""
        self._logs = logs
        self._gate = gate
        self._epochs: dict[int, Epoch] = {}
        gates.close(gate, {stage.stage.number: _sources_of(stage.frame) for stage in stages})
        self.queries = {stage.stage.number: self._started(stage) for stage in stages}

    def _started(self, stage: Compiled) -> StreamingQuery:
        number = stage.stage.number

        def epoch(frame: DataFrame, batch: int) -> None:
            self._epochs[number](frame, batch)

        return started(stage, self._logs[number], epoch)

    def come(self, should_stop: Callable[[], bool]) -> bool:
        """Wait until all of them are at the gate; False, and none is left, if one does not come or it should stop."""
        before, since_s = -1, time.monotonic()
        while missing := gates.missing(self._gate):
            if missing != before:
                before, since_s = missing, time.monotonic()
            is_still = time.monotonic() - since_s > STILL_S_MAX
            if is_still or should_stop() or not all(query.isActive for query in self.queries.values()):
                self._give_up()
                return False
            time.sleep(_POLL_S)
        return True

    def go_on(self, epochs: Mapping[int, Epoch], checkpoints: Mapping[int, AnyPath]) -> None:
        """Open the gate: these functions compute the epochs, from these checkpoints on."""
        self._epochs.update(epochs)
        for number, logs in self._logs.items():
            checkpoint = checkpoints[number]
            assert isinstance(checkpoint, Path), "no link leads to an address"
            shutil.rmtree(logs)
            logs.symlink_to(checkpoint.absolute(), target_is_directory=True)
        gates.clear(self._gate)

    def _give_up(self) -> None:
        for query in self.queries.values():
            if (error := query.exception()) is not None:
                # Not fatal here: queries are started without waiting then, and say what is wrong if they fail too.
                print(f"a query did not wait for its checkpoint: {error}", file=sys.stderr, flush=True)
            query.stop()
        gates.clear(self._gate)


def _sources_of(frame: DataFrame) -> list[str]:
    """The sources that a query reads, as its plan has them."""
    found = frame._jdf.queryExecution().analyzed().collectLeaves()
    leaves = [found.apply(number) for number in range(found.size())]
    streams = [leaf for leaf in leaves if leaf.getClass().getSimpleName() == "StreamingRelationV2"]
    return [SourceOptions.from_json(leaf.extraOptions().get("lockstep")).source for leaf in streams]


def started(stage: Compiled, checkpoint: AnyPath, epoch: Epoch) -> StreamingQuery:
    """The query of one stage. Spark keeps the number of partitions that the session has at this moment."""
    if stage.partitions is not None:
        stage.frame.sparkSession.conf.set(PARTITIONS, str(stage.partitions))
    query: StreamingQuery = (
        for_each_batch(stage.frame, epoch)
        .outputMode(stage.output_mode)
        .option("checkpointLocation", str(checkpoint))
        .start()
    )
    return query
