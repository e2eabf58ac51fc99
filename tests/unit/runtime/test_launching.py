"""The command of a replica's JVM, and the JVM that is started before anything is loaded."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import pytest

from lockstep.config import SparkSettings
from lockstep.runtime.spark import boot, launching
from lockstep.runtime.spark.boot import PROPERTIES, executors_home
from lockstep.runtime.spark.environment import java_options
from lockstep.runtime.spark.launching import jvm_command

LISTENS = """
import os, struct, sys
with open(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"] + ".new", "wb") as file:
    file.write(struct.pack("!ii", 4711, 6) + b"secret")
os.rename(file.name, file.name.removesuffix(".new"))
sys.stdin.read()
"""
"""A process that does what Spark's JVM does: says where it listens, and ends with its parent's end of the pipe."""


@pytest.fixture(autouse=True)
def _nothing_booting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "_booting", [])


def test_the_command_is_spark_s_own_and_asked_for_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = SparkSettings(driver_memory="1536m", conf={"spark.driver.extraJavaOptions": "-Dmine=1"})
    command = jvm_command(settings)
    assert command[0].endswith("/bin/java") and "-Xmx1536m" in command and "-Dmine=1" in command
    assert command[command.index("org.apache.spark.deploy.SparkSubmit") :][-1] == "pyspark-shell"
    assert PROPERTIES in command and not any(word.startswith("spark.") for word in command), "settings are in a file"
    assert "-Duser.timezone=UTC" in command, "what may change results is pinned"

    monkeypatch.setattr(launching, "_asked", lambda conf: pytest.fail(f"asked again: {conf}"))
    assert jvm_command(settings) == command


def test_on_a_small_machine_only_the_quick_compiler_runs_and_has_room_for_what_it_compiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"} < set(java_options().split())
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    assert "-XX:TieredStopAtLevel=1" not in java_options()


def test_pyspark_finds_the_jvm_that_was_started_early_and_nobody_else_does(tmp_path: Path) -> None:
    boot.boot([sys.executable, "-c", LISTENS], tmp_path, {})
    with boot.booted():
        assert (os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]) == ("4711", "secret")
    assert "PYSPARK_GATEWAY_PORT" not in os.environ and "PYSPARK_GATEWAY_SECRET" not in os.environ
    assert list(tmp_path.iterdir()) == [], "the secret is gone from the disk"
    started = boot._in_use.pop()
    assert started._process.poll() is None
    assert started._process.stdin is not None
    started._process.stdin.close()
    assert started._process.wait(timeout=20) == 0, "it ends with our end of the pipe"


def test_a_jvm_that_ends_instead_is_replaced_by_pyspark_s_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    boot.boot([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, {})
    with boot.booted():
        assert "PYSPARK_GATEWAY_PORT" not in os.environ
    assert "has ended" in capsys.readouterr().err


def test_a_connection_is_read_whole() -> None:
    assert boot._read(struct.pack("!ii", 1, 2) + b"ab" + b"rest") == (1, "ab")


def test_a_jvm_that_starts_executors_has_a_home_of_its_own_with_sparks_jars(tmp_path: Path) -> None:
    jars = tmp_path / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "spark-core_2.13-4.3.0.jar").touch()
    command = ["java", "-cp", f"/conf:{jars}/*", "Main"]
    assert executors_home("spark://h1:7077", command, tmp_path) == executors_home("local[2]", command, tmp_path) == {}
    found = executors_home("local-cluster[2,1,1024]", command, tmp_path)
    assert found == {"SPARK_HOME": str(tmp_path / "spark-home"), "SPARK_SCALA_VERSION": "2.13"}
    assert (tmp_path / "spark-home" / "jars").resolve() == jars
    assert executors_home("yarn", command, tmp_path)["SPARK_HOME"] == str(jars.parent)
