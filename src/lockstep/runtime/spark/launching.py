"""The command of Spark's JVM, as Spark's own launcher makes it from the settings: asked once, then kept in a file."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from lockstep.config import SparkSettings
from lockstep.credentials import redacted, write_private
from lockstep.machine import find_java
from lockstep.runtime.process_environment import process_environment
from lockstep.runtime.spark.archive import archive_path
from lockstep.runtime.spark.boot import PROPERTIES, properties_text, submit_options
from lockstep.runtime.spark.environment import java_options

COMMANDS_KEPT = 32
_TIMEOUT_S = 8.0
"""Shorter than the supervisor's lease: it waits for the answer."""


def spark_home() -> Path:
    """Where Spark is."""
    return Path(pyspark.__file__).parent


def jvm_command(settings: SparkSettings) -> list[str]:
    """What to run for a JVM with these settings; empty if the launcher gives no answer, then PySpark has to do it."""
    conf = jvm_conf(settings)
    # Secrets are no part of the command, nor of the name of the file that it is kept in.
    hadoop = [os.environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]  # on the class path
    facts = [str(find_java().home), str(spark_home()), pyspark.__version__, redacted(conf), *hadoop]
    text = json.dumps(facts, sort_keys=True)
    path = archive_path().parent / f"jvm-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    if kept := _kept(path):
        return kept
    command = _asked(conf)
    if command:
        # A cache: without it the next start asks again.
        with suppress(OSError):
            _keep(command, path)
    return command


def jvm_conf(settings: SparkSettings) -> dict[str, str]:
    """What a JVM with these settings has to know when it starts."""
    return {
        **settings.conf,
        "spark.master": settings.master,
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": java_options(settings.conf.get("spark.driver.extraJavaOptions", "")),
    }


def _kept(path: Path) -> list[str]:
    """The command in the file; empty if there is none, or if a power cut left it torn."""
    try:
        kept: list[str] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return kept


def _asked(conf: Mapping[str, str]) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="lockstep-") as folder:
        path = Path(folder) / "spark.properties"
        write_private(path, properties_text(conf))
        command = _answered(submit_options(path))
        return [PROPERTIES if word == str(path) else word for word in command]


def _answered(options: list[str]) -> list[str]:
    home = spark_home()
    cores = sorted((home / "jars").glob("spark-core_*.jar"))
    if not cores:
        return []
    scala = cores[0].name.removeprefix("spark-core_").partition("-")[0]
    launcher = ["-Xmx128m", "-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main"]
    submit = ["org.apache.spark.deploy.SparkSubmit", *options]
    try:
        answer = subprocess.run(
            [str(find_java().home / "bin" / "java"), *launcher, *submit],
            env={**process_environment(), "SPARK_HOME": str(home), "SPARK_SCALA_VERSION": scala},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return []
    return words(answer.stdout) if answer.returncode == 0 else []


def words(answer: str) -> list[str]:
    """The command in what the launcher prints: a zero on a line of its own, then the words, each ended by a zero.

    >>> words("a warning\\n\\0\\njava\\0-Dnote=two words\\0Main\\0")
    ['java', '-Dnote=two words', 'Main']
    """
    return answer.partition("\0\n")[2].split("\0")[:-1]


def _keep(command: list[str], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}.new")
    write_private(temporary, json.dumps(command))
    temporary.replace(path)
    older = sorted(path.parent.glob("jvm-*.json"), key=lambda one: one.stat().st_mtime)[:-COMMANDS_KEPT]
    for one in older:
        one.unlink(missing_ok=True)
