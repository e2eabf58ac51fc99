"""Pages of the codes LS052x: Kafka."""

from __future__ import annotations

from lockstep.errors.page import Page

PAGES: dict[str, Page] = {
    "LS0521": Page(
        "Kafka does not answer",
        """No broker that could answer does: it is not started, cannot be reached, refuses the client, or is
being replaced by another (which takes 3 to 6 seconds after a crash). The message has the client's own
words.

The job waits and tries again. Sealing tries every second; a replica that reads or publishes tries
for a minute, then starts again and goes on where it was. Nothing is lost and nothing comes twice.

If it does not pass: check servers= in ls.kafka(...), and options= (security.protocol, sasl.*).""",
    ),
    "LS0522": Page(
        "records of a topic are gone",
        """The broker removed records that the job had not read, or that a replica has to read again: the
topic's retention (retention.ms, retention.bytes) is shorter than the job was behind, or somebody
deleted records. The message names the partition and the offsets. Going on as if nothing had happened
would lose them silently, so the job stops.

Raise the topic's retention to more than the longest time that the job may stand still. The records
themselves cannot be had again. To go on without them run the job under a new name: it begins with the
oldest record that is there, and with an empty state.""",
    ),
    "LS0523": Page(
        "Kafka's client is not installed",
        """Sources and sinks in Kafka need the package confluent-kafka, which the base installation does not
bring along:

    pip install 'lockstep[kafka]'

On a cluster it has to be there on every host that reads or writes.""",
    ),
    "LS0524": Page(
        "a topic is not there",
        """The brokers do not know the topic that a source reads. Lockstep makes the topics that it writes to,
never those that it reads: a name with a mistake in it would become an empty topic.

The job waits. Make the topic (kafka-topics.sh --create --topic NAME --partitions 4), or correct the
name in ls.kafka(...).""",
    ),
    "LS0525": Page(
        "a topic is not the one that was read before",
        """The topic has another id than when the job began to read it, or ends before what was read of it: it
was deleted and made anew, or its brokers lost records that they had acknowledged (an unclean election
of a leader). Offsets mean other records now, and reading on would skip the new topic's first ones.

Run the job under a new name: it reads the topic from its beginning, with an empty state.""",
    ),
    "LS0526": Page(
        "an Avro schema cannot be used",
        """The text that avro_schema= has is not an Avro schema, has a part that no column of Spark can hold, or
is not what schema= says. The message names the field.

What can be read: a record whose fields are boolean, int, long, float, double, string, bytes, fixed and
enum (a string), arrays, maps and records of these, and unions of null and one of them. Of the logical
types date, decimal (up to 38 digits), timestamp-millis and -micros (timestamp), and
local-timestamp-millis and -micros (timestamp_ntz); any other is read as the type below it.

What cannot: a union of more than null and one type, a record that holds itself, a field that is always
null, a record without fields, a fixed of no bytes.

With schema= the columns have to be fields of the record, in any order, each with the type that follows
from the Avro schema. Leave schema= out to have all of them, and change types in the job. For a schema
that cannot be read, take the bytes with format="raw" and decode them in .map_batches(...).""",
    ),
    "LS0527": Page(
        "the reader of Avro is not installed",
        """Topics with format="avro" need the package fastavro, which the base installation does not bring along:

    pip install 'lockstep[avro,kafka]'

On a cluster it has to be there on every host that reads.""",
    ),
}
