"""Credentials in Spark's settings: the JVM gets them, and nobody else on the machine."""

from __future__ import annotations

import io
import json
import stat
import sys
import time
from pathlib import Path

import psutil
import pytest

from lockstep import credentials
from lockstep.agent.processes import with_jvm
from lockstep.config import Settings, SparkSettings
from lockstep.credentials import REDACTED, RedactedStream, hide_secrets, without_secrets
from lockstep.errors import RunError
from lockstep.runtime.spark import boot
from lockstep.runtime.spark.boot import PROPERTIES, properties_text
from lockstep.runtime.spark.launching import jvm_command
from lockstep.runtime.spec import ReplicaSpec
from lockstep.store.sqlite_store import open_store

SECRET = "tiger&leopard=äö 𝔖\\n"
KEY = "spark.hadoop.fs.s3a.secret.key"


@pytest.fixture(autouse=True)
def _fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_hidden", set())
    monkeypatch.setattr(boot, "_booting", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _spec(folder: Path) -> ReplicaSpec:
    settings = Settings(spark=SparkSettings(conf={KEY: SECRET})).model_dump(mode="json")
    return with_jvm(
        ReplicaSpec(str(folder), str(folder / ".lockstep"), "job", "job.py:job", "c0de", "r0", "auto", settings)
    )


def _holding(folder: Path) -> list[Path]:
    """The files below a folder that hold the secret in any way of writing it."""
    ways = [
        way.encode() for way in (SECRET, json.dumps(SECRET)[1:-1], properties_text({"": SECRET})[1:-1], repr(SECRET))
    ]
    return [path for path in folder.rglob("*") if path.is_file() and any(way in path.read_bytes() for way in ways)]


def test_only_the_owner_can_read_what_a_replica_is_told_and_the_cache_holds_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text("of an older release, readable by all", encoding="utf-8")
    _spec(tmp_path).write(path)
    assert _holding(tmp_path) == [path]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ReplicaSpec.read(path).parsed_settings().spark.conf[KEY] == SECRET
    kept = list((tmp_path / "cache").rglob("jvm-*.json"))
    assert len(kept) == 1 and stat.S_IMODE(kept[0].stat().st_mode) == 0o600
    assert jvm_command(SparkSettings(conf={KEY: "another"})) == jvm_command(SparkSettings(conf={KEY: SECRET}))


PRINTS = """
import os, struct, sys, time
properties = open(sys.argv[1], encoding="utf-8").read()
print("the JVM complains about", os.environ["THE_SECRET"], file=sys.stderr, flush=True)
with open(os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"] + ".new", "wb") as file:
    file.write(struct.pack("!ii", 4711, 2) + b"ab")
os.rename(file.name, file.name.removesuffix(".new"))
sys.stdin.read()
"""
"""Stands in for the JVM: reads its settings, complains with a secret, listens."""


def test_a_jvm_is_told_by_a_file_that_is_soon_gone_and_its_complaints_are_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("THE_SECRET", "hunter2hunter2")
    conf = {"spark.some.password": "hunter2hunter2"}
    hide_secrets(conf)
    boot.boot([sys.executable, "-c", PRINTS, PROPERTIES], tmp_path, conf)
    child = psutil.Process(boot._booting[0]._process.pid)
    assert not any("hunter2" in word for word in child.cmdline())
    [properties] = tmp_path.rglob("spark.properties")
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600
    with boot.booted():
        assert list(tmp_path.iterdir()) == []
    said = ""
    deadline_s = time.monotonic() + 30
    while "complains" not in said and time.monotonic() < deadline_s:
        said += capfd.readouterr().err
    assert f"the JVM complains about {REDACTED}" in said
    started = boot._in_use.pop()
    assert started._process.stdin is not None
    started._process.stdin.close()
    assert started._process.wait(timeout=20) == 0


def test_errors_events_and_logs_do_not_tell_a_secret(tmp_path: Path) -> None:
    Settings.model_validate({"spark": {"conf": {KEY: SECRET, "spark.security.token.enabled": "true"}}})
    told = f"cannot reach s3a://key:{SECRET}@bucket"
    assert (
        SECRET not in str(RunError("LS0601", told, why=told, hint=told))
        and SECRET not in RunError("LS0601", told).to_wire()
    )
    store = open_store(tmp_path, "job")
    store.add_event("restarted", told, "r0")
    assert [text for *_, text in store.events()] == [f"cannot reach s3a://key:{REDACTED}@bucket"]
    store.close()
    log = io.StringIO()
    print(told, file=RedactedStream(log))
    assert SECRET not in log.getvalue() and REDACTED in log.getvalue()
    assert without_secrets("it is true") == "it is true", "short words are no secrets"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        (
            "spark.hadoop.fs.azure.sas.box.account.blob.core.windows.net",
            "?sv=2024&sig=abcdef",
            "sig: ?sv=2024&sig=abcdef",
        ),
        ("spark.hadoop.fs.azure.sas.fixed.box", "?sv=2024&sig=abcdef", "sig: ?sv=2024&sig=abcdef"),
        ("spark.kafka.sasl.jaas.config", 'Login required username="u" password="leopard";', "no such user: u/leopard"),
    ],
)
def test_secrets_under_keys_that_do_not_say_so_are_hidden(key: str, value: str, told: str) -> None:
    assert credentials.redacted({key: value}) == {key: REDACTED}
    hide_secrets({key: value})
    assert without_secrets(value) == REDACTED
    assert without_secrets(told).endswith(REDACTED)


def test_a_short_secret_is_hidden_where_settings_are_shown_but_not_in_other_texts() -> None:
    hide_secrets({"spark.some.password": "tiger"})
    assert credentials.redacted({"spark.some.password": "tiger"}) == {"spark.some.password": REDACTED}
    assert without_secrets("a tiger") == "a tiger"


def test_properties_keep_every_character() -> None:
    key, _, value = properties_text({KEY: SECRET}).removesuffix("\n").partition("=")
    assert key == KEY and value.isascii() and "\n" not in value
    first, *escaped = value.split("\\u")
    units = first + "".join(chr(int(each[:4], 16)) + each[4:] for each in escaped)
    assert units.encode("utf-16", "surrogatepass").decode("utf-16") == SECRET
