"""The feeder: a process of its own that sends events at a steady rate and notes what was acknowledged.

``python -m lockstep.bench.feeder --rate 1000 --log FILE (--journal STORE | --files FOLDER | --socket | --kafka
SERVERS TOPIC N)``. Everything that is due is sent every 10 ms (into files every 50 ms), so that a slow disk delays
events but never lowers the rate. It ends on SIGTERM, after the append under way, or with the process that started it.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from lockstep.bench.events import JOURNAL, SCHEMA, Sent, batch, json_lines
from lockstep.bench.stopping import Stop
from lockstep.clock import US_PER_S, Clock, wall_us
from lockstep.connect.kafka.client import library
from lockstep.plan.schema import parse_schema
from lockstep.store.journal import open_journal

TICK_S = 0.01
FILES_TICK_S = 0.05
"""Every file costs whoever reads it a look, so there are fewer of them."""
EVENTS_PER_SEND_MAX = 10_000
"""After a stall the backlog goes out in pieces of bounded size."""
FLUSH_S = 30.0


def feed(
    send: Callable[[Sent], None],
    note: Callable[[Sent], None],
    rate: float,
    stop: Stop,
    clock: Clock = wall_us,
    tick_s: float = TICK_S,
) -> None:
    """Send what is due, again and again, until told to stop."""
    begun_us, sent = clock(), 0
    while not stop.wait(tick_s):
        now_us = clock()
        due = int((now_us - begun_us) / US_PER_S * rate)
        while sent < due and not stop.asked:
            one = Sent(sent, min(due - sent, EVENTS_PER_SEND_MAX), clock())
            send(one)
            note(one)
            sent += one.count


def _to_journal(store: Path, note: Callable[[Sent], None], rate: float, stop: Stop) -> None:
    journal = open_journal(store, JOURNAL, parse_schema(SCHEMA))
    try:
        feed(lambda one: _append(journal.append, one), note, rate, stop)
    finally:
        journal.close()


def _append(append: Callable[..., object], one: Sent) -> None:
    append(batch(one), 0)


def _to_files(folder: Path, note: Callable[[Sent], None], rate: float, stop: Stop) -> None:
    """A file of JSON lines each time, moved into place whole; their names are in the order of sending."""

    def send(one: Sent) -> None:
        staged = folder / f".{one.first:012d}.json"
        staged.write_bytes(json_lines(one))
        staged.rename(folder / f"{one.first:012d}.json")

    folder.mkdir(parents=True, exist_ok=True)
    feed(send, note, rate, stop, tick_s=FILES_TICK_S)


def _to_kafka(servers: str, topic: str, partitions: int, note: Callable[[Sent], None], rate: float, stop: Stop) -> None:
    """What is sent at once goes into one partition, the next into the next one."""
    producer = library().Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 1, "log_level": 2})
    turns = cycle(range(partitions))

    def send(one: Sent) -> None:
        partition = next(turns)
        for line in json_lines(one).splitlines():
            producer.produce(topic, line, partition=partition)
        if producer.flush(FLUSH_S):
            raise TimeoutError(f"records of {topic} were not acknowledged within {FLUSH_S:g} s")

    feed(send, note, rate, stop)


def _to_socket(note: Callable[[Sent], None], rate: float, stop: Stop) -> None:
    """Serve one reader, as Spark's socket source wants it; the port is the first line on standard output."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        server.settimeout(0.5)
        while not stop.wait(0):
            try:
                reader, _ = server.accept()
            except TimeoutError:
                continue
            with reader:
                _serve(reader, note, rate, stop)
            return


def _serve(reader: socket.socket, note: Callable[[Sent], None], rate: float, stop: Stop) -> None:
    try:
        feed(lambda one: reader.sendall(json_lines(one)), note, rate, stop)
    except (BrokenPipeError, ConnectionResetError):
        stop.ask()


def main() -> None:
    """The process of a feeder."""
    parser = argparse.ArgumentParser(prog="lockstep.bench.feeder")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--log", type=Path, required=True)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--journal", type=Path)
    where.add_argument("--files", type=Path)
    where.add_argument("--socket", action="store_true")
    where.add_argument("--kafka", nargs=3, metavar=("SERVERS", "TOPIC", "PARTITIONS"))
    options = parser.parse_args()
    stop = Stop().on_signals()
    with options.log.open("a", encoding="utf-8", buffering=1) as log:

        def note(one: Sent) -> None:
            log.write(f"{one.first} {one.count} {one.at_us}\n")

        if options.socket:
            _to_socket(note, options.rate, stop)
        elif options.files:
            _to_files(options.files, note, options.rate, stop)
        elif options.kafka:
            servers, topic, partitions = options.kafka
            _to_kafka(servers, topic, int(partitions), note, options.rate, stop)
        else:
            _to_journal(options.journal, note, options.rate, stop)


if __name__ == "__main__":
    main()
