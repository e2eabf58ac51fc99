"""The demo's job as something to look at: submitted to a service, with a steady input while somebody watches."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lockstep.bench.demo.feeding import Feeder
from lockstep.bench.demo.running import JOB_FILE
from lockstep.config import STORE_FOLDER
from lockstep.serve.desk import Desk
from lockstep.serve.service import Service

SEED = 1
REPLICAS = 2


@contextmanager
def demo_project() -> Iterator[Path]:
    """A folder of its own, removed with everything in it once nobody needs it."""
    folder = Path(tempfile.mkdtemp(prefix="lockstep-serve-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def living_job(project: Path) -> Iterator[None]:
    """The job is wanted, and gets 1,000 records a second; whoever serves the project keeps it running."""
    desk = Desk(Service(project))
    try:
        desk.submit(JOB_FILE, replicas=REPLICAS)
    finally:
        desk.close()
    feeder = Feeder(project / STORE_FOLDER, SEED)
    try:
        yield
    finally:
        feeder.kill()
