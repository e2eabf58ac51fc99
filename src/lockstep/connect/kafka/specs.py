"""What a user writes to read or write a Kafka topic."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, overload

from lockstep.connect.checks import check, check_choice
from lockstep.connect.kafka.avro_schema import avro_columns, check_fits, normalised
from lockstep.credentials import is_secret
from lockstep.plan.schema import Field, Schema, parse_schema
from lockstep.plan.specs import Guarantee

TextFormat = Literal["json", "csv", "raw"]
"""Formats that need no schema beside the columns."""
KafkaFormat = Literal["json", "csv", "raw", "avro"]
AvroHeader = Literal["", "confluent"]
KafkaStart = Literal["earliest", "latest"]
OnBadRecord = Literal["skip", "stop"]
Options = tuple[tuple[str, str], ...]
"""Settings of the client, sorted: plain data that can be compared."""

ENVIRONMENT = "env:"
"""``"sasl.password": "env:KAFKA_PASSWORD"``: the value is read from the environment where the client is made."""
HEADERS_TYPE = "array<struct<name:string,value:binary>>"

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,200}")
_OWN_OPTIONS = (
    "bootstrap.servers",
    "group.id",
    "isolation.level",
    "transactional.id",
    "enable.idempotence",
    "enable.auto.commit",
    "enable.partition.eof",
    "auto.offset.reset",
)
_NO_AVRO_SCHEMA = "the bytes of a record do not say what is in them; the schema that they were written with does."
_AVRO_SCHEMA_HINT = 'avro_schema=Path("orders.avsc").read_text()'


@dataclass(frozen=True)
class KafkaSource:
    """Read a topic: see :func:`kafka`."""

    topic: str
    servers: str
    values: Schema
    """What is in the records' values."""
    format: KafkaFormat = "json"
    key_column: str = ""
    timestamp_column: str = ""
    headers_column: str = ""
    start: KafkaStart = "earliest"
    on_bad_record: OnBadRecord = "skip"
    options: Options = ()
    avro_schema: str = ""
    """The JSON of the schema that the values were written with, in one form (:func:`normalised`)."""
    avro_header: AvroHeader = ""

    kind: ClassVar[str] = "kafka"

    def __post_init__(self) -> None:
        _check_place(self.topic, self.servers, self.options)
        check_choice("format", self.format, ("json", "csv", "raw", "avro"))
        self._check_avro()
        check_choice("start", self.start, ("earliest", "latest"))
        check_choice("on_bad_record", self.on_bad_record, ("skip", "stop"))
        nested = [field.name for field in self.values.fields if field.type.startswith(("array<", "map<", "struct<"))]
        check(
            self.format != "csv" or not nested,
            f"CSV cannot hold {', '.join(nested)}",
            'arrays, maps and structs have no form in CSV; use format="json".',
        )
        types = [field.type for field in self.values.fields]
        check(
            self.format != "raw" or types in (["binary"], ["string"]),
            f'format="raw" with the schema "{self.values.ddl()}"',
            'a raw value is one column: schema="value binary", or "value string" for text.',
        )
        check(
            self._key.type in ("string", "binary"),
            f'key_column="{self.key_column}"',
            'a key is text or bytes: key_column="user", or key_column="user binary".',
        )

    def _check_avro(self) -> None:
        check_choice("avro_header", self.avro_header, ("", "confluent"))
        check(
            self.format == "avro" or not (self.avro_schema or self.avro_header),
            f'avro_schema= or avro_header= with format="{self.format}"',
            'they say how records in Avro are read: format="avro".',
        )
        check(
            self.format != "avro" or bool(self.avro_schema),
            'format="avro" without avro_schema=',
            _NO_AVRO_SCHEMA,
            _AVRO_SCHEMA_HINT,
        )
        if self.avro_schema:
            check_fits(self.values, self.avro_schema)

    @property
    def _key(self) -> Field:
        text = self.key_column or "key"
        return parse_schema(text if " " in text else f"{text} string").fields[0]

    @property
    def schema(self) -> Schema:
        """The columns of the value, and behind them those of key, timestamp and headers that were asked for."""
        added = [self._key] if self.key_column else []
        added += [Field(self.timestamp_column, "timestamp")] if self.timestamp_column else []
        added += [Field(self.headers_column, HEADERS_TYPE)] if self.headers_column else []
        return Schema((*self.values.fields, *added))

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"kafka topic {self.topic} ({self.format}, from {self.start}, {self.on_bad_record} bad records)"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`kafka_spec`."""
        data = {**asdict(self), "values": self.values.to_json(), "options": dict(self.options)}
        # Other formats have the plan, and with it the fingerprint, that they had before there was Avro.
        return {name: value for name, value in data.items() if value or not name.startswith("avro_")}


@dataclass(frozen=True)
class KafkaSink:
    """Publish epochs to a topic: see :func:`kafka`."""

    topic: str
    servers: str
    key: tuple[str, ...] = ()
    options: Options = ()

    kind: ClassVar[str] = "kafka"
    deletes: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def __post_init__(self) -> None:
        _check_place(self.topic, self.servers, self.options)
        check(len(set(self.key)) == len(self.key), f"the key {self.key} names a column twice", "name each once.")

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"kafka topic {self.topic}" + (f", key {', '.join(self.key)}" if self.key else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`kafka_spec`."""
        return {**asdict(self), "key": list(self.key), "options": dict(self.options)}


@overload
def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    schema: str | Schema,
    format: KafkaFormat = ...,
    key_column: str = ...,
    timestamp_column: str = ...,
    headers_column: str = ...,
    start: KafkaStart = ...,
    on_bad_record: OnBadRecord = ...,
    options: Mapping[str, str] | None = ...,
    avro_schema: str = ...,
    avro_header: AvroHeader = ...,
) -> KafkaSource: ...


@overload
def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    format: Literal["avro"],
    avro_schema: str,
    avro_header: AvroHeader = ...,
    key_column: str = ...,
    timestamp_column: str = ...,
    headers_column: str = ...,
    start: KafkaStart = ...,
    on_bad_record: OnBadRecord = ...,
    options: Mapping[str, str] | None = ...,
) -> KafkaSource: ...


@overload
def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    key: str | Sequence[str] | None = ...,
    options: Mapping[str, str] | None = ...,
    schema: None = ...,
) -> KafkaSink: ...


def kafka(
    topic: str,
    *,
    servers: str | Sequence[str],
    schema: str | Schema | None = None,
    format: KafkaFormat = "json",
    key: str | Sequence[str] | None = None,
    key_column: str = "",
    timestamp_column: str = "",
    headers_column: str = "",
    start: KafkaStart = "earliest",
    on_bad_record: OnBadRecord = "skip",
    options: Mapping[str, str] | None = None,
    avro_schema: str = "",
    avro_header: AvroHeader = "",
) -> KafkaSource | KafkaSink:
    """A Kafka topic: with a schema a source, without one a sink. Needs ``pip install 'lockstep[kafka]'``.

    >>> kafka("orders", servers="localhost:9092", schema="item string, amount bigint", key_column="user").schema.ddl()
    'item string, amount bigint, user string'
    >>> kafka("alerts", servers=["h1:9092", "h2:9092"], key="user").describe()
    'kafka topic alerts, key user'
    >>> text = '{"type": "record", "name": "order", "fields": [{"name": "amount", "type": ["null", "long"]}]}'
    >>> kafka("orders", servers="localhost:9092", format="avro", avro_schema=text).schema.ddl()
    'amount bigint'

    As a source: ``format`` is "json" (the default), "csv" (a row without a header, columns in the schema's order),
    "raw" (``schema="value binary"``) or "avro". Only committed records are read.
    ``key_column``, ``timestamp_column`` and ``headers_column`` name columns to add. ``start`` says where a topic that
    was never read begins. A record that does not parse becomes a dead letter with topic, partition, offset and reason,
    as in :func:`files`.

    For Avro ``avro_schema`` is the JSON of the schema that the records were written with. The columns follow from it;
    ``schema`` may name some of them. ``avro_header="confluent"`` skips the five bytes that Confluent's serializers
    write before each record.

    As a sink: each epoch is one transaction, rows as JSON; with ``key`` the message has these columns as its key, and
    of two rows with one key the later one is the newer. Readers with ``isolation.level=read_committed`` see each epoch
    once.

    ``options`` go to the client (librdkafka's names); a secret is given as "env:NAME", never as itself.
    """
    joined = servers if isinstance(servers, str) else ",".join(servers)
    settings = tuple(sorted((str(name), str(value)) for name, value in (options or {}).items()))
    if schema is None and not avro_schema and format != "avro":
        return KafkaSink(topic, joined, (key,) if isinstance(key, str) else tuple(key or ()), settings)
    check(key is None, "key= is for sinks", "a source has the records' keys as a column: key_column=.")
    columns = (key_column, timestamp_column, headers_column)
    avro = (normalised(avro_schema) if avro_schema else "", avro_header)
    values = _values(schema, avro[0])
    return KafkaSource(topic, joined, values, format, *columns, start, on_bad_record, settings, *avro)


def _values(schema: str | Schema | None, avro_schema: str) -> Schema:
    if schema is not None:
        return parse_schema(schema)
    check(bool(avro_schema), 'format="avro" without avro_schema=', _NO_AVRO_SCHEMA, _AVRO_SCHEMA_HINT)
    return avro_columns(avro_schema)


def kafka_spec(data: Mapping[str, Any]) -> KafkaSource | KafkaSink:
    """What ``to_json`` of either wrote."""
    options = tuple(sorted(data["options"].items()))
    if "values" in data:
        return KafkaSource(**{**data, "values": Schema.from_json(data["values"]), "options": options})
    return KafkaSink(data["topic"], data["servers"], tuple(data["key"]), options)


def _check_place(topic: str, servers: str, options: Options) -> None:
    check(
        bool(_TOPIC.fullmatch(topic)) and topic not in (".", ".."),
        f"{topic!r} cannot be the name of a topic",
        "it has letters, digits, '.', '_' and '-', and at most 200 of them.",
    )
    check(bool(servers.strip()), "no servers are given", 'servers="host:9092", or a list of them.')
    for name, value in options:
        check(
            name not in _OWN_OPTIONS,
            f"the client's setting {name} cannot be given",
            "exactly once depends on it, so Lockstep sets it itself.",
        )
        check(
            not is_secret(name) or value.startswith(ENVIRONMENT),
            f"the client's setting {name} is a secret",
            "a spec is part of the plan, which is stored, compared and drawn.",
            f'give the name of a variable of the environment: "{name}": "{ENVIRONMENT}KAFKA_SECRET".',
        )
