"""The environment variables of a replica's processes. Light on purpose: an agent needs it before its first start."""

from __future__ import annotations

import os
import sys

from lockstep.machine import find_java

PROCESS_PINS = {"TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def process_environment() -> dict[str, str]:
    """The environment variables a replica's process starts with; workers inherit them."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    return {
        **kept,
        **PROCESS_PINS,
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
