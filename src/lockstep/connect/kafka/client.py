"""Kafka's client: loaded when it is first needed, its settings, its errors in our words, bounded waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from lockstep.connect.kafka.specs import ENVIRONMENT, KafkaSink, KafkaSource
from lockstep.credentials import hide_secrets
from lockstep.errors import ConnectError

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Producer

CALL_S = 10.0
"""How long one request may take: a broker that was killed is replaced by another in 3 to 6 s."""
AWAY = "LS0521"
AWAY_S = 60.0
"""How long reading and publishing wait for brokers that do not answer, before the attempt ends with LS0521."""

_AGAIN_S = 0.1

Result = TypeVar("Result")
Settings = dict[str, str | int | float | bool]


def library() -> ModuleType:
    """confluent-kafka, LS0523 if it is not installed."""
    try:
        import confluent_kafka
    except ImportError as error:
        raise ConnectError(
            "LS0523",
            "Kafka's client is not installed",
            why=f"sources and sinks in Kafka need the package confluent-kafka ({error}).",
            hint="pip install 'lockstep[kafka]'",
        ) from error
    return confluent_kafka


def client_settings(spec: KafkaSource | KafkaSink) -> Settings:
    """What every client of a topic is made with; secrets come from the environment, and are hidden from then on."""
    given = {name: _resolved(name, value) for name, value in spec.options}
    hide_secrets(given)
    return {
        "bootstrap.servers": spec.servers,
        "client.id": "lockstep",
        # Its own lines about lost connections go to stderr many times a second; waits are told by us, once.
        "log_level": 2,
        "socket.timeout.ms": int(CALL_S * 1000),
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        **given,
    }


def consumer_settings(spec: KafkaSource | KafkaSink) -> Settings:
    """Settings of those who read: committed records only, positions are ours alone."""
    return {
        **client_settings(spec),
        "group.id": "lockstep",
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
    }


def _resolved(name: str, value: str) -> str:
    if not value.startswith(ENVIRONMENT):
        return value
    variable = value.removeprefix(ENVIRONMENT)
    found = os.environ.get(variable)
    if found is None:
        raise ConnectError(
            "LS0501",
            f"the client's setting {name} names {variable}",
            why="there is no such variable in the environment of this process.",
            hint=f"export {variable}=... before lockstep is started, on every host.",
        )
    return found


@contextmanager
def kafka_trouble(spec: KafkaSource | KafkaSink) -> Iterator[None]:
    """What the client raises, as LS0521 or LS0524."""
    try:
        yield
    except library().KafkaException as error:
        raise explained(spec, error) from error


def patiently(spec: KafkaSource | KafkaSink, act: Callable[[], Result], seconds: float) -> Result:
    """Do it, again and again while the client raises: a topic that was just made has no leader for a moment."""
    deadline_s = time.monotonic() + seconds
    while True:
        try:
            return act()
        except (library().KafkaException, TimeoutError) as error:
            if time.monotonic() > deadline_s:
                raise explained(spec, error) from error
            time.sleep(_AGAIN_S)


def explained(spec: KafkaSource | KafkaSink, error: Exception) -> ConnectError:
    """An error of the client in our words."""
    codes, told = library().KafkaError, cause(error)
    if told is not None and told.code() in (codes.UNKNOWN_TOPIC_OR_PART, codes._UNKNOWN_TOPIC):
        return no_topic(spec)
    return away(spec, told.str() if told is not None else str(error) or type(error).__name__)


def make_topics(spec: KafkaSource | KafkaSink, topics: Mapping[str, tuple[int, dict[str, str]]]) -> None:
    """Make these topics, by name with how many partitions (-1: as the brokers choose) and settings, if not there."""
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    kafka = library()
    admin = AdminClient(client_settings(spec))
    wanted = [NewTopic(name, partitions, -1, config=config) for name, (partitions, config) in topics.items()]
    for asked in admin.create_topics(wanted, operation_timeout=CALL_S, request_timeout=CALL_S).values():
        try:
            asked.result(2 * CALL_S)
        except kafka.KafkaException as error:
            told = cause(error)
            if told is None or told.code() != kafka.KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def topic_ids(spec: KafkaSource | KafkaSink, topics: Sequence[str]) -> list[str]:
    """The ids of these topics: one that is deleted and made anew has another."""
    from confluent_kafka.admin import AdminClient

    kafka = library()
    admin = AdminClient(client_settings(spec))
    asked = admin.describe_topics(kafka.TopicCollection(list(topics)), request_timeout=CALL_S)
    return [str(asked[name].result(2 * CALL_S).topic_id) for name in topics]


def flushed(producer: Producer, seconds: float) -> int:
    """Have everything delivered that was given to a producer with ``on_delivery``; how much is left after this time.

    The client raises a fatal error (to be fenced is one), but calls its callbacks first, with the exception pending.
    Python makes a SystemError of that: what the client raised is below it.
    """
    try:
        return producer.flush(seconds)
    except SystemError as error:
        raised: BaseException | None = error
        while isinstance(raised, SystemError):
            raised = raised.__cause__ or raised.__context__
        if raised is None:
            raise
        raise raised from None


def cause(error: Exception) -> KafkaError | None:
    """The client's own error inside an exception."""
    first = error.args[0] if error.args else None
    return first if isinstance(first, library().KafkaError) else None


def is_fenced(error: Exception) -> bool:
    """Whether another producer has taken the transactional id."""
    codes, told = library().KafkaError, cause(error)
    return told is not None and told.code() in (
        codes._FENCED,
        codes.PRODUCER_FENCED,
        codes.INVALID_PRODUCER_EPOCH,
    )


def no_topic(spec: KafkaSource | KafkaSink) -> ConnectError:
    """The topic is not there."""
    return ConnectError(
        "LS0524",
        f"there is no topic {spec.topic}",
        why=f"the brokers at {spec.servers} do not know it. The job waits for it.",
        hint="make the topic, or correct its name.",
    )


def away(spec: KafkaSource | KafkaSink, what: str) -> ConnectError:
    """No broker that could answer does."""
    return ConnectError(
        AWAY,
        f"Kafka at {spec.servers} does not answer for topic {spec.topic}",
        why=f"{what}. The job waits and tries again; nothing is lost.",
        hint="start the brokers, or correct servers= and options=.",
    )
