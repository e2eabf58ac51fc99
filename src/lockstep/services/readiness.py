"""Asking a server itself whether it serves: one question in its own protocol, no client library needed."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import suppress
from typing import Any

ASK_TIMEOUT_S = 2.0
_ANSWER_BYTES_MAX = 1 << 20
_KAFKA_METADATA, _KAFKA_METADATA_VERSION = 3, 4
_POSTGRES_PROTOCOL = 3 << 16


def zookeeper_serves(host: str, port: int) -> bool:
    """Whether a node is alone, leads, or follows a leader: one without a quorum answers that it does not serve."""
    return zookeeper_mode(host, port) in {"standalone", "leader", "follower"}


def zookeeper_mode(host: str, port: int) -> str:
    """What a node says that it is ("leader", "follower", "standalone"); empty if it does not serve."""
    said = _asked(host, port, b"srvr")
    modes = [line.partition(":")[2].strip() for line in said.decode(errors="replace").splitlines() if "Mode:" in line]
    return modes[0] if modes else ""


def kafka_brokers(host: str, port: int) -> int:
    """How many brokers a broker knows to be alive; 0 if it does not answer, or knows no controller."""
    no_topics, may_create = struct.pack("!i", 0), struct.pack("!?", False)
    client = struct.pack("!h", -1)
    head = struct.pack("!hhi", _KAFKA_METADATA, _KAFKA_METADATA_VERSION, 1) + client
    said = _framed(host, port, head + no_topics + may_create)
    return alive_brokers(said) if said else 0


def alive_brokers(metadata: bytes) -> int:
    """The number of brokers in an answer of Kafka's "metadata", version 4; 0 as long as there is no controller.

    >>> broker = struct.pack("!ih1sih", 1, 1, b"h", 9092, -1)
    >>> alive_brokers(struct.pack("!iii", 1, 0, 1) + broker + struct.pack("!hi", -1, 1))
    1
    """
    count = int(struct.unpack_from("!i", metadata, 8)[0])
    offset = 12
    for _ in range(count):
        offset = _after_text(metadata, offset + 4) + 4
        offset = _after_text(metadata, offset)
    (controller,) = struct.unpack_from("!i", metadata, _after_text(metadata, offset))
    return count if controller >= 0 else 0


def postgres_answers(host: str, port: int) -> bool:
    """Whether it asks who we are: while it starts up it answers with an error instead."""
    names = b"user\0lockstep\0database\0postgres\0\0"
    said = _asked(host, port, struct.pack("!ii", len(names) + 8, _POSTGRES_PROTOCOL) + names, answer_bytes=1)
    return said == b"R"


def spark_master_serves(host: str, page: int) -> bool:
    """Whether a master is the one that leads."""
    return _spark_says(host, page).get("status") == "ALIVE"


def spark_worker_serves(host: str, page: int) -> bool:
    """Whether a worker has found its master."""
    return bool(_spark_says(host, page).get("masterwebuiurl"))


def hdfs_serves(host: str, port: int) -> bool:
    """Whether a name node answers for its file system."""
    return bool(_hdfs_says(host, port))


def hdfs_data_nodes(host: str, port: int) -> int:
    """How many data nodes a name node knows to be alive; 0 while it takes no writes."""
    said = _hdfs_says(host, port)
    return int(said["NumLiveDataNodes"]) if said.get("FSState") == "Operational" else 0


def _hdfs_says(host: str, port: int) -> dict[str, Any]:
    asked = f"GET /jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState HTTP/1.0\r\nHost: {host}\r\n\r\n"
    said = _asked(host, port, asked.encode())
    with suppress(ValueError, LookupError):
        return dict(json.loads(said.partition(b"\r\n\r\n")[2])["beans"][0])
    return {}


def _spark_says(host: str, page: int) -> dict[str, object]:
    """What a page of Spark's tells a program; nothing if it is not there."""
    said = _asked(host, page, f"GET /json/ HTTP/1.0\r\nHost: {host}\r\n\r\n".encode())
    with suppress(ValueError):
        return dict(json.loads(said.partition(b"\r\n\r\n")[2]))
    return {}


def _after_text(data: bytes, offset: int) -> int:
    length = int(struct.unpack_from("!h", data, offset)[0])
    return offset + 2 + max(length, 0)


def _framed(host: str, port: int, message: bytes) -> bytes:
    """Kafka's way: four bytes of length, then that many; the answer without its length, empty if there is none."""
    with suppress(OSError), socket.create_connection((host, port), ASK_TIMEOUT_S) as connection:
        connection.sendall(struct.pack("!i", len(message)) + message)
        with connection.makefile("rb") as answer:
            head = answer.read(4)
            length = struct.unpack("!i", head)[0] if len(head) == 4 else 0
            body = answer.read(min(length, _ANSWER_BYTES_MAX))
            return body if len(body) == length else b""
    return b""


def _asked(host: str, port: int, question: bytes, answer_bytes: int = _ANSWER_BYTES_MAX) -> bytes:
    with suppress(OSError), socket.create_connection((host, port), ASK_TIMEOUT_S) as connection:
        connection.sendall(question)
        with connection.makefile("rb") as answer:
            return answer.read(answer_bytes)
    return b""
