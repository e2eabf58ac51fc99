"""Makes the class archive with which Spark's JVM boots in half the time; once per machine, and no harm if it fails."""

from __future__ import annotations

import sys

from lockstep.errors import LockstepError
from lockstep.runtime.spark.archive import archive_path, build_archive


def main() -> int:
    """Always 0: everything works without the archive, only more slowly."""
    if archive_path().exists():
        return 0
    sys.stderr.write("setup: keeping Spark's classes in an archive, so that replicas boot faster (once, 45 s)\n")
    try:
        build_archive()
    except LockstepError as error:
        sys.stderr.write(f"setup: {error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
