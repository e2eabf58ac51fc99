"""Arrow batches as a journal keeps them: cut to bounded pieces, without their schema, the larger ones compressed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pyarrow as pa

RECORDS_PER_BATCH_MAX = 10_000
"""Bounds what a reader has in memory, and what it decodes in vain to reach one record."""
BATCH_BYTES_MAX = 4 * 1024 * 1024
"""Bounds the same for wide records."""
COMPRESSED_FROM_BYTES = 16 * 1024
"""Measured with four plain columns: 10,000 records shrink from 267 to 56 KB in 0.7 ms, 100 from 2.9 to 1 KB in 40 us.
Below this size a batch shares its pages with others and its commit waits for the disk alone; nothing is won."""
_CODEC = pa.Codec("zstd", 1)


def pieces(table: pa.Table, bytes_max: int = BATCH_BYTES_MAX) -> Iterator[pa.RecordBatch]:
    """``table`` in batches of bounded records and bytes, small chunks put together."""
    record_bytes = max(1, table.nbytes // max(1, table.num_rows))
    records = max(1, min(RECORDS_PER_BATCH_MAX, bytes_max // record_bytes))
    return iter(table.combine_chunks().to_batches(max_chunksize=records))


def encoded(batch: pa.RecordBatch) -> tuple[int, bytes]:
    """The size a reader has to unpack it to (0: it is not packed), and the bytes to keep."""
    plain = batch.serialize()
    if plain.size < COMPRESSED_FROM_BYTES:
        return 0, plain.to_pybytes()
    return plain.size, _CODEC.compress(plain, asbytes=True)


def decoded(plain_bytes: int, body: bytes, schema: pa.Schema) -> pa.RecordBatch:
    """What :func:`encoded` was given."""
    plain = _CODEC.decompress(body, decompressed_size=plain_bytes) if plain_bytes else pa.py_buffer(body)
    return pa.ipc.read_record_batch(plain, schema)


def fingerprint(table: pa.Table) -> bytes:
    """What tells equal records from others, however they are cut into chunks and wherever they are in memory.

    What stands under a null is not looked at, nor the bits beyond the end of a column: nobody has written them.

    >>> whole = pa.table({"user": ["ann", None, "bob"]})
    >>> fingerprint(pa.concat_tables([whole.slice(0, 1), whole.slice(1)])) == fingerprint(whole)
    True
    >>> fingerprint(whole) == fingerprint(pa.table({"user": ["ann", "", "bob"]}))
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for batch in table.combine_chunks().to_batches(max_chunksize=RECORDS_PER_BATCH_MAX):
        for column in batch.columns:
            for array in _plain_arrays(column):
                # A copy has its own values alone; a slice is serialized with some of its neighbours'.
                copied = pa.concat_arrays([array, array.slice(0, 0)])
                digest.update(pa.record_batch([copied], [""]).serialize())
    return digest.digest()


def _plain_arrays(array: pa.Array) -> Iterator[pa.Array]:
    """An array as several without nulls, bits or nesting: which are null, how long each is, and the values."""
    yield array.is_null().cast(pa.uint8())
    values = array.drop_null()
    if pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _plain_arrays(field)
    elif pa.types.is_map(values.type):
        yield from _plain_arrays(values.cast(pa.list_(pa.struct([values.type.key_field, values.type.item_field]))))
    elif pa.types.is_list(values.type):
        yield values.value_lengths()
        yield from _plain_arrays(values.flatten())
    else:
        yield values.cast(pa.uint8()) if pa.types.is_boolean(values.type) else values
