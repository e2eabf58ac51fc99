"""The totals as someone would write them in PySpark: what `lockstep bench hosts` compares with.

``python -m lockstep.bench.hosts.by_hand SERVERS JARS CHECKPOINT FOLDER``. It runs until it is ended; started again with
the same checkpoint, it goes on.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lockstep.bench.hosts.contrast import ORDERS, TOTALS
from lockstep.bench.kafka.by_hand import session, source, totals, written


def main() -> None:
    """The process of the hand-written query."""
    servers, jars, checkpoint, folder = sys.argv[1:]
    spark = session(os.environ["BENCH_MASTER"], jars, Path(folder))
    frame = totals(source(spark, servers, ORDERS))
    written(frame, "update", servers, TOTALS, Path(checkpoint)).awaitTermination()


if __name__ == "__main__":
    main()
