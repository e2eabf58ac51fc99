"""An Avro schema as a tree of types, each with the type it has in Spark; LS0529 for what has none.

No package is needed for it: a job can be planned, drawn and checked where nothing reads Avro.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeGuard

from lockstep.errors import ConnectError
from lockstep.plan.schema import Field, Schema, check_names, quoted

_SIMPLE = {
    "boolean": "boolean",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "timestamp",
    ("long", "timestamp-micros"): "timestamp",
    ("long", "local-timestamp-millis"): "timestamp_ntz",
    ("long", "local-timestamp-micros"): "timestamp_ntz",
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DECIMAL_DIGITS_MAX = 38
_FIXED_BYTES_MAX = 1 << 30
_DEPTH_MAX = 64
"""Deeper than any record that people write, and far from what Python's stack holds."""


@dataclass(frozen=True)
class AvroType:
    """How a value is written, and what it is in Spark."""

    kind: str
    """"boolean", "int", "long", "float", "double", "string", "bytes", "fixed", "enum", "array", "map" or "record"."""
    spark: str
    logical: str = ""
    """"date", "decimal", "timestamp-millis" and so on; only those that change the value."""
    union: tuple[bool, ...] = ()
    """The branches of the union that it stands in: whether each is null."""
    size: int = 0
    """Bytes of a "fixed"."""
    digits: tuple[int, int] = (0, 0)
    """Precision and scale of a decimal."""
    symbols: tuple[str, ...] = ()
    fields: tuple[tuple[str, AvroType], ...] = ()
    """Of a record; the one of an array is called "items", that of a map "values"."""


def normalised(text: str) -> str:
    """The schema's JSON in one form: white space and the order of attributes make no other plan.

    >>> normalised('{"type": "record",  "name": "r", "fields": []}')
    '{"fields":[],"name":"r","type":"record"}'
    """
    if not isinstance(text, str):
        raise _refused("", f"it is given as a {type(text).__name__}, and has to be a text with JSON")
    try:
        return json.dumps(json.loads(text), separators=(",", ":"), sort_keys=True)
    except (ValueError, RecursionError) as error:
        raise _refused("", f"it is not JSON: {error}") from error


@lru_cache(maxsize=64)
def avro_record(text: str) -> AvroType:
    """The tree of a schema, which has to be a record.

    >>> text = '{"type": "record", "name": "r", "fields": [{"name": "at", "type": ["null", "long"]}]}'
    >>> [(name, each.spark, each.union) for name, each in avro_record(text).fields]
    [('at', 'bigint', (True, False))]
    """
    found = _Reading().type(json.loads(normalised(text)), "", "", 0)
    if found.kind != "record" or found.union:
        raise _refused("", f"it is a {found.kind}, and has to be a record: its fields become the columns")
    return found


def avro_columns(text: str) -> Schema:
    """The columns that a schema's record has."""
    return Schema(tuple(Field(name, each.spark) for name, each in avro_record(text).fields))


def check_fits(columns: Schema, text: str) -> None:
    """LS0529 unless each column is a field of the record, with the type that this has in Spark."""
    there = {each.name: each.type for each in avro_columns(text).fields}
    for each in columns.fields:
        if each.name not in there:
            raise _refused(each.name, f"there is no such field; it has: {', '.join(there)}", "schema= does not fit")
        if each.type != there[each.name]:
            why = f"schema= says {each.type}, and in Avro it is {there[each.name]}"
            raise _refused(each.name, why, "schema= does not fit", "Leave schema= out, and change types in the job.")


def _refused(path: str, why: str, what: str = "cannot be used", hint: str = "") -> ConnectError:
    place = f'field "{path}": ' if path else ""
    fact = f"the Avro schema {what}" if what == "cannot be used" else f"{what} the Avro schema"
    hint = hint or "lockstep explain LS0529 lists what can be read."
    return ConnectError("LS0529", fact, why=f"{place}{why}.", hint=hint)


@dataclass
class _Reading:
    """The walk through one schema; ``named`` has the types that were defined so far, None while one is open."""

    named: dict[str, AvroType | None] = field(default_factory=dict)

    def type(self, node: Any, path: str, space: str, depth: int) -> AvroType:
        if depth > _DEPTH_MAX:
            raise _refused(path, f"it is more than {_DEPTH_MAX} levels deep")
        if isinstance(node, list):
            return self._union(node, path, space, depth)
        if isinstance(node, str):
            return AvroType(node, _SIMPLE[node]) if node in _SIMPLE else self._reference(node, path, space)
        if not isinstance(node, Mapping) or "type" not in node:
            raise _refused(path, f"{json.dumps(node)} is not a type")
        kind = node["type"]
        if not isinstance(kind, str):
            return self.type(kind, path, space, depth + 1)
        if kind in ("array", "map"):
            return self._many(kind, node, path, space, depth)
        if kind in ("record", "enum", "fixed"):
            return self._define(kind, node, path, space, depth)
        return self._logical(self.type(kind, path, space, depth + 1), node, path)

    def _union(self, branches: list[Any], path: str, space: str, depth: int) -> AvroType:
        others = [each for each in branches if each != "null"]
        if len(others) != 1 or len(branches) > 2:
            why = "of a union only null and one other type can be a column"
            raise _refused(path, f"{why}, and it has: {', '.join(map(_shown, branches)) or 'nothing'}")
        found = self.type(others[0], path, space, depth + 1)
        if found.union:
            raise _refused(path, "it is a union in a union")
        return replace(found, union=tuple(each == "null" for each in branches))

    def _reference(self, name: str, path: str, space: str) -> AvroType:
        if name == "null":
            raise _refused(path, "it is always null, and a column of nothing but nulls has no type")
        full = _full_name(name, space)
        full = full if full in self.named else name
        if full not in self.named:
            raise _refused(path, f'"{name}" is not a type, and none of that name is defined before')
        found = self.named[full]
        if found is None:
            raise _refused(path, f'the record "{name}" holds itself, and a column of Spark cannot')
        return found

    def _many(self, kind: str, node: Mapping[str, Any], path: str, space: str, depth: int) -> AvroType:
        part = "items" if kind == "array" else "values"
        if part not in node:
            raise _refused(path, f'the {kind} has no "{part}"')
        inner = self.type(node[part], _below(path, part), space, depth + 1)
        spark = f"array<{inner.spark}>" if kind == "array" else f"map<string,{inner.spark}>"
        return AvroType(kind, spark, fields=((part, inner),))

    def _define(self, kind: str, node: Mapping[str, Any], path: str, space: str, depth: int) -> AvroType:
        name = node.get("name")
        if not isinstance(name, str) or not all(map(_NAME.fullmatch, name.split("."))):
            raise _refused(path, f"{_shown(name)} cannot be the name of a {kind}")
        full = _full_name(name, str(node.get("namespace") or space))
        if full in self.named:
            raise _refused(path, f'"{full}" is defined twice')
        self.named[full] = None
        if kind == "record":
            found = self._record(node, path, full.rpartition(".")[0], depth)
        elif kind == "enum":
            found = _enum(node, path)
        else:
            found = self._logical(_fixed(node, path), node, path)
        self.named[full] = found
        return found

    def _record(self, node: Mapping[str, Any], path: str, space: str, depth: int) -> AvroType:
        fields: list[tuple[str, AvroType]] = []
        given = node.get("fields")
        for each in given if isinstance(given, list) else []:
            name = each.get("name") if isinstance(each, Mapping) else None
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise _refused(path, f"{_shown(name)} cannot be the name of a field")
            fields.append((name, self.type(each.get("type"), _below(path, name), space, depth + 1)))
        if not fields:
            raise _refused(path, "the record has no fields")
        check_names([name for name, _ in fields], "the Avro schema")
        inside = ",".join(f"{quoted(name)}:{each.spark}" for name, each in fields)
        return AvroType("record", f"struct<{inside}>", fields=tuple(fields))

    def _logical(self, found: AvroType, node: Mapping[str, Any], path: str) -> AvroType:
        """With its logical type. One that is not known changes nothing: so Avro's specification wants it."""
        logical = node.get("logicalType")
        if logical == "decimal" and found.kind in ("bytes", "fixed"):
            precision, scale = node.get("precision"), node.get("scale", 0)
            if not _is_whole(precision, 1, _DECIMAL_DIGITS_MAX) or not _is_whole(scale, 0, precision):
                raise _refused(path, f"a decimal with precision {precision} and scale {scale} has no type in Spark")
            return replace(found, spark=f"decimal({precision},{scale})", logical="decimal", digits=(precision, scale))
        if isinstance(logical, str) and (found.kind, logical) in _LOGICAL and not found.union:
            return replace(found, spark=_LOGICAL[found.kind, logical], logical=logical)
        return found


def _is_whole(value: Any, least: int, most: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _enum(node: Mapping[str, Any], path: str) -> AvroType:
    symbols = node.get("symbols")
    names = [each for each in symbols if isinstance(each, str)] if isinstance(symbols, list) else []
    if not names or names != symbols or len(set(names)) != len(names) or not all(map(_NAME.fullmatch, names)):
        raise _refused(path, f"{_shown(symbols)} cannot be the symbols of an enum")
    return AvroType("enum", "string", symbols=tuple(names))


def _fixed(node: Mapping[str, Any], path: str) -> AvroType:
    size = node.get("size")
    if not _is_whole(size, 1, _FIXED_BYTES_MAX):
        raise _refused(path, f"{_shown(size)} cannot be the size of a fixed")
    return AvroType("fixed", "binary", size=size)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(node: Any) -> str:
    if isinstance(node, Mapping):
        return str(node.get("name") or node.get("type"))
    return node if isinstance(node, str) else json.dumps(node)
