"""Spark's types and Arrow's: from a schema's type texts to Arrow, and back to a text that people know."""

from __future__ import annotations

import re
from functools import lru_cache

import pyarrow as pa

from lockstep.errors import StoreError
from lockstep.plan.schema import Schema

_SIMPLE: dict[str, pa.DataType] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "binary": pa.binary(),
}
_SIMPLE_TEXTS = {arrow: text for text, arrow in _SIMPLE.items()}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_NESTED = re.compile(r"(array|map|struct)<(.*)>", re.DOTALL)
_STRUCT_FIELD = re.compile(r"(?:`((?:[^`]|``)+)`|([^:`]+)):(.*)", re.DOTALL)


def arrow_schema(schema: Schema | pa.Schema) -> pa.Schema:
    """The Arrow schema of a plan's schema; an Arrow schema is given back as it is.

    >>> from lockstep.plan.schema import parse_schema
    >>> print(arrow_schema(parse_schema("user string, at timestamp, tags array<string>")))
    user: string
    at: timestamp[us, tz=UTC]
    tags: list<item: string>
      child 0, item: string
    """
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in schema.fields])


@lru_cache(maxsize=1024)
def arrow_type(text: str) -> pa.DataType:
    """The Arrow type of a normalised Spark type.

    >>> arrow_type("map<string,decimal(10,2)>")
    MapType(map<string, decimal128(10, 2)>)
    """
    if text in _SIMPLE:
        return _SIMPLE[text]
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _NESTED.fullmatch(text):
        return _nested_type(match[1], _split(match[2]), text)
    raise _no_such_type(text)


def _nested_type(kind: str, parts: list[str], text: str) -> pa.DataType:
    if kind == "array" and len(parts) == 1:
        return pa.list_(arrow_type(parts[0]))
    if kind == "map" and len(parts) == 2:
        return pa.map_(arrow_type(parts[0]), arrow_type(parts[1]))
    fields = [_STRUCT_FIELD.fullmatch(part) for part in parts]
    if kind != "struct" or not all(fields):
        raise _no_such_type(text)
    named = [((match[1] or "").replace("``", "`") or match[2].strip(), match[3]) for match in fields if match]
    return pa.struct([pa.field(name, arrow_type(inner.strip())) for name, inner in named])


def _split(text: str) -> list[str]:
    """``text`` at its commas, those inside brackets and back quotes left alone."""
    parts, depth, quoted, start = [], 0, False, 0
    for at, character in enumerate(text):
        if character == "`":
            quoted = not quoted
        elif not quoted and character in "<(":
            depth += 1
        elif not quoted and character in ">)":
            depth -= 1
        elif not quoted and depth == 0 and character == ",":
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def spark_type(arrow: pa.DataType) -> str:
    """An Arrow type as Spark writes it, for messages.

    >>> spark_type(pa.list_(pa.int64())), spark_type(pa.timestamp("us"))
    ('array<bigint>', 'timestamp_ntz')
    """
    if arrow in _SIMPLE_TEXTS:
        return _SIMPLE_TEXTS[arrow]
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_map(arrow):
        return f"map<{spark_type(arrow.key_type)},{spark_type(arrow.item_type)}>"
    if pa.types.is_list(arrow):
        return f"array<{spark_type(arrow.value_type)}>"
    if pa.types.is_struct(arrow):
        return "struct<" + ",".join(f"{field.name}:{spark_type(field.type)}" for field in arrow) + ">"
    return str(arrow)


def schema_text(schema: pa.Schema) -> str:
    """An Arrow schema as people write it.

    >>> schema_text(pa.schema([("user", pa.string()), ("ok", pa.bool_())]))
    'user string, ok boolean'
    """
    return ", ".join(f"{field.name} {spark_type(field.type)}" for field in schema)


def _no_such_type(text: str) -> StoreError:
    return StoreError(
        "LS0415",
        f'the type "{text}" cannot be kept',
        why="it has no form in Arrow that Spark reads back as the same type.",
        hint="use string, boolean, whole numbers, float, double, decimal, date, timestamp, binary, or arrays, maps and "
        "structs of them.",
    )
