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
        "the records of a topic are not stamped by the broker",
        """With order="derived" an epoch is what was stamped before its end, in every partition. Every replica
must find the same cut, so the stamps have to be those that the broker gives as it appends a record
(message.timestamp.type=LogAppendTime). With CreateTime, Kafka's default, they are the producers', who
may stamp records of yesterday or of tomorrow.

Set it; it holds for the records that come from then on:

    kafka-configs.sh --bootstrap-server HOST:9092 --alter --topic TOPIC \\
        --add-config message.timestamp.type=LogAppendTime

Records that were there before keep the stamps of their producers. Leave them out with
ls.kafka(..., start="latest"), copy them into a new topic, or run the job with order="agreed".""",
    ),
    "LS0527": Page(
        "a compacted topic has no order to derive",
        """The broker removes records of a compacted topic from its middle. A cut is found by the first record
that was stamped at or after a bound; if that record is removed, the next replica that looks for it
finds another one. So such a topic is refused with order="derived".

Set cleanup.policy=delete, or run the job with order="agreed", where cuts are kept in the store.""",
    ),
    "LS0528": Page(
        "a topic has got partitions",
        """With order="derived" every replica knows the cut of an epoch from the log alone. A partition that is
added has no stamp that says from which epoch on it belongs to the job, so two replicas could take it
up in different epochs. The job stops instead.

Run it under a new name, which begins with all partitions; or with order="agreed", which takes up
partitions as they come. Nothing was lost: what was published stays.""",
    ),
    "LS0530": Page(
        "a topic inside a job is gone",
        """With journals = "kafka://..." in lockstep.toml, what a job hands on between its stages, what its loops send
back and its dead letters are in topics, which Lockstep makes at the job's first start. One of them was
deleted, or deleted and made anew, while the job was not at its end. What was in it is nowhere else:
going on would lose records without a word, so the job stops.

Run the job under a new name, or remove its store and its output and begin anew: it then has topics
of its own. Topics of a job that is not to go on may be deleted; their names begin with the prefix of
the setting, the job's name and a random name of its store.""",
    ),
    "LS0529": Page(
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
}
