"""Spark's own connector for Kafka: jars that pyspark does not bring, fetched once with Maven's client."""

from __future__ import annotations

import shutil
from pathlib import Path

from lockstep.bench.workspace import Say
from lockstep.errors import EnvironmentError_
from lockstep.machine import cache_folder
from lockstep.services.descriptions import Jar, jars_pom
from lockstep.services.installing import fetch_jars

CONNECTOR_VERSION = "4.2.0"
JARS: tuple[Jar, ...] = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR_VERSION),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
"""None is published for PySpark 4.3.0. These are the newest releases that are; together they work with it. The rest of
what they need is among pyspark's jars."""


def connector_jars(say: Say) -> str | None:
    """The jars as Spark's setting ``spark.jars`` wants them, None (and a line that says why) if they cannot be had."""
    folder = cache_folder() / f"spark-kafka-{CONNECTOR_VERSION}"
    if not folder.is_dir() and shutil.which("mvn") is None:
        say("without Spark's own connector: there is no mvn to fetch it with (Debian: apt-get install maven)")
        return None
    try:
        fetch_jars(
            folder,
            jars_pom(JARS),
            "Spark's connector for Kafka",
            lambda: say("fetching Spark's connector for Kafka with mvn (10 MB, once)"),
        )
    except EnvironmentError_ as error:
        say(f"without Spark's own connector: {' '.join(error.why.split())[:300]}")
        return None
    return joined(folder)


def joined(folder: Path) -> str:
    """All jars of a folder."""
    return ",".join(str(path) for path in sorted(folder.glob("*.jar")))
