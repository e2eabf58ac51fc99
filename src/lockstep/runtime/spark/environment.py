"""The session of a replica: everything that could make two replicas differ is pinned here.

The pins' hash is kept in the ledger's facts; a replica with other pins is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from lockstep import __version__
from lockstep.config import SparkSettings
from lockstep.credentials import SECRET_KEYS, write_private
from lockstep.machine import java_facts
from lockstep.runtime.process_environment import PROCESS_PINS
from lockstep.runtime.spark.address import address_conf, with_client
from lockstep.runtime.spark.archive import archive_options
from lockstep.runtime.spark.boot import booted, properties_text, submit_options
from lockstep.runtime.spark.hadoop_settings import lighten
from lockstep.runtime.spark.local_files import without_processes
from lockstep.runtime.spark.masters import cluster_conf

_OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer."
_STREAMING = "org.apache.spark.sql.execution.streaming."

RESULT_PINS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.streaming.multipleWatermarkPolicy": "min",
    # Heartbeat epochs take the place of Spark's own empty batches: one epoch is exactly one micro-batch.
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # These two rules push filters below the watermark node, so that only matching records would move event time.
    "spark.sql.optimizer.excludedRules": f"{_OPTIMIZER}PushDownPredicates,{_OPTIMIZER}PushPredicateThroughNonJoin",
}
"""Settings that change results. A user's value for one of them is refused."""

SPEED: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    # Else Spark reads the byte code of each operator's function in every epoch, to see that it never returns early.
    "spark.sql.execution.usePartitionEvaluator": "true",
    # An aggregation's first hash table (a second follows): with room for 65,536 keys, laying it out takes too long.
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "12",
    "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.maintenanceInterval": "10s",
    # Without Hadoop's native library each file created by the default manager forks chmod and stat.
    "spark.sql.streaming.checkpointFileManagerClass": f"{_STREAMING}checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "100",
    "spark.sql.streaming.numRecentProgressUpdates": "5",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Else each function of PySpark notes the line that called it: three calls into the JVM, and the line is ours.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.cleaner.periodicGC.interval": "5min",
    # A quarter of the default heap; an epoch of which more would come through the driver is staged by executors.
    "spark.driver.maxResultSize": "256m",
    "spark.log.level": "ERROR",
    "spark.redaction.regex": SECRET_KEYS,
}
"""Settings that change only how fast it goes; a user may override each."""

STATE_PINS = (
    "spark.sql.streaming.stateStore.providerClass",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.stateStore.checkpointFormatVersion",
    "spark.sql.streaming.checkpointFileManagerClass",
)
"""Settings that change what a checkpoint looks like, which Lockstep reads and copies: not for users either."""

JAVA_OPTIONS = (
    "-Djdk.lang.Process.launchMechanism=VFORK -Xss8m -XX:+UseSerialGC -Duser.timezone=UTC "
    "-Duser.language=en -Duser.country=US -Dfile.encoding=UTF-8"
)
SMALL_MACHINE_CORES = 4
CODE_CACHE = "-XX:ReservedCodeCacheSize=240m"
"""What a JVM with both compilers reserves; only what is used is taken."""


def environment_hash() -> str:
    """A fingerprint of everything about this replica that may change results."""
    facts = {
        "pins": dict(RESULT_PINS),
        "process": PROCESS_PINS,
        "python": list(sys.version_info[:2]),
        "pyspark": pyspark.__version__,
        "pyarrow": pa.__version__.split(".")[0],
        "java": java_facts(),
        "lockstep": __version__,
        "byteorder": sys.byteorder,
        "implementation": platform.python_implementation(),
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def versions() -> dict[str, str]:
    """What is installed here, for people: patches too, which the fingerprint leaves out."""
    java, zones = java_facts()
    return {
        "Python": platform.python_version(),
        "Spark": pyspark.__version__,
        "Arrow": pa.__version__,
        "Java": java,
        "time zones": zones,
        "Lockstep": __version__,
        "at": sys.executable,
    }


def java_options(extra: str = "") -> str:
    """What the JVM of a replica is told.

    On a small machine the optimizing compiler (C2) competes with the epochs themselves for minutes after every start,
    and with the other replica most of all; the quick compiler alone makes small epochs no slower. With it alone the JVM
    has room for a fifth of the code that it has otherwise, which one job may fill: then compiling stops, and what was
    compiled is thrown out to be compiled again.
    """
    quick = f"-XX:TieredStopAtLevel=1 {CODE_CACHE}" if (os.cpu_count() or 1) <= SMALL_MACHINE_CORES else ""
    return " ".join(part for part in (JAVA_OPTIONS, quick, archive_options(), extra) if part)


def open_session(
    name: str, settings: SparkSettings, scratch: Path, replicas: int = 1, checkpoints: str = ""
) -> SparkSession:
    """Start Spark with the pins. The JVM ends with this process: its standard input is our end of a pipe.

    On a cluster it takes its share of what ``replicas`` share; ``checkpoints`` is the address at which they are kept.
    """
    settings = with_client(settings, checkpoints)
    conf = {
        **SPEED,
        **_default_files(settings.master),
        **address_conf(checkpoints),
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        **settings.conf,
        **cluster_conf(settings, replicas, JAVA_OPTIONS),
        **RESULT_PINS,
        "spark.driver.extraJavaOptions": java_options(settings.conf.get("spark.driver.extraJavaOptions", "")),
    }
    builder = SparkSession.builder.appName(name).master(settings.master)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with booted(), _told_by_file({**conf, "spark.master": settings.master}, scratch):
        SparkContext._ensure_initialized()
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # PySpark logs every refused plan with a JSON stack trace; our errors say it in the words of the job.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    _skip_lookup(session)
    without_processes(session)
    lighten(session)
    return session


def _default_files(master: str) -> dict[str, str]:
    """Have a path be one of this host, also where Hadoop's settings are at hand and mean HDFS by it.

    YARN brings Spark's files to its hosts by that.
    """
    return {} if master.startswith("yarn") else {"spark.hadoop.fs.defaultFS": "file:///"}


@contextmanager
def _told_by_file(conf: Mapping[str, str], folder: Path) -> Iterator[None]:
    """In here PySpark, if it has to start a JVM, gives it the settings in a file: everybody sees arguments."""
    path = folder / "spark.properties"
    write_private(path, properties_text(conf))
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(submit_options(path))
    try:
        yield
    finally:
        del os.environ["PYSPARK_SUBMIT_ARGS"]
        path.unlink()


def _skip_lookup(session: SparkSession) -> None:
    """Tell Spark that no installed package brings data sources: else it starts a Python process to look for some.

    A job names only Lockstep's own, which is registered by hand. Not part of Spark's interface, so no harm without it.
    """
    scala = session._jvm.scala
    try:
        manager = getattr(session._jvm.org.apache.spark.sql.execution.datasources, "DataSourceManager$")
        none = getattr(getattr(scala.collection.immutable, "Map$"), "MODULE$").empty()
        getattr(getattr(manager, "MODULE$"), "dataSourceBuilders_$eq")(scala.Some(none))
    except (Py4JError, TypeError) as error:
        print(f"Spark looks for data sources: {error}", file=sys.stderr, flush=True)


def refused_settings(settings: SparkSettings) -> list[str]:
    """The user's Spark settings that would change results between replicas."""
    pinned = {**{key: SPEED.get(key) for key in STATE_PINS}, **RESULT_PINS}
    return sorted(key for key, value in settings.conf.items() if key in pinned and pinned[key] != value)
