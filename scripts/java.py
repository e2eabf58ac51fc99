"""Makes sure that Java 17 or newer is there: finds it, or installs it where that is possible without asking."""

from __future__ import annotations

import os
import sys

from environment import apt_install
from lockstep.errors import LockstepError
from lockstep.machine import find_java

PACKAGES = ("openjdk-21-jre-headless", "openjdk-17-jre-headless", "default-jre-headless")
"""Newest first; a distribution has at least one of them that is new enough."""


def main() -> int:
    """The exit code: 0 if a Java that Spark can use is there now."""
    problem = _problem()
    # A JAVA_HOME that leads nowhere or to an old Java is for its owner to mend: another Java would change nothing.
    if problem is not None and not os.environ.get("JAVA_HOME"):
        any(apt_install(package) for package in PACKAGES)
        problem = _problem()
    if problem is None:
        return 0
    sys.stderr.write(f"{problem}\n")
    return 1


def _problem() -> LockstepError | None:
    try:
        find_java()
    except LockstepError as error:
        return error
    return None


if __name__ == "__main__":
    sys.exit(main())
