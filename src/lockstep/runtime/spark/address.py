"""Spark at the address of the checkpoints: its settings for HDFS and S3, and whether both of us mean the same place.

Spark's JVM writes there with Hadoop's client, Lockstep's Python reads with one of its own (``connect/remote``).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from lockstep.config import SparkSettings
from lockstep.connect.remote.paths import AnyPath, RemotePath, location
from lockstep.errors import ServiceError
from lockstep.machine import s3a_folder
from lockstep.runtime.spark.executors import Executor, placed

_JARS = "spark.jars"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_BY_CONTEXT = "org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager"
_CLIENTS = {"s3a": "org.apache.hadoop.fs.s3a.S3AFileSystem", "hdfs": "org.apache.hadoop.hdfs.DistributedFileSystem"}
_PROBE = ".probe-"


def address_conf(address: str, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What Spark is told for checkpoints at an address.

    The file manager for local disks does not replace what is there on HDFS, which an epoch that runs again relies on;
    this one does. In S3 it copies, which makes each file appear as a whole; that nobody else creates the same one is
    granted by the folder, which has one writer.

    >>> address_conf("s3a://shop/lockstep", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000"})["spark.hadoop.fs.s3a.endpoint"]
    'http://127.0.0.1:9000'
    >>> address_conf(""), address_conf("file:///mnt/shared")
    ({}, {})
    """
    scheme = address.partition("://")[0]
    if scheme not in _CLIENTS:
        return {}
    conf = {_MANAGER: _BY_CONTEXT}
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL")
    if scheme == "s3a" and endpoint:
        # Hadoop does not read the variables that boto3 reads; another store than AWS has buckets in its paths.
        conf |= {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
        conf["spark.hadoop.fs.s3a.endpoint.region"] = region
    return conf


def with_client(settings: SparkSettings, address: str) -> SparkSettings:
    """With the jars that were fetched for the address, beside those of the user; a client of the user's own is kept.

    >>> with_client(SparkSettings(conf={"spark.jars": "mine.jar"}), "hdfs://n/x").conf
    {'spark.jars': 'mine.jar'}
    """
    own = [jar for jar in settings.conf.get(_JARS, "").split(",") if jar]
    if not address.startswith("s3a:") or any(Path(jar).name.startswith("hadoop-aws") for jar in own):
        return settings
    jars = [*own, *map(str, sorted(s3a_folder().glob("*.jar")))]
    return settings.model_copy(update={"conf": {**settings.conf, _JARS: ",".join(jars)}}) if jars else settings


def check_address(session: SparkSession, address: str) -> None:
    """LS0702 unless what Spark writes at the address is what we read there. Paths have nothing to check."""
    place = location(address) if address else None
    if not isinstance(place, RemotePath):
        return
    _check_client(session, address)
    probe = place / f"{_PROBE}{secrets.token_hex(8)}"
    content = secrets.token_hex(8)
    try:
        _write(session, str(probe), content)
        if probe.read_text() != content:
            raise _unlike(address, "another file is there")
    except FileNotFoundError:
        raise _unlike(address, "what Spark wrote there is not found") from None
    except Py4JJavaError as error:
        raise _unlike(address, _said(error)) from None
    finally:
        probe.unlink()


def check_from_executors(session: SparkSession, targets: Sequence[Executor], address: str) -> None:
    """LS0702 if an executor cannot write at the address as Spark does there, or if that does not arrive here."""
    place = location(address) if address else None
    if not isinstance(place, RemotePath):
        return
    folder = place / f"{_PROBE}{secrets.token_hex(8)}"
    try:
        placed(session, [(one, one.id) for one in targets]).saveAsTextFile(str(folder))
        found = {line for part in _parts(folder) for line in part.read_text().splitlines()}
        if missing := sorted({one.id for one in targets} - found):
            raise _unlike(address, f"what executor {missing[0]} wrote there is not found")
    except Py4JJavaError as error:
        raise _unlike(address, f"from an executor: {_said(error)}") from None
    finally:
        folder.system.remove_folder(folder.key)


def _parts(folder: AnyPath) -> list[AnyPath]:
    return [path for path in folder.iterdir() if path.name.startswith("part-")]


def _check_client(session: SparkSession, address: str) -> None:
    scheme = address.partition("://")[0]
    try:
        loader = session._jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        loader.loadClass(_CLIENTS[scheme])
    except Py4JError:
        raise ServiceError(
            "LS0704",
            f'Spark has no client for addresses like "{scheme}:"',
            why=f"checkpoints are to be at {address}, and {_CLIENTS[scheme]} is missing: PySpark brings HDFS alone.",
            hint="`lockstep services install s3a` fetches it with Maven's client, on each host that runs replicas; or "
            'name what you have: [spark] "spark.jars" = "/jars/hadoop-aws-3.5.0.jar,/jars/bundle-2.35.4.jar"',
        ) from None


def _write(session: SparkSession, path: str, content: str) -> None:
    jvm: Any = session._jvm
    target = jvm.org.apache.hadoop.fs.Path(path)
    stream = target.getFileSystem(session._jsparkSession.sessionState().newHadoopConf()).create(target)
    try:
        stream.write(bytearray(content.encode()))
    finally:
        stream.close()


def _said(error: Py4JJavaError) -> str:
    """The innermost cause, in one line."""
    cause = error.java_exception
    for _ in range(20):
        if (inner := cause.getCause()) is None:
            break
        cause = inner
    return str(cause.toString()).splitlines()[0][:600]


def _unlike(address: str, why: str) -> ServiceError:
    return ServiceError(
        "LS0702",
        f"Spark and Lockstep do not share {address}",
        why=f"{why}. Checkpoints are written there by Spark's own client, and read by Lockstep's.",
        hint="does the system answer, and may this user write there? On HDFS HADOOP_CONF_DIR and HADOOP_USER_NAME are "
        "for both clients; in S3 Spark reads fs.s3a.* settings, and Lockstep AWS_ENDPOINT_URL and what boto3 finds.",
    )
