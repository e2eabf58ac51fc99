"""Specs are plain data, checked when they are made."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from lockstep.connect.kafka.specs import kafka
from lockstep.connect.specs import (
    FilesSink,
    FilesSource,
    collection,
    console,
    delta,
    files,
    journal,
    postgres,
    rate,
    spec_from_json,
    sqlite,
)
from lockstep.errors import LockstepError
from lockstep.plan.specs import SinkSpec, SourceSpec

SOURCES = [
    journal("logins", schema="user string, at timestamp", partitions=3),
    journal("logins", schema="user string", timestamp_column="arrived"),
    files("in", schema="n bigint", format="csv", still_for="2 seconds", on_bad_record="stop", pattern="*.csv"),
    rate(12.5, limit=100),
    collection([{"n": 1}, {"n": None}], schema="n bigint"),
    collection(epochs=[[{"n": 1}], [], [{"n": 2}]], schema="n bigint"),
    kafka(
        "orders",
        servers=["h1:9092", "h2:9092"],
        schema="n bigint",
        key_column="k binary",
        timestamp_column="came",
        headers_column="headers",
        start="latest",
        on_bad_record="stop",
        options={"security.protocol": "SASL_SSL", "sasl.password": "env:KAFKA_PASSWORD"},
    ),
    kafka(
        "avro",
        servers="h1:9092",
        format="avro",
        avro_schema='{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}',
        avro_header="confluent",
    ),
]
SINKS = [
    files("out"),
    files("out", format="jsonl"),
    sqlite("o.db", table="t", key=("a", "b")),
    postgres("host=db dbname=shop", table="sales.t", key=("a", "b"), password_env="SHOP"),
    delta("out/t", key=("a", "b"), partition_by="c", optimize_every=0, checkpoint_every=7, retain="2 days"),
    console(5),
    kafka("alerts", servers="h1:9092", key=("a", "b"), options={"linger.ms": "5"}),
]


@pytest.mark.parametrize("spec", [*SOURCES, *SINKS], ids=lambda spec: spec.describe())
def test_a_spec_comes_back_from_its_json_unchanged(spec: Any) -> None:
    assert spec_from_json(spec.kind, json.loads(json.dumps(spec.to_json()))) == spec


def test_sources_and_sinks_are_what_the_plan_asks_for() -> None:
    assert all(isinstance(spec, SourceSpec) for spec in SOURCES)
    assert all(isinstance(spec, SinkSpec) for spec in SINKS)
    assert not any(isinstance(spec, SourceSpec) for spec in SINKS)
    assert not any(isinstance(spec, SinkSpec) for spec in SOURCES)


def test_files_is_a_source_with_a_schema_and_a_sink_without_one() -> None:
    assert isinstance(files("x", schema="n bigint"), FilesSource)
    assert isinstance(files("x"), FilesSink)


@pytest.mark.parametrize(
    "make",
    [
        lambda: journal("../x", schema="n bigint"),
        lambda: kafka("a/b", servers="h:1", schema="n bigint"),
        lambda: kafka("a", servers="", schema="n bigint"),
        lambda: kafka("a", servers="h:1", schema="n bigint", format="avro"),
        lambda: kafka("a", servers="h:1", format="avro", avro_schema=""),
        lambda: kafka("a", servers="h:1", schema="n bigint", avro_header="confluent"),
        lambda: kafka("a", servers="h:1", schema="n bigint", avro_schema='{"type": "long"}'),
        lambda: kafka("a", servers="h:1", schema="n bigint", format="raw"),
        lambda: kafka("a", servers="h:1", schema="n array<int>", format="csv"),
        lambda: kafka("a", servers="h:1", schema="n bigint", key_column="k int"),
        lambda: kafka("a", servers="h:1", schema="n bigint", key="n"),  # type: ignore[call-overload]
        lambda: kafka("a", servers="h:1", options={"isolation.level": "read_uncommitted"}),
        lambda: kafka("a", servers="h:1", options={"sasl.password": "open sesame"}),
        lambda: kafka("a", servers="h:1", key=("n", "n")),
        lambda: journal("x", schema="n bigint", partitions=0),
        lambda: journal("x", schema="n bigimt"),
        lambda: files("", schema="n bigint"),
        lambda: files("x", schema="n bigint", format="xml"),  # type: ignore[call-overload]
        lambda: files("x", schema="n array<int>", format="csv"),
        lambda: files("x", schema="n bigint", on_bad_record="hope"),  # type: ignore[call-overload]
        lambda: files("x", schema="n bigint", still_for="a while"),
        lambda: files("x", format="csv"),  # type: ignore[call-overload]
        lambda: rate(0),
        lambda: rate(1, limit=0),
        lambda: collection(schema="n bigint"),
        lambda: collection([1], schema="n bigint"),  # type: ignore[list-item]
        lambda: collection([{"n": object()}], schema="n bigint"),
        lambda: sqlite("x.db", table='a"; drop table b'),
        lambda: sqlite("x.db", table="_lockstep_epochs"),
        lambda: sqlite("x.db", table="t", key=("a", "a")),
        lambda: postgres("out.db", table="t"),
        lambda: postgres("host=db", table='a"; drop table b'),
        lambda: postgres("host=db", table="a.b.c"),
        lambda: postgres("host=db", table="sales._lockstep_epochs"),
        lambda: postgres("host=db", table="t", key=("a", "a")),
        lambda: delta(" "),
        lambda: delta("s3://bucket/t"),
        lambda: files("hdfs://h1:9000/in", schema="n bigint"),
        lambda: files("hdfs://h1:9000"),
        lambda: files("s3a:/bucket/out"),
        lambda: files("s3a:///out"),
        lambda: files("s3a://bucket/../out"),
        lambda: files("gs://bucket/out"),
        lambda: files("s3a:/bucket/in", schema="n bigint"),
        lambda: sqlite("file:///o.db", table="t"),
        lambda: delta("t", key=("a", "a")),
        lambda: delta("t", partition_by=("a", "a")),
        lambda: delta("t", optimize_every=-1),
        lambda: delta("t", checkpoint_every=0),
        lambda: delta("t", retain="59 minutes"),
        lambda: console(0),
        lambda: spec_from_json("fax", {}),
    ],
)
def test_what_cannot_be_right_is_refused_at_once(make: Any) -> None:
    with pytest.raises(LockstepError):
        make()


@pytest.mark.parametrize(
    "server",
    [
        "host=db password=open-sesame",
        "host=db password = 'open-sesame'",
        "postgresql://app:open-sesame@db/shop",
        "postgresql://app:open/sesame@db/shop",
        "postgresql://db/shop?user=app&password=open-sesame",
        "sslpassword=open-sesame host=db",
    ],
)
def test_a_password_in_an_address_is_refused_and_not_repeated(server: str) -> None:
    with pytest.raises(LockstepError, match="LS0532") as caught:
        postgres(server, table="t")
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    "server", ["postgresql://app@db:5432,db2:5432/shop", "service=shop", "dbname=shop passfile=/run/p"]
)
def test_addresses_without_a_password_are_taken(server: str) -> None:
    assert postgres(server, table="t").server == server


def test_a_collection_takes_datetimes_and_decimals() -> None:
    spec = collection(
        [{"at": datetime(2024, 1, 2, 3, 4, 5), "d": Decimal("1.50")}], schema="at timestamp, d decimal(5,2)"
    )
    assert json.loads(spec.lines[0]) == {"at": "2024-01-02T03:04:05", "d": "1.50"}


def test_specs_need_neither_spark_nor_arrow() -> None:
    code = "import sys, lockstep.connect.specs; sys.exit('pyarrow' in sys.modules or 'pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
