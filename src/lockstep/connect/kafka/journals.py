"""A job's own journals as topics: where they are, what they are called, and how rows become records.

An address is ``kafka://h1:9092,h2:9092/PREFIX?OPTION=VALUE``. When a job starts for the first time, its name and a
random one for its store are put behind the prefix: another store's job of the same name has topics of its own, and so
has one that begins anew. From then on the address of the job stands in its store, and every process is given it.

A record of such a topic is a page: some thousand rows, as journals in files keep them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import parse_qsl, urlencode

import pyarrow as pa

from lockstep.connect.checks import check
from lockstep.connect.kafka.client import patiently, topic_ids
from lockstep.connect.kafka.specs import KafkaSink, KafkaSource
from lockstep.errors import ConnectError
from lockstep.plan.schema import parse_schema
from lockstep.store.batches import decoded, encoded, pieces
from lockstep.store.protocols import Store

SCHEME = "kafka://"
DEAD_LETTERS = "dead-letters"
"""The topic of dead letters, among those of a job."""
MESSAGE_BYTES_MAX = 16 << 20
"""The largest page that a topic of ours takes: one row that is larger cannot be handed on (LS0515)."""
KEPT_CONFIG = {
    # Nothing goes by itself: what all replicas have passed is removed by whoever supervises the job.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "max.message.bytes": str(MESSAGE_BYTES_MAX),
    # What was removed frees the disk in whole segments.
    "segment.bytes": str(64 << 20),
}
PAGE_BYTES = 512 << 10
"""About how large a page is before it is packed: a reader holds some of them at a time."""
_SIZE_BYTES = 8
_TOPIC_CHARACTERS_MAX = 200
_GONE_S = 10.0
"""How long a topic that was there may be unknown: a broker that has just started may not know all yet."""


def checked(address: str) -> str:
    """``address`` if it can be one of journals in Kafka, with a prefix; LS0501 if not.

    >>> checked("kafka://h1:9092,h2:9092")
    'kafka://h1:9092,h2:9092/lockstep'
    >>> checked("zookeeper://h1:2181")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ConnectError: LS0501 journals = "zookeeper://h1:2181" names no topics
      why:  journals inside a job are files of its host, or topics: kafka://HOST:PORT,.../PREFIX.
      try:  journals = "kafka://h1:9092,h2:9092/lockstep" in lockstep.toml, or leave it out.
    """
    check(
        address.startswith(SCHEME),
        f'journals = "{address}" names no topics',
        "journals inside a job are files of its host, or topics: kafka://HOST:PORT,.../PREFIX.",
        'journals = "kafka://h1:9092,h2:9092/lockstep" in lockstep.toml, or leave it out.',
    )
    servers, prefix, options = _parts(address)
    KafkaSink(prefix, servers, (), options)
    return _joined(servers, prefix, options)


def address_of_job(address: str, job: str, run: str) -> str:
    """The address of one job's topics.

    >>> address_of_job("kafka://h1:9092/lockstep?security.protocol=ssl", "totals", "3f2a")
    'kafka://h1:9092/lockstep.totals.3f2a?security.protocol=ssl'
    """
    servers, prefix, options = _parts(checked(address))
    return _joined(servers, f"{prefix}.{job}.{run}", options)


def run_of(address: str) -> str:
    """What :func:`address_of_job` was given as the run.

    >>> run_of(address_of_job("kafka://h1:9092", "totals.v2", "3f2a"))
    '3f2a'
    """
    return _parts(address)[1].rpartition(".")[2]


def is_same_place(address: str, other: str) -> bool:
    """Whether two addresses name the same topics, by whichever brokers they are reached.

    >>> is_same_place("kafka://h1:9092/lockstep.totals.3f2a", "kafka://h2:9092/lockstep.totals.3f2a")
    True
    """
    return _parts(address)[1] == _parts(other)[1]


def journal_topic(address: str, name: str) -> KafkaSink:
    """The topic of one journal at the address of a job.

    >>> journal_topic("kafka://h1:9092/lockstep.totals.3f2a", "stage-agg").topic
    'lockstep.totals.3f2a.stage-agg'
    """
    servers, prefix, options = _parts(address)
    return KafkaSink(_fitting(f"{prefix}.{name}"), servers, (), options)


def read_as(topic: KafkaSink) -> KafkaSource:
    """The same topic for those who read it."""
    return KafkaSource(topic.topic, topic.servers, parse_schema("page binary"), "raw", options=topic.options)


def pages(table: pa.Table) -> Iterator[bytes]:
    """Rows as the values of records, each with some thousand of them.

    >>> table = pa.table({"n": [1, None, 3]})
    >>> [rows_of(page, table.schema).to_pylist() for page in pages(table)]
    [[{'n': 1}, {'n': None}, {'n': 3}]]
    """
    for batch in pieces(table, PAGE_BYTES):
        yield from _packed(batch)


def rows_of(page: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a page."""
    return decoded(int.from_bytes(page[:_SIZE_BYTES]), page[_SIZE_BYTES:], schema)


def ensure_topics(store: Store, topic: KafkaSink, names: Sequence[str], make: Callable[[], None]) -> None:
    """Have a journal's topics (with its fence, if it has one) made if the job begins; LS0530 if they are others now.

    Their ids are noted in the store: a topic that was deleted under a job is not replaced by an empty one.
    """
    is_new = store.fact(noted(topic)) is None
    if is_new:
        make()
    try:
        ids = patiently(topic, lambda: topic_ids(topic, names), _GONE_S)
    except ConnectError as error:
        if is_new or error.code != "LS0524":
            raise
        raise gone(topic, f"the brokers do not know {' or '.join(names)} any more") from error
    told = " ".join(ids)
    held = store.put_fact_if_absent(noted(topic), told)
    if held != told:
        raise gone(topic, f"it was deleted and made anew: {' and '.join(names)} had the ids {held}, now {told}")


def noted(topic: KafkaSink) -> str:
    """The fact that has the ids of a journal's topics once they are made."""
    return f"journal-topic:{topic.topic}"


def gone(topic: KafkaSink, what: str) -> ConnectError:
    """A journal that was deleted, or made shorter, under the job."""
    return ConnectError(
        "LS0530",
        f"topic {topic.topic}, a journal inside the job, is gone",
        why=f"{what}. What was in it is nowhere else.",
        hint="run the job under a new name, or remove its store and its output; never delete topics of a job that is "
        "to go on.",
    )


def _packed(batch: pa.RecordBatch) -> Iterator[bytes]:
    plain_bytes, body = encoded(batch)
    if len(body) + _SIZE_BYTES < MESSAGE_BYTES_MAX // 2 or batch.num_rows < 2:
        yield plain_bytes.to_bytes(_SIZE_BYTES) + body
        return
    # A few rows are far wider than the rest.
    middle = batch.num_rows // 2
    yield from _packed(batch.slice(0, middle))
    yield from _packed(batch.slice(middle))


def _fitting(topic: str) -> str:
    """A topic's name that is not too long for Kafka, and still another one for each journal."""
    if len(topic) <= _TOPIC_CHARACTERS_MAX:
        return topic
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{topic[: _TOPIC_CHARACTERS_MAX - len(digest) - 1]}.{digest}"


def _parts(address: str) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    place, _, options = address.removeprefix(SCHEME).partition("?")
    servers, _, prefix = place.partition("/")
    return servers, prefix or "lockstep", tuple(sorted(parse_qsl(options)))


def _joined(servers: str, prefix: str, options: tuple[tuple[str, str], ...]) -> str:
    return f"{SCHEME}{servers}/{prefix}" + (f"?{urlencode(options, safe=':/,')}" if options else "")
