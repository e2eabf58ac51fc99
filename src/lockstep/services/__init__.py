"""Real servers for development and tests: ZooKeeper, Kafka, Postgres, Spark and HDFS, ended with this process.

Nothing here is part of a running job: production has servers of its own, and gives Lockstep their addresses.
"""

from __future__ import annotations

from lockstep.services.finding import missing
from lockstep.services.installing import fetch_ahead
from lockstep.services.running import Node, Service, running

__all__ = ["Node", "Service", "fetch_ahead", "missing", "running"]
