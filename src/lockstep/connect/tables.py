"""Tables that streams are joined with: a spec, and the copy that all replicas of a run read.

Replicas must see the same rows whatever happens to the file meanwhile. So the table is copied once, when the job is
started, under the hash of its bytes; the hashes are a fact in the store and part of the job's version. A changed file
counts from the next start on, like changed code.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from lockstep.errors import PlanError
from lockstep.plan.schema import Field, Schema, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa

    from lockstep.store.protocols import Store

TableFormat = Literal["parquet", "csv", "jsonl"]

TABLES = "tables"
"""Fact: the hash of each table's copy that this run reads."""

_SUFFIXES: Mapping[str, TableFormat] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}
_ROWS = "rows.parquet"
_SCHEMA = "schema.json"
_COPY_BYTES = 1 << 20


@dataclass(frozen=True)
class Table:
    """A table in one file or a folder of files: see :func:`table`."""

    path: str
    format: TableFormat
    schema: Schema
    declared: str = ""
    """The schema as the user wrote it, empty if it was read from the file."""
    file: Path = field(default=Path(), compare=False)
    copy: Path | None = field(default=None, compare=False)
    """The folder of the copy to read instead of the file, in a replica."""

    kind: ClassVar[str] = "table"

    def __reduce__(self) -> tuple[object, ...]:
        # In a replica it is the copy that counts, also for a job that comes to it by value.
        return _restored, (self.path, self.format, self.schema, self.declared, self.file, self.copy)

    @property
    def key(self) -> str:
        """What tells it from the other tables of a job."""
        return "|".join((self.path, self.format, self.declared))

    def describe(self) -> str:
        """One line for drawings and messages."""
        return f"table {self.path} ({self.format})"

    def to_json(self) -> dict[str, Any]:
        """Plain data that tells it from every other table."""
        return {"path": self.path, "format": self.format, "schema": self.schema.to_json()}

    def rows(self) -> pa.Table:
        """The rows as they are in the file now (LS0187 if one does not fit the schema)."""
        import pyarrow as pa

        from lockstep.store.types import arrow_schema

        found = list(_parts(_files(self.file, self.format, self.path), self))
        return pa.concat_tables([arrow_schema(self.schema).empty_table(), *found])

    @property
    def copied_rows(self) -> Path:
        """The file with the rows of the copy: in a replica the run's, elsewhere one that lives with this process."""
        if self.copy is not None:
            return self.copy / _ROWS
        folder = Path(_own_copies().name)
        return folder / _copied(self, folder) / _ROWS


def table(path: str | Path, *, format: TableFormat | None = None, schema: str | Schema | None = None) -> Table:
    """A table to join a stream with: ``stream.join(ls.table("customers.parquet"), on="customer_id")``.

    ``path`` is a Parquet, CSV (with a header row) or JSON-lines file, or a folder of them; ``format`` is read off its
    name. CSV and JSON lines need ``schema``, Parquet has its own (``schema`` then picks columns). The table is copied
    when the job is started and stays the same for the whole run.

    >>> import tempfile, pathlib
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "customers.csv")
    >>> _ = file.write_text("customer_id,name\\n1,ann\\n")
    >>> customers = table(file, schema="customer_id bigint, name string")
    >>> customers.rows().to_pylist()
    [{'customer_id': 1, 'name': 'ann'}]
    >>> folder.cleanup()
    """
    text = str(path)
    declared = parse_schema(schema) if schema is not None else None
    if (copy := _here.copy_of(text, format, declared)) is not None:
        return copy
    file = _here.project / text
    if not file.exists():
        raise PlanError(
            "LS0186",
            f"there is no table {text}",
            why=f"{file.resolve()} does not exist.",
            hint="the path is relative to the project folder, or absolute.",
        )
    kind = format or _format_of(file, text)
    found = declared or _schema_of(file, kind, text)
    return Table(text, kind, found, declared.ddl() if declared else "", file.resolve())


def _restored(path: str, format: TableFormat, schema: Schema, declared: str, file: Path, copy: Path | None) -> Table:
    """A table that another process has made, as this one sees it."""
    copied = None if _here.copies is None else _here.copies.of("|".join((path, format, declared)))
    return Table(path, format, schema, declared, file, copied or copy)


@dataclass(frozen=True)
class Copies:
    """The copies of a job's tables: the hash of each, by the table's key."""

    folder: Path
    hashes: Mapping[str, str] = field(default_factory=dict)

    def of(self, key: str) -> Path | None:
        """The folder of a table's copy."""
        return self.folder / self.hashes[key] if key in self.hashes else None

    def with_code(self, code_hash: str) -> str:
        """The hash of the job's code and of these tables: both make its version."""
        if not self.hashes:
            return code_hash
        together = json.dumps([code_hash, dict(self.hashes)], sort_keys=True)
        return hashlib.sha256(together.encode()).hexdigest()


def copy_tables(tables: Iterable[Table], store: Store, folder: Path) -> Copies:
    """Copy the tables as they are now into ``folder``; what a start of the job does. An unchanged one is there already.

    Copies that neither this start nor the one before it uses are removed.
    """
    before: dict[str, str] = json.loads(store.fact(TABLES) or "{}")
    hashes: dict[str, str] = {}
    for one in tables:
        hashes[one.key] = _copied(one, folder)
        if before.get(one.key, hashes[one.key]) != hashes[one.key]:
            store.add_event("table-changed", f"{one.path} is read anew from this start on")
    if hashes != before:
        store.set_fact(TABLES, json.dumps(hashes, sort_keys=True))
    for old in folder.glob("*") if before else ():
        if old.name not in {*hashes.values(), *before.values()}:
            shutil.rmtree(old)
    return Copies(folder, hashes)


def copies_in(store: Store, folder: Path) -> Copies:
    """The copies that the running job reads."""
    return Copies(folder, json.loads(store.fact(TABLES) or "{}"))


def look_in(project: Path, copies: Copies | None = None) -> None:
    """Where :func:`table` looks from now on: relative paths in ``project``, and in a replica only ``copies``."""
    _here.project, _here.copies = project, copies


@dataclass
class _Here:
    """Where this process finds tables. A job file says ``ls.table(path)`` and cannot be told more."""

    project: Path = Path()
    copies: Copies | None = None

    def copy_of(self, path: str, format: TableFormat | None, declared: Schema | None) -> Table | None:
        if self.copies is None:
            return None
        ddl = declared.ddl() if declared else ""
        for kind in [format] if format else _SUFFIXES.values():
            folder = self.copies.of("|".join((path, kind, ddl)))
            if folder is not None:
                found = Schema.from_json(json.loads((folder / _SCHEMA).read_text(encoding="utf-8")))
                return Table(path, kind, found, ddl, copy=folder)
        return None


_here = _Here()


@cache
def _own_copies() -> tempfile.TemporaryDirectory[str]:
    """Where tables are copied while a job is checked or tested; removed when this process ends."""
    return tempfile.TemporaryDirectory(prefix="lockstep-tables-")


def _copied(table: Table, folder: Path) -> str:
    """Copy bytes first and hash the copy: the file may be written to at this moment. Returns the hash."""
    import pyarrow.parquet as pq

    from lockstep.store.types import arrow_schema

    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as scratch:
        raw = [_taken(file, Path(scratch)) for file in _files(table.file, table.format, table.path)]
        digest = hashlib.sha256(f"{table.key}\n{table.schema.ddl()}\n".encode())
        for file, content in raw:
            digest.update(f"{file.name} {content}\n".encode())
        target = folder / digest.hexdigest()
        if target.exists():
            return target.name
        made = Path(scratch, "made")
        made.mkdir()
        (made / _SCHEMA).write_text(json.dumps(table.schema.to_json()), encoding="utf-8")
        with pq.ParquetWriter(made / _ROWS, arrow_schema(table.schema)) as writer:
            for part in _parts([file for file, _ in raw], table):
                writer.write_table(part)
        made.rename(target)
        return target.name


def _taken(file: Path, folder: Path) -> tuple[Path, str]:
    digest = hashlib.sha256()
    with file.open("rb") as source, (folder / file.name).open("wb") as target:
        while block := source.read(_COPY_BYTES):
            digest.update(block)
            target.write(block)
    return folder / file.name, digest.hexdigest()


def _parts(files: Iterable[Path], table: Table) -> Iterator[pa.Table]:
    """The rows, a part at a time, with the types of the schema."""
    import pyarrow.parquet as pq

    from lockstep.connect.formats import CorruptContent, csv_table, json_lines_table, parquet_table
    from lockstep.store.types import arrow_schema

    schema = arrow_schema(table.schema)
    for file in files:
        try:
            if table.format == "parquet":
                for group in range(pq.read_metadata(file).num_row_groups):
                    yield parquet_table(file, [group], schema)
            elif table.format == "csv":
                header, _, rows = file.read_bytes().partition(b"\n")
                yield csv_table(rows, header.decode("utf-8-sig").strip("\r"), schema)
            else:
                yield json_lines_table(file.read_bytes(), schema)
        except CorruptContent as error:
            line = f", line {error.line}" if error.line is not None else ""
            raise _unfit(table.path, f"{file.name}{line}: {error.reason}.") from None
        except (OSError, ValueError) as error:
            raise _unfit(table.path, f"{file.name}: {error}.") from None


def _unfit(path: str, why: str) -> PlanError:
    return PlanError(
        "LS0187",
        f"the table {path} cannot be read with this schema",
        why=why,
        hint='mend the file, or say what is in it: ls.table(path, schema="id bigint, name string").',
    )


def _files(file: Path, format: TableFormat, path: str) -> list[Path]:
    """The table's files, sorted by name. Names that begin with a dot or an underscore are not part of it."""
    if not file.is_dir():
        return [file]
    found = [one for one in sorted(file.iterdir()) if one.is_file() and not one.name.startswith((".", "_"))]
    odd = [one.name for one in found if _SUFFIXES.get(one.suffix) != format]
    if not found or odd:
        what = f"it also holds {', '.join(odd[:3])}" if odd else "it holds no files"
        raise PlanError(
            "LS0186",
            f"the folder {path} is not a table in the format {format}",
            why=f"{what}.",
            hint="a table is one file, or a folder with files of one format.",
        )
    return found


def _format_of(file: Path, path: str) -> TableFormat:
    names = [file] if file.is_file() else sorted(file.iterdir())
    visible = [one for one in names if not one.name.startswith((".", "_"))]
    for one in visible:
        if one.suffix in _SUFFIXES:
            return _SUFFIXES[one.suffix]
    raise PlanError(
        "LS0186",
        f"the format of the table {path} is not known",
        why=f"names end in {', '.join(_SUFFIXES)}.",
        hint=f'ls.table("{path}", format="csv", schema="...")',
    )


def _schema_of(file: Path, format: TableFormat, path: str) -> Schema:
    if format != "parquet":
        raise PlanError(
            "LS0187",
            f"the table {path} needs a schema",
            why=f"a {format} file does not say which types its columns have.",
            hint=f'ls.table("{path}", schema="id bigint, name string")',
        )
    import pyarrow as pa
    import pyarrow.parquet as pq

    from lockstep.errors import StoreError
    from lockstep.store.types import arrow_type, spark_type

    try:
        found = pq.read_schema(_files(file, format, path)[0])
        fields = tuple(Field(one.name, spark_type(_plain(one.type))) for one in found)
        for one in fields:
            arrow_type(one.type)  # raises for types that streams do not have
        return Schema(fields)
    except (pa.ArrowException, OSError, StoreError) as error:
        raise _unfit(path, f"{str(error).splitlines()[0].rstrip('.')}.") from None


def _plain(arrow: pa.DataType) -> pa.DataType:
    """The type that streams have in the place of one that only files have; nothing is lost by it."""
    import pyarrow as pa

    if pa.types.is_dictionary(arrow):
        return _plain(arrow.value_type)
    if pa.types.is_timestamp(arrow):
        return pa.timestamp("us", "UTC" if arrow.tz else None)
    wider = {
        pa.large_string(): pa.string(),
        pa.large_binary(): pa.binary(),
        pa.uint8(): pa.int16(),
        pa.uint16(): pa.int32(),
        pa.uint32(): pa.int64(),
        pa.float16(): pa.float32(),
        pa.date64(): pa.date32(),
    }
    return wider.get(arrow, arrow)
