"""Writing records into a journal from Python: on disk when they are acknowledged, and once if they have a name."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lockstep.connect.specs import journal
from lockstep.errors import StoreError
from lockstep.store.journal import SqliteJournal, open_journal
from lockstep.store.names import checked_batch_name
from lockstep.store.python_records import Records, table_from_records
from lockstep.store.types import schema_text

WRITERS_MAX = 8
"""Puts of one journal that an event loop has under way; the others wait. Those under way share a wait for the disk."""


@dataclass(frozen=True)
class Acknowledged:
    """Records that are on disk."""

    records: int
    """How many this call has written: none if they were there before."""
    positions: dict[int, tuple[int, int]]
    """By partition: the position of the first, and one past the last."""
    repeated: bool = False
    """Whether a call before this one has written them, under the same name."""


class Journal:
    """A journal that records are written to.

    >>> import lockstep as ls
    >>> with ls.Journal("logins", schema="user string, ok boolean") as journal:
    ...     print(journal.put([{"user": "ann", "ok": True}, {"user": "bob"}]))
    Acknowledged(records=2, positions={0: (0, 2)}, repeated=False)

    The journal is the one that `lockstep put NAME` writes to in the folder ``project``, and that a job there reads with
    :func:`lockstep.journal`. With a ``schema`` it is made if it is not there, with so many ``partitions``; without one
    it has to be there (LS0410). Several threads and processes may write at the same time.
    """

    def __init__(self, name: str, *, schema: str | None = None, partitions: int = 1, project: str | Path = ".") -> None:
        from lockstep.config import STORE_FOLDER

        self.name = name
        home = Path(project).expanduser().resolve() / STORE_FOLDER
        self._journal = open_named(home, name, schema, partitions)
        self._threads = ThreadPoolExecutor(WRITERS_MAX, thread_name_prefix=f"put-{name}")
        # A journal that nobody closes gives its files back when it is no longer used.
        self._close = weakref.finalize(self, _close, self._threads, self._journal)

    @property
    def schema(self) -> str:
        """What every record in it has.

        >>> import lockstep as ls
        >>> ls.Journal("orders", schema="id bigint, item string").schema
        'id bigint, item string'
        """
        return schema_text(self._journal.schema)

    def put(self, records: Records, *, once: str | None = None) -> Acknowledged:
        """Write records, all of them or none; they are on disk when this returns.

        ``records`` are dicts, dataclasses or named tuples, or a table of pandas, Polars or Arrow. Fields that are
        missing are null. If one does not fit the schema, LS0403 says which (counted from 1), and nothing is written.

        ``once`` names these records. The same records under the same name are written once, whatever was killed when,
        and whoever puts them at the same moment: a call whose answer was lost is simply made again. Other records under
        a name that is taken are refused (LS0428). A journal remembers its newest 1,000,000 names, whether their records
        are kept or not; under a name that it has forgotten, records are written again.

        >>> import lockstep as ls
        >>> journal = ls.Journal("orders", schema="id bigint, item string")
        >>> journal.put([{"id": 1, "item": "tea"}], once="importer/17")
        Acknowledged(records=1, positions={0: (0, 1)}, repeated=False)
        >>> journal.put([{"id": 1, "item": "tea"}], once="importer/17")
        Acknowledged(records=0, positions={0: (0, 1)}, repeated=True)
        >>> journal.put([{"id": 2, "item": "milk"}, {"id": "3"}])
        Traceback (most recent call last):
        ...
        lockstep.errors.tree.StoreError: LS0403 record 2: field "id" should be bigint, but "3" (string) came
          why:  whole numbers have no quotes, no fraction and no exponent.
          try:  mend the record; nothing of this call was kept. The schema is: id bigint, item string.
        """
        return _put(self._opened(), records, once)

    async def put_async(self, records: Records, *, once: str | None = None) -> Acknowledged:
        """Like :meth:`put`, for an event loop, which goes on meanwhile.

        It ends when the records are on disk, so whoever awaits one put after the other is as fast as the disk. Of puts
        that are started side by side eight are under way and the others wait. One that is cancelled may be written
        or not: put the same under the same name again.

        >>> import asyncio
        >>> import lockstep as ls
        >>> async def write() -> int:
        ...     with ls.Journal("hits", schema="page string") as hits:
        ...         done = await asyncio.gather(*(hits.put_async([{"page": f"/{n}"}]) for n in range(20)))
        ...     return sum(one.records for one in done)
        >>> asyncio.run(write())
        20
        """
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, _put, self._opened(), records, once)

    def close(self) -> None:
        """Wait for what is under way, and give the files back. Leaving a ``with`` block does it, too."""
        self._close()

    def _opened(self) -> SqliteJournal:
        if not self._close.alive:
            raise _closed(self.name)
        return self._journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _put(target: SqliteJournal, records: Records, once: str | None) -> Acknowledged:
    name = None if once is None else checked_batch_name(once)
    table = table_from_records(records, target.schema)
    if name is None:
        return Acknowledged(table.num_rows, target.append(table))
    positions, repeated = target.append_named(table, name)
    return Acknowledged(0 if repeated else table.num_rows, positions, repeated)


def open_named(home: Path, name: str, schema: str | None, partitions: int) -> SqliteJournal:
    """The journal that a person named; made if there is none and a schema was given."""
    if "://" in name:
        raise _not_a_journal(name)
    wanted = journal(name, schema=schema, partitions=partitions) if schema is not None else None
    return open_journal(home, name, wanted.schema if wanted is not None else None, partitions)


def _close(threads: ThreadPoolExecutor, opened: SqliteJournal) -> None:
    threads.shutdown()
    opened.close()


def _closed(name: str) -> StoreError:
    return StoreError(
        "LS0430",
        f"journal {name} was closed",
        why="close() was called, or its `with` block has ended.",
        hint=f'open it again: ls.Journal("{name}").',
    )


def _not_a_journal(address: str) -> StoreError:
    return StoreError(
        "LS0431",
        f'"{address}" is an address, not the name of a journal',
        why="journals are files of this project; what a topic or a bucket holds is written by its own clients.",
        hint='name a journal ("logins"), or write to the topic with a Kafka producer: a job reads it with ls.kafka().',
    )
