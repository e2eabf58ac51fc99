"""What a user writes to name a source or a sink: plain frozen data, checked when it is made; nothing is opened.

A spec is part of the plan: it goes to JSON and back, can be compared between versions of a job, and is drawn. The other
half of a connector, which does the work, is made from it by :mod:`lockstep.connect.registry`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any, ClassVar, Literal, overload

from lockstep.connect.checks import check, check_choice
from lockstep.connect.kafka.specs import KafkaSink, KafkaSource, OnBadRecord, kafka_spec
from lockstep.connect.remote.paths import is_remote
from lockstep.durations import Duration, duration_text, duration_us
from lockstep.errors import ConnectError
from lockstep.plan.schema import Field, Schema, parse_schema
from lockstep.plan.specs import Guarantee, StageJournal, StageSource, stage_spec
from lockstep.store.names import checked_name

SourceFormat = Literal["jsonl", "csv", "parquet"]
SinkFormat = Literal["parquet", "jsonl"]

RATE_SCHEMA = "seq bigint, at timestamp"
PARTITIONS_MAX = 1024
PER_SECOND_MAX = 100_000_000
"""More than any machine makes; above it the microseconds of neighbouring records are all the same anyway."""

RETAIN_US_MIN = 3_600_000_000

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SERVER_URL = re.compile(r"postgres(?:ql)?://")
_SERVER_WORDS = re.compile(r"(?:^|\s)(?:host|hostaddr|port|dbname|user|service|passfile)\s*=")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_PASSWORD = re.compile(r"(?i)(?:^|[\s?&])(?:ssl)?password\s*=|^[^/]*//[^@?]*:[^@]+@")


@dataclass(frozen=True)
class JournalSource:
    """Read a journal: see :func:`journal`."""

    name: str
    values: Schema
    """What the journal keeps of a record."""
    partitions: int = 1
    timestamp_column: str = ""

    kind: ClassVar[str] = "journal"

    @property
    def schema(self) -> Schema:
        """The columns of the journal, and behind them when a record came in, if that was asked for."""
        arrived = (Field(self.timestamp_column, "timestamp"),) if self.timestamp_column else ()
        return Schema((*self.values.fields, *arrived))

    def __post_init__(self) -> None:
        checked_name("journal", self.name)
        _ = self.schema  # a name that is taken is refused here
        check(
            1 <= self.partitions <= PARTITIONS_MAX,
            f"a journal cannot have {self.partitions} partitions",
            f"it has 1 to {PARTITIONS_MAX} of them.",
        )

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"journal {self.name}" + (f", {self.partitions} partitions" if self.partitions > 1 else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        data = {"name": self.name, "schema": self.values.to_json(), "partitions": self.partitions}
        # A journal that is read as before has the plan, and with it the fingerprint, that it had.
        return {**data, "timestamp_column": self.timestamp_column} if self.timestamp_column else data


@dataclass(frozen=True)
class FilesSource:
    """Read a folder that is watched: see :func:`files`."""

    path: str
    schema: Schema
    format: SourceFormat = "jsonl"
    still_for_us: int = 1_000_000
    on_bad_record: OnBadRecord = "skip"
    pattern: str = "*"

    kind: ClassVar[str] = "files"

    def __post_init__(self) -> None:
        _check_path(self.path)
        check_choice("format", self.format, ("jsonl", "csv", "parquet"))
        check_choice("on_bad_record", self.on_bad_record, ("skip", "stop"))
        nested = [field.name for field in self.schema.fields if field.type.startswith(("array<", "map<", "struct<"))]
        check(
            self.format != "csv" or not nested,
            f"a CSV file cannot hold {', '.join(nested)}",
            'arrays, maps and structs have no form in CSV; use format="jsonl" or "parquet".',
        )
        check(bool(self.pattern), "the pattern is empty", 'write pattern="*.jsonl", or leave it out for all files.')

    def describe(self) -> str:
        """One line for drawings and messages."""
        still = duration_text(self.still_for_us)
        on_bad = f"{self.on_bad_record} bad records"
        return f"files {_with_pattern(self.path, self.pattern)} ({self.format}, still for {still}, {on_bad})"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return {**asdict(self), "schema": self.schema.to_json()}


@dataclass(frozen=True)
class RateSource:
    """Make records at a steady pace: see :func:`rate`."""

    per_second: float
    limit: int | None = None

    kind: ClassVar[str] = "rate"

    def __post_init__(self) -> None:
        check(
            0 < self.per_second <= PER_SECOND_MAX,
            f"a rate cannot be {self.per_second} per second",
            f"it is above 0 and at most {PER_SECOND_MAX:,}.",
        )
        check(self.limit is None or self.limit >= 1, f"a limit of {self.limit} records", "a limit is at least 1.")

    @property
    def schema(self) -> Schema:
        """Always ``seq bigint, at timestamp``."""
        return parse_schema(RATE_SCHEMA)

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"rate {self.per_second:g}/s" + (f", {self.limit} records" if self.limit is not None else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return asdict(self)


@dataclass(frozen=True)
class CollectionSource:
    """Records that are in the job itself: see :func:`collection`. Kept as JSON lines: nothing can change them."""

    lines: tuple[str, ...]
    schema: Schema
    epoch_ends: tuple[int, ...] = ()
    """Positions that an epoch does not read across, one after each list that was given; empty: no such bounds."""

    kind: ClassVar[str] = "collection"

    def describe(self) -> str:
        """One line for drawings and messages."""
        lists = f" in {len(self.epoch_ends)} lists" if self.epoch_ends else ""
        return f"collection of {len(self.lines)} records{lists}"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return {"lines": list(self.lines), "schema": self.schema.to_json(), "epoch_ends": list(self.epoch_ends)}


@dataclass(frozen=True)
class FilesSink:
    """Publish epochs as files: see :func:`files`."""

    path: str
    format: SinkFormat = "parquet"

    kind: ClassVar[str] = "files"
    key: ClassVar[tuple[str, ...]] = ()
    deletes: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def __post_init__(self) -> None:
        _check_place(self.path)
        check_choice("format", self.format, ("parquet", "jsonl"))

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"files {self.path} ({self.format})"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return asdict(self)


@dataclass(frozen=True)
class SqliteSink:
    """Publish epochs into a table of a SQLite database: see :func:`sqlite`."""

    path: str
    table: str
    key: tuple[str, ...] = ()

    kind: ClassVar[str] = "sqlite"
    deletes: ClassVar[bool] = True
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def __post_init__(self) -> None:
        _check_path(self.path)
        named_well = bool(_TABLE.fullmatch(self.table)) and not self.table.lower().startswith(("sqlite_", "_lockstep"))
        check(named_well, f'"{self.table}" cannot be the name of a table', _TABLE_RULE)
        check(len(set(self.key)) == len(self.key), f"the key {self.key} names a column twice", "name each once.")

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"sqlite {self.path} table {self.table}" + (f", key {', '.join(self.key)}" if self.key else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`. Not "path": the tables of a database are several places."""
        return {"database": self.path, "table": self.table, "key": list(self.key)}


@dataclass(frozen=True)
class PostgresSink:
    """Publish epochs into a table of a Postgres database: see :func:`postgres`."""

    server: str
    table: str
    key: tuple[str, ...] = ()
    password_env: str = ""

    kind: ClassVar[str] = "postgres"
    deletes: ClassVar[bool] = True
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def __post_init__(self) -> None:
        # Before anything that would show the text.
        if _PASSWORD.search(self.server):
            raise ConnectError(
                "LS0532",
                "the address of a Postgres server contains a password",
                why="it would be in the plan, in drawings and on disk.",
                hint='take it out, and say password_env="NAME" of an environment variable, or passfile= or service=.',
            )
        check(is_postgres(self.server), f'"{self.server}" is not the address of a Postgres server', _SERVER_RULE)
        parts = self.table.split(".")
        named_well = len(parts) <= 2 and all(_TABLE.fullmatch(part) for part in parts)
        named_well = named_well and not parts[-1].startswith(("pg_", "_lockstep"))
        check(named_well, f'"{self.table}" cannot be the name of a table', _POSTGRES_TABLE_RULE)
        check(len(set(self.key)) == len(self.key), f"the key {self.key} names a column twice", "name each once.")

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"postgres {self.server} table {self.table}" + (f", key {', '.join(self.key)}" if self.key else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`. The password is never part of it."""
        return {**asdict(self), "key": list(self.key)}


@dataclass(frozen=True)
class DeltaSink:
    """Publish epochs into a Delta table: see :func:`delta`."""

    path: str
    key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    optimize_every: int = 200
    checkpoint_every: int = 100
    retain_us: int = 7 * 86_400_000_000

    kind: ClassVar[str] = "delta"
    deletes: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "exactly-once"

    def __post_init__(self) -> None:
        _check_path(self.path)
        for name, columns in (("key", self.key), ("partition_by", self.partition_by)):
            check(len(set(columns)) == len(columns), f"{name}={columns} names a column twice", "name each once.")
        check(self.optimize_every >= 0, f"optimize_every={self.optimize_every}", "it is a number of files; 0: never.")
        check(self.checkpoint_every >= 1, f"checkpoint_every={self.checkpoint_every}", "it is at least 1 commit.")
        check(self.retain_us >= RETAIN_US_MIN, f'retain="{duration_text(self.retain_us)}"', "it is at least 1 hour.")

    def describe(self) -> str:
        """One line for drawings and messages."""
        key = f", key {', '.join(self.key)}" if self.key else ""
        return f"delta {self.path}{key}" + (f", by {', '.join(self.partition_by)}" if self.partition_by else "")

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return {**asdict(self), "key": list(self.key), "partition_by": list(self.partition_by)}

    def table_properties(self) -> dict[str, str]:
        """What the table is told when it is made.

        The log remembers removed files for twice as long as they stay: the vacuum has to find them there.
        """
        seconds = self.retain_us // 1_000_000
        return {
            "delta.checkpointInterval": str(self.checkpoint_every),
            "delta.logRetentionDuration": f"interval {seconds} seconds",
            "delta.deletedFileRetentionDuration": f"interval {2 * seconds} seconds",
        }


@dataclass(frozen=True)
class ConsoleSink:
    """Print epochs: see :func:`console`."""

    rows_max: int = 20

    kind: ClassVar[str] = "console"
    key: ClassVar[tuple[str, ...]] = ()
    deletes: ClassVar[bool] = False
    guarantee: ClassVar[Guarantee] = "at-least-once"

    def __post_init__(self) -> None:
        check(self.rows_max >= 1, f"rows_max={self.rows_max} would print nothing", "it is at least 1.")

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"console, {self.rows_max} rows per epoch"

    def to_json(self) -> dict[str, Any]:
        """Plain data, for :func:`spec_from_json`."""
        return asdict(self)


AnySource = JournalSource | FilesSource | RateSource | CollectionSource | KafkaSource | StageSource
AnySink = FilesSink | SqliteSink | PostgresSink | DeltaSink | ConsoleSink | KafkaSink | StageJournal


def journal(name: str, *, schema: str | Schema, partitions: int = 1, timestamp_column: str = "") -> JournalSource:
    """Read the journal ``name``: what `lockstep put` and the journal's other writers append, in order and never lost.

    >>> journal("logins", schema="user string, ok boolean, at timestamp").describe()
    'journal logins'
    >>> journal("hits", schema="page string", timestamp_column="arrived").schema.ddl()
    'page string, arrived timestamp'

    ``timestamp_column`` names a column to add: when a record came into the journal, its ingestion time. It was written
    with the record, so it is the same in every replica and every replay.
    """
    return JournalSource(name, parse_schema(schema), partitions, timestamp_column)


@overload
def files(
    path: str,
    *,
    schema: str | Schema,
    format: SourceFormat = ...,
    still_for: Duration = ...,
    on_bad_record: OnBadRecord = ...,
    pattern: str = ...,
) -> FilesSource: ...


@overload
def files(path: str, *, format: SinkFormat = ..., schema: None = ...) -> FilesSink: ...


def files(
    path: str,
    *,
    format: str | None = None,
    schema: str | Schema | None = None,
    still_for: Duration = "1 second",
    on_bad_record: OnBadRecord = "skip",
    pattern: str = "*",
) -> FilesSource | FilesSink:
    """A folder of files: with a schema a source that watches it, without one a sink that publishes into it.

    >>> files("in/logins", schema="user string, ok boolean", pattern="*.jsonl").describe()
    'files in/logins/*.jsonl (jsonl, still for 1 second, skip bad records)'
    >>> files("out/alerts").describe()
    'files out/alerts (parquet)'

    As a source: ``format`` is "jsonl" (the default), "csv" (with a header row) or "parquet". A file is read once,
    when its size and time have been still for ``still_for``. A record that does not parse, or does not fit the schema,
    becomes a dead letter with file, line and reason (`lockstep dead-letters`), and the job goes on;
    ``on_bad_record="stop"`` stops it instead. Of a Parquet file that is damaged all row groups of a part are set aside
    together. As a sink: ``format`` is "parquet" (the default) or "jsonl", and ``path`` may be an address on HDFS or in
    S3 (``hdfs://namenode:8020/out``, ``s3a://bucket/out``; S3 needs ``pip install "lockstep[s3]"``).
    """
    if schema is None:
        return FilesSink(str(path), format or "parquet")  # type: ignore[arg-type]
    return FilesSource(
        str(path),
        parse_schema(schema),
        format or "jsonl",  # type: ignore[arg-type]
        duration_us(still_for),
        on_bad_record,
        pattern,
    )


def rate(per_second: float, *, limit: int | None = None) -> RateSource:
    """Synthetic records ``seq bigint, at timestamp`` at a steady pace: the same ones in every replica.

    >>> rate(1000).describe()
    'rate 1000/s'
    """
    return RateSource(per_second, limit)


def collection(
    records: Iterable[Mapping[str, Any]] | None = None,
    *,
    schema: str | Schema,
    epochs: Iterable[Iterable[Mapping[str, Any]]] | None = None,
) -> CollectionSource:
    """Records that are part of the job, for tests and examples; with ``epochs`` no epoch holds more than one list.

    >>> collection([{"user": "ann"}, {"user": "bob"}], schema="user string").describe()
    'collection of 2 records'
    >>> collection(epochs=[[{"user": "ann"}], [{"user": "bob"}]], schema="user string").describe()
    'collection of 2 records in 2 lists'
    """
    check((records is None) != (epochs is None), "a collection is given once", "give either records or epochs=.")
    parsed = parse_schema(schema)
    lists = [list(records)] if records is not None else [list(each) for each in epochs or ()]
    ends: list[int] = []
    lines: list[str] = []
    for each in lists:
        lines += [_line(record, len(lines) + index) for index, record in enumerate(each)]
        ends.append(len(lines))
    return CollectionSource(tuple(lines), parsed, tuple(ends) if epochs is not None else ())


def sqlite(path: str, *, table: str, key: str | Sequence[str] | None = None) -> SqliteSink:
    """A table in a SQLite database, written in one transaction per epoch; with ``key`` newer rows replace older ones.

    >>> sqlite("out/alerts.db", table="alerts", key=("user",)).describe()
    'sqlite out/alerts.db table alerts, key user'
    """
    columns = (key,) if isinstance(key, str) else tuple(key or ())
    return SqliteSink(str(path), table, columns)


def postgres(
    server: str, *, table: str, key: str | Sequence[str] | None = None, password_env: str = ""
) -> PostgresSink:
    """A table in a Postgres database, written in one transaction per epoch; with ``key`` newer rows replace older ones.

    ``server`` is a connection string or URL as every client of Postgres takes it, without a password: that is in the
    environment variable ``password_env`` (or in ``PGPASSWORD``, a password file or a service file, which the client
    knows). ``table`` may name a schema: ``"sales.totals"``. Needs ``pip install "lockstep[postgres]"``.

    >>> postgres("host=db dbname=shop", table="totals", key="user", password_env="SHOP_PASSWORD").describe()
    'postgres host=db dbname=shop table totals, key user'
    """
    columns = (key,) if isinstance(key, str) else tuple(key or ())
    return PostgresSink(server, table, columns, password_env)


def delta(
    path: str,
    *,
    key: str | Sequence[str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    optimize_every: int = 200,
    checkpoint_every: int = 100,
    retain: Duration = "7 days",
) -> DeltaSink:
    """A Delta table in the folder ``path``, one commit for each epoch with rows; with ``key`` newer rows replace older.

    When ``optimize_every`` small files have come together they are merged beside the running job (0: never). Files that
    are no longer part of the table, and the log of old versions, stay for ``retain``; the log gets a checkpoint every
    ``checkpoint_every`` commits. Needs ``pip install "lockstep[delta]"``.

    >>> delta("out/totals", key="user", partition_by="country").describe()
    'delta out/totals, key user, by country'
    """
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    parts = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by or ())
    return DeltaSink(str(path), keys, parts, optimize_every, checkpoint_every, duration_us(retain))


def is_postgres(text: str) -> bool:
    """Whether a text is the address of a Postgres server, and not a path.

    >>> is_postgres("postgresql://db/shop"), is_postgres("dbname=shop"), is_postgres("out/alerts.db")
    (True, True, False)
    """
    return bool(_SERVER_URL.match(text) or _SERVER_WORDS.search(text))


def console(rows_max: int = 20) -> ConsoleSink:
    """Print each epoch's first rows. At least once: after a crash an epoch may be printed again.

    With ``.to(ls.console(), guarantee="at-most-once")`` it may be missing instead, and is never printed twice.

    >>> console().guarantee
    'at-least-once'
    """
    return ConsoleSink(rows_max)


def spec_from_json(kind: str, data: Mapping[str, Any]) -> AnySource | AnySink:
    """The spec that ``to_json`` wrote.

    >>> spec = rate(10, limit=5)
    >>> spec_from_json(spec.kind, spec.to_json()) == spec
    True
    """
    make = _FROM_JSON.get(kind)
    if make is None:
        raise ConnectError(
            "LS0501",
            f'there is no source or sink of the kind "{kind}"',
            why=f"this version knows: {', '.join(sorted(_FROM_JSON))}.",
        )
    return make({name: value for name, value in data.items() if name != "kind"})


def _files_from_json(data: dict[str, Any]) -> FilesSource | FilesSink:
    if "schema" not in data:
        return FilesSink(**data)
    return FilesSource(**{**data, "schema": Schema.from_json(data["schema"])})


def _collection_from_json(data: dict[str, Any]) -> CollectionSource:
    return CollectionSource(tuple(data["lines"]), Schema.from_json(data["schema"]), tuple(data["epoch_ends"]))


_FROM_JSON: dict[str, Callable[[dict[str, Any]], AnySource | AnySink]] = {
    "journal": lambda data: JournalSource(
        data["name"], Schema.from_json(data["schema"]), data["partitions"], data.get("timestamp_column", "")
    ),
    "files": _files_from_json,
    "rate": lambda data: RateSource(**data),
    "collection": _collection_from_json,
    "sqlite": lambda data: SqliteSink(data["database"], data["table"], tuple(data["key"])),
    "postgres": lambda data: PostgresSink(**{**data, "key": tuple(data["key"])}),
    "delta": lambda data: DeltaSink(**{**data, "key": tuple(data["key"]), "partition_by": tuple(data["partition_by"])}),
    "console": lambda data: ConsoleSink(**data),
    "kafka": kafka_spec,
    "stage": stage_spec,
}

_TABLE_RULE = (
    'a table\'s name is letters, digits and \'_\', does not begin with a digit, "sqlite_" or "_lockstep", '
    "and has at most 63 characters."
)

_POSTGRES_TABLE_RULE = (
    'a table\'s name is letters, digits and "_", does not begin with a digit, "pg_" or "_lockstep", and has at most 63 '
    'characters; a schema may stand before it: "sales.totals".'
)
_SERVER_RULE = 'write "host=db port=5432 dbname=shop user=app", or "postgresql://app@db:5432/shop".'


def _line(record: Mapping[str, Any], index: int) -> str:
    check(isinstance(record, Mapping), f"record {index} of the collection is {record!r}", "a record is a dict.")
    try:
        return json.dumps(dict(record), default=_as_text)
    except (TypeError, ValueError) as error:
        raise ConnectError(
            "LS0501", f"record {index} of the collection is not plain data", why=f"{error}.", hint=_PLAIN_RULE
        ) from error


_PLAIN_RULE = "use text, numbers, booleans, None, lists and dicts; dates and times as ISO 8601 text or datetime."


def _as_text(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError(f"a {type(value).__name__} has no JSON form")


def _with_pattern(path: str, pattern: str) -> str:
    return str(PurePosixPath(path) / pattern) if pattern != "*" else path


def _check_path(path: str) -> None:
    check(
        bool(path.strip()) and "\0" not in path,
        f"{path!r} is not a path",
        "a path is relative to the project folder, or absolute.",
    )
    check(
        _ADDRESS.match(path) is None,
        f'"{path}" is not a path',
        "hdfs:, s3a: and other addresses are for ls.files as a sink: it is a folder that all hosts of the job see.",
        "mount it, and write the path alone.",
    )


def _check_place(path: str) -> None:
    """A path, or an address that a files sink can write to."""
    if not is_remote(path):
        return _check_path(path.removeprefix("file://"))
    rest = path.partition("://")[2]
    host, _, key = rest.partition("/")
    check(
        bool(key.strip("/")) and (bool(host) or path.startswith("hdfs:")) and not {".", ".."} & set(key.split("/")),
        f'"{path}" names no folder',
        "an address has a host (or bucket) and a folder there.",
        "hdfs://namenode:8020/out/alerts, webhdfs://namenode:9870/out/alerts or s3a://bucket/out/alerts",
    )
    return None
