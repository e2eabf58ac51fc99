"""Names and types of a record's fields, and the small parser of Spark's DDL that reads them without Spark."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NoReturn

from lockstep.errors import PlanError

RESERVED_PREFIX = "__"
"""Lockstep's own hidden columns (marks, positions, epoch time) start like this; a user's never do."""
CHANGED = "lockstep_change"
"""The last column of what a sink takes that is told which rows are taken back (-1), and which begin to hold (1);
journals inside a job have it too."""
STAGE_TIME = "lockstep_event_time"
"""The column of a stage's journal that keeps its records' event times."""
TRAVELLING = frozenset({CHANGED, STAGE_TIME})
"""Lockstep's own columns in journals between stages and for sinks, where no name may begin with the prefix."""

_SIMPLE_TYPES = {
    "string": "string",
    "str": "string",
    "boolean": "boolean",
    "bool": "boolean",
    "tinyint": "tinyint",
    "byte": "tinyint",
    "smallint": "smallint",
    "short": "smallint",
    "int": "int",
    "integer": "int",
    "bigint": "bigint",
    "long": "bigint",
    "float": "float",
    "real": "float",
    "double": "double",
    "date": "date",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "binary": "binary",
}
_DECIMAL_NAMES = ("decimal", "dec", "numeric")
_DECIMAL_DIGITS_MAX = 38
_NESTED_NAMES = ("array", "map", "struct")
_REFUSED_TYPES = {
    "interval": "an interval has no place in files and tables; keep a bigint of microseconds.",
    "variant": "a variant has no fixed type to compare between replicas; keep the text as a string.",
    "void": "a column of nothing but nulls has no type.",
    "time": "a time without a day is not supported; keep a bigint of microseconds.",
    "char": "lengths are not enforced on streams; use string.",
    "varchar": "lengths are not enforced on streams; use string.",
}
_TYPE_LIST = (
    "string, boolean, tinyint, smallint, int, bigint, float, double, decimal(p,s), date, timestamp, "
    "timestamp_ntz, binary, array<T>, map<K,V>, struct<name:T,...>"
)
_TOKEN = re.compile(r"\s*(?:(?P<word>[^\W\d]\w*)|`(?P<quoted>(?:[^`]|``)+)`|(?P<number>\d+)|(?P<mark>[<>(),:]))")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Field:
    """One field: its name and its type as Spark writes it, normalised ("long" is "bigint")."""

    name: str
    type: str


@dataclass(frozen=True)
class Schema:
    """The fields of a record, in order.

    >>> schema = parse_schema("user string, ok bool, at timestamp")
    >>> schema.names
    ('user', 'ok', 'at')
    >>> schema.ddl()
    'user string, ok boolean, at timestamp'
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        if not self.fields:
            raise PlanError("LS0105", "the schema has no fields", hint='write it like "user string, at timestamp".')
        check_names(self.names, "the schema")

    @property
    def names(self) -> tuple[str, ...]:
        """The fields' names, in order."""
        return tuple(field.name for field in self.fields)

    def type_of(self, name: str) -> str:
        """The type of the field called ``name``; LS0107 if there is none."""
        for field in self.fields:
            if field.name == name:
                return field.type
        raise unknown_column(name, self.names)

    def ddl(self) -> str:
        """The schema as Spark reads it, with names in back quotes where they need them."""
        return ", ".join(f"{quoted(field.name)} {field.type}" for field in self.fields)

    def to_json(self) -> list[dict[str, str]]:
        """Plain data for files and for comparison."""
        return [{"name": field.name, "type": field.type} for field in self.fields]

    @staticmethod
    def from_json(data: Sequence[dict[str, str]]) -> Schema:
        """What :meth:`to_json` gave."""
        return Schema(tuple(Field(item["name"], item["type"]) for item in data))


def parse_schema(value: str | Schema) -> Schema:
    """A schema from Spark's DDL, ``name type`` or ``name: type``, separated by commas.

    >>> parse_schema("id: long, tags array<str>, price decimal(10, 2) NOT NULL").ddl()
    'id bigint, tags array<string>, price decimal(10,2)'
    >>> parse_schema("user strin")
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.PlanError: LS0105 "strin" is not a type
      why:  user strin
                 ^
      try:  did you mean "string"? The types are: string, boolean, tinyint, smallint, int, bigint, float, double, \
decimal(p,s), date, timestamp, timestamp_ntz, binary, array<T>, map<K,V>, struct<name:T,...>.
    """
    if isinstance(value, Schema):
        return value
    if not isinstance(value, str):
        raise PlanError(
            "LS0105",
            f"a schema is a text, not a {type(value).__name__}",
            why=f"it was given {value!r}.",
            hint='write it like "user string, at timestamp".',
        )
    return _parse_text(value)


@lru_cache(maxsize=256)
def _parse_text(text: str) -> Schema:
    if not text.strip():
        raise PlanError("LS0105", "the schema is empty", hint='write it like "user string, at timestamp".')
    parser = _Parser(text)
    fields = parser.fields(end=None)
    return Schema(tuple(fields))


def quoted(name: str) -> str:
    """``name`` as it stands in DDL and SQL: in back quotes unless it is a plain word.

    >>> quoted("user"), quoted("first name")
    ('user', '`first name`')
    """
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """The known word that is most like ``word``, as a question; empty if none is near."""
    by_folded = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(by_folded), n=1, cutoff=0.6)
    return f'did you mean "{by_folded[near[0]]}"?' if near else ""


def unknown_column(name: str, columns: Sequence[str], where: str = "", hint: str = "") -> PlanError:
    """The error for a column that is not there, with those that are."""
    place = f" in {where}" if where else ""
    there = ", ".join(columns) or "no columns"
    tips = [part for part in (did_you_mean(name, columns), hint) if part]
    return PlanError("LS0107", f'unknown column "{name}"{place}', why=f"the stream has: {there}.", hint="\n".join(tips))


def check_names(names: Sequence[str], where: str) -> None:
    """Refuse names that are empty, reserved (LS0106), or the same (LS0132), also if they differ in case only."""
    seen: dict[str, str] = {}
    for name in names:
        if not name:
            raise PlanError("LS0132", f"{where} has a column without a name", hint="give it a name.")
        if name.startswith(RESERVED_PREFIX):
            raise PlanError(
                "LS0106",
                f'"{name}" in {where} is a reserved name',
                why=f'names that start with "{RESERVED_PREFIX}" are Lockstep\'s own hidden columns.',
                hint=f'call it "{name.lstrip("_") or "value"}".',
            )
        if name.lower() in seen:
            earlier = seen[name.lower()]
            why = "" if earlier == name else f'Spark does not tell "{earlier}" from "{name}": case does not count.'
            raise PlanError("LS0132", f'{where} has "{name}" twice', why=why, hint="give one of them another name.")
        seen[name.lower()] = name


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    at: int


class _Parser:
    """Recursive descent over the tokens of one text; an error points at the place."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0

    def _split(self, text: str) -> list[_Token]:
        tokens, at, end = [], 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                self._fail(f'"{text[at]}" is not expected here', at)
            kind = str(match.lastgroup)
            tokens.append(_Token(kind, match.group(kind), match.start(kind)))
            at = match.end()
        return [*tokens, _Token("end", "", end)]

    def _fail(self, fact: str, at: int, hint: str = "") -> NoReturn:
        # A schema may span lines: show the line with the fault, and the caret below it.
        line_start = self._text.rfind("\n", 0, at) + 1
        line = self._text[line_start:].split("\n", 1)[0]
        why = f"{line}\n{' ' * (at - line_start)}^"
        raise PlanError("LS0105", fact, why=why, hint=hint or 'write it like "user string, at timestamp".')

    def _peek(self) -> _Token:
        return self._tokens[self._next]

    def _take(self) -> _Token:
        token = self._peek()
        self._next += token.kind != "end"
        return token

    def _take_mark(self, mark: str) -> None:
        token = self._take()
        if token.text != mark or token.kind != "mark":
            self._fail(f'expected "{mark}"' + (f', found "{token.text}"' if token.text else ""), token.at)

    def _next_is(self, mark: str) -> bool:
        return self._peek().kind == "mark" and self._peek().text == mark

    def fields(self, end: str | None) -> list[Field]:
        """``name type, ...`` up to the mark ``end`` (not taken), or to the end of the text."""
        found = [self._field()]
        while self._next_is(","):
            self._take()
            found.append(self._field())
        token = self._peek()
        if end is None and token.kind != "end":
            self._fail(f'expected "," or the end, found "{token.text}"', token.at)
        return found

    def _field(self) -> Field:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            self._fail("expected the name of a field" + (f', found "{token.text}"' if token.text else ""), token.at)
        name = token.text.replace("``", "`")
        if self._next_is(":"):
            self._take()
        type_text = self._type()
        self._skip_not_null()
        return Field(name, type_text)

    def _skip_not_null(self) -> None:
        if self._peek().text.lower() != "not":
            return
        self._take()
        token = self._take()
        if token.text.lower() != "null":
            self._fail('expected "NULL" after "NOT"', token.at)

    def _type(self) -> str:
        token = self._take()
        word = token.text.lower()
        if token.kind != "word":
            self._fail(
                "expected a type" + (f', found "{token.text}"' if token.text else ""),
                token.at,
                f"the types are: {_TYPE_LIST}.",
            )
        if word in _SIMPLE_TYPES:
            return _SIMPLE_TYPES[word]
        if word in _DECIMAL_NAMES:
            return self._decimal(token)
        if word in _NESTED_NAMES:
            return self._nested(word)
        if word in _REFUSED_TYPES:
            self._fail(f'the type "{token.text}" cannot be used in a stream', token.at, _REFUSED_TYPES[word])
        return self._fail_type(token)

    def _fail_type(self, token: _Token) -> NoReturn:
        near = did_you_mean(token.text, [*_SIMPLE_TYPES, *_DECIMAL_NAMES, *_NESTED_NAMES])
        self._fail(f'"{token.text}" is not a type', token.at, f"{near} The types are: {_TYPE_LIST}.".lstrip())

    def _decimal(self, token: _Token) -> str:
        digits = [10, 0]
        if self._next_is("("):
            self._take()
            digits = [self._number(), 0]
            if self._next_is(","):
                self._take()
                digits[1] = self._number()
            self._take_mark(")")
        if not 1 <= digits[0] <= _DECIMAL_DIGITS_MAX or digits[1] > digits[0]:
            self._fail(
                f"a decimal({digits[0]},{digits[1]}) is not possible",
                token.at,
                f"precision is 1 to {_DECIMAL_DIGITS_MAX}, scale is 0 to the precision.",
            )
        return f"decimal({digits[0]},{digits[1]})"

    def _number(self) -> int:
        token = self._take()
        if token.kind != "number":
            self._fail("expected a number", token.at)
        return int(token.text)

    def _nested(self, word: str) -> str:
        self._take_mark("<")
        if word == "array":
            inside = self._type()
        elif word == "map":
            key = self._type()
            self._take_mark(",")
            inside = f"{key},{self._type()}"
        else:
            fields = self.fields(end=">")
            check_names([field.name for field in fields], "a struct")
            inside = ",".join(f"{quoted(field.name)}:{field.type}" for field in fields)
        self._take_mark(">")
        return f"{word}<{inside}>"


def schema_json(schema: Schema | None) -> Any:
    """The schema as plain data, None if it is not known."""
    return None if schema is None else schema.to_json()
