"""One value against one type: what fits is given in the form Arrow takes, what does not is refused with the reason.

Nothing is bent to fit: "5" is not a number, 1.0 is not a whole number, 1 is not true, and a number is not a time.
JSON's numbers arrive as their text (:class:`NumberText`), so that no digit is lost before the type is known.
"""

from __future__ import annotations

import base64
import binascii
import math
import numbers
import operator
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from lockstep.store.types import spark_type

Converter = Callable[[Any], Any]

YEAR_PATTERN = r"(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
DATE_PATTERN = YEAR_PATTERN + r"-[0-9]{2}-[0-9]{2}"
TIME_PATTERN = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,9})?)?"
ZONE_PATTERN = r"(?:Z|[+-](?:[01][0-9]|2[0-3])(?::?[0-5][0-9])?)"
TIMESTAMP_US_MIN = -62_135_596_800_000_000
"""0001-01-01 00:00:00 UTC."""
TIMESTAMP_US_MAX = 253_402_300_799_999_999
"""9999-12-31 23:59:59.999999 UTC."""

_DATE = re.compile(DATE_PATTERN)
_TIMESTAMP = re.compile(f"({DATE_PATTERN})(?:[T ]({TIME_PATTERN})({ZONE_PATTERN})?)?")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_EPOCH = datetime(1970, 1, 1)
_US = timedelta(microseconds=1)
_DIGITS_SHOWN = 60
_EXACT = Context(prec=100)
"""More digits than the 76 that two decimals of 38 could need."""


@dataclass(frozen=True)
class NumberText:
    """A number as it stood in the JSON."""

    text: str


class Unfit(ValueError):
    """A value does not fit: where it stands (outermost first), what is wrong, and why that is refused."""

    def __init__(self, problem: str, why: str = "") -> None:
        super().__init__(problem)
        self.path: list[str] = []
        self.problem = problem
        self.why = why

    def inside(self, name: str) -> Unfit:
        """The same, one level further out."""
        self.path.insert(0, name)
        return self


def converter(arrow: pa.DataType) -> Converter:
    """A function that answers with a value in the form Arrow takes, or raises :class:`Unfit`. None stays None.

    >>> converter(pa.int8())(100), converter(pa.timestamp("us"))("1970-01-01 00:00:01")
    (100, 1000000)
    """
    convert = _maker(arrow)(arrow)

    def nullable(value: Any) -> Any:
        return None if value is None else convert(value)

    return nullable


def record_converter(schema: pa.Schema) -> Converter:
    """Like :func:`converter`, for whole records: a mapping from field names to values; a missing field is null."""
    return _struct(pa.struct(list(schema)))


def _maker(arrow: pa.DataType) -> Callable[[pa.DataType], Converter]:
    for applies, maker in _MAKERS:
        if applies(arrow):
            return maker
    raise AssertionError(f"arrow_type makes no {arrow}")


def _wrong(arrow: pa.DataType, value: Any, why: str = "") -> Unfit:
    return Unfit(f"should be {spark_type(arrow)}, but {_shown(value)} came", why)


def _shown(value: Any) -> str:
    if isinstance(value, NumberText):
        return _short(value.text)
    if isinstance(value, bool):
        return f"{str(value).lower()} (boolean)"
    if isinstance(value, str):
        return f'"{_short(value)}" (string)'
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list | tuple):
        return "an array"
    return _short(repr(value))


def _short(text: str) -> str:
    return text if len(text) <= _DIGITS_SHOWN else text[:_DIGITS_SHOWN] + "..."


def _string(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> str:
        if not isinstance(value, str):
            raise _wrong(arrow, value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise Unfit("holds half a character", f"{error.reason} at character {error.start}.") from None
        return value

    return convert


def _boolean(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> bool:
        if not isinstance(value, bool):
            raise _wrong(arrow, value, "booleans are true and false, without quotes.")
        return value

    return convert


def _whole(arrow: pa.DataType) -> Converter:
    limit = 1 << (arrow.bit_width - 1)

    def convert(value: Any) -> int:
        number = _whole_number(value)
        if number is None:
            raise _wrong(arrow, value, "whole numbers have no quotes, no fraction and no exponent.")
        if not -limit <= number < limit:
            raise _wrong(arrow, value, f"{spark_type(arrow)} goes from {-limit} to {limit - 1}.")
        return number

    return convert


def _whole_number(value: Any) -> int | None:
    if isinstance(value, NumberText):
        # Twenty characters hold every bigint: what is longer fails the limits by its beginning alone.
        return int(value.text[:30]) if _WHOLE.fullmatch(value.text) else None
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def _floating(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> float:
        if isinstance(value, NumberText):
            number = float(value.text)
            overflows = math.isinf(number)
        elif not isinstance(value, bool) and isinstance(value, numbers.Real):
            number, overflows = _float(value)
        else:
            raise _wrong(arrow, value, "numbers have no quotes.")
        if overflows or (arrow.bit_width == 32 and _overflows_float(number)):
            raise _wrong(arrow, value, f"it is too large for a {spark_type(arrow)}.")
        return number

    return convert


def _float(value: numbers.Real) -> tuple[float, bool]:
    try:
        return float(value), False
    except OverflowError:
        return math.inf, True


def _overflows_float(number: float) -> bool:
    try:
        struct.pack("<f", number)
    except OverflowError:
        return True
    return False


def _decimal(arrow: pa.DataType) -> Converter:
    whole_digits, unit = arrow.precision - arrow.scale, Decimal(1).scaleb(-arrow.scale)

    def convert(value: Any) -> Decimal:
        number = _decimal_number(value)
        if number is None or not number.is_finite():
            raise _wrong(arrow, value, "a decimal is a number, or a string with one.")
        if number == 0:
            return Decimal(0).quantize(unit, context=_EXACT)
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int), "finite numbers have an exponent"
        zeros = len(digits) - len("".join(map(str, digits)).rstrip("0"))
        if number.adjusted() >= whole_digits or exponent + zeros < -arrow.scale:
            why = f"it would not fit exactly: {whole_digits} digits before the point and {arrow.scale} after it do."
            raise _wrong(arrow, value, why)
        return number.quantize(unit, context=_EXACT)

    return convert


def _decimal_number(value: Any) -> Decimal | None:
    text = value.text if isinstance(value, NumberText) else value
    if isinstance(text, str):
        try:
            return Decimal(text) if _NUMBER.fullmatch(text) else None
        except InvalidOperation:  # an exponent beyond anything
            return None
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return Decimal(value)
    return None


def _date(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> date:
        if isinstance(value, date) and not isinstance(value, datetime):
            return value
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise _wrong(arrow, value, 'dates are written like "2026-03-01".')
        try:
            return date.fromisoformat(value)
        except ValueError as error:
            raise _wrong(arrow, value, f"{error}.") from None

    return convert


def _timestamp(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> int:
        if isinstance(value, datetime):
            micros = _from_datetime(arrow, value)
        elif isinstance(value, str):
            micros = _from_text(arrow, value)
        elif isinstance(value, NumberText | int | float) and not isinstance(value, bool):
            why = "a number does not say whether it counts seconds, milliseconds or microseconds, nor since when."
            raise _wrong(arrow, value, f'{why} Times are written like "2026-03-01T12:00:00Z".')
        else:
            raise _wrong(arrow, value, 'times are written like "2026-03-01T12:00:00Z".')
        if not TIMESTAMP_US_MIN <= micros <= TIMESTAMP_US_MAX:
            raise _wrong(arrow, value, "in UTC it lies outside the years 1 to 9999.")
        return micros

    return convert


def _from_datetime(arrow: pa.DataType, value: datetime) -> int:
    if value.tzinfo is None:
        return (value - _EPOCH) // _US
    if arrow.tz is None:
        raise _wrong(arrow, value, "a timestamp_ntz has no zone.")
    return (value - _EPOCH.replace(tzinfo=UTC)) // _US


def _from_text(arrow: pa.DataType, text: str) -> int:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise _wrong(arrow, text, 'times are written like "2026-03-01T12:00:00Z" or "2026-03-01 12:00:00.25+02:00".')
    day, clock, zone = match.groups()
    if zone and arrow.tz is None:
        raise _wrong(arrow, text, "a timestamp_ntz has no zone.")
    try:
        midnight = datetime.fromisoformat(day)
    except ValueError as error:
        raise _wrong(arrow, text, f"{error}.") from None
    return (midnight - _EPOCH) // _US + _clock_us(clock or "00:00") - _zone_us(zone or "Z")


def _clock_us(text: str) -> int:
    """Microseconds since midnight; digits beyond them are cut off, as Spark does."""
    hours, minutes, *rest = text.split(":")
    seconds, _, fraction = (rest[0] if rest else "0").partition(".")
    whole_s = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return whole_s * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _zone_us(text: str) -> int:
    if text == "Z":
        return 0
    digits = text[1:].replace(":", "").ljust(4, "0")
    offset_us = (int(digits[:2]) * 60 + int(digits[2:])) * 60_000_000
    return -offset_us if text[0] == "-" else offset_us


def _binary(arrow: pa.DataType) -> Converter:
    def convert(value: Any) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(value)
        if not isinstance(value, str):
            raise _wrong(arrow, value, "bytes are written as a string in base64.")
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _wrong(arrow, value, f"bytes are written as a string in base64; {error}.") from None

    return convert


def _array(arrow: pa.DataType) -> Converter:
    convert_element = converter(arrow.value_type)

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise _wrong(arrow, value)
        return [inside(str(index), convert_element, element) for index, element in enumerate(value)]

    return convert


def _struct(arrow: pa.DataType) -> Converter:
    convert_field = {field.name: converter(field.type) for field in arrow}

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _wrong(arrow, value)
        for name in value:
            if name not in convert_field:
                raise Unfit("is not in the schema", f"the fields are: {', '.join(convert_field)}.").inside(str(name))
        return {name: inside(name, each, value.get(name)) for name, each in convert_field.items()}

    return convert


def _map(arrow: pa.DataType) -> Converter:
    convert_key, convert_item = converter(arrow.key_type), converter(arrow.item_type)
    keys_are_whole = pa.types.is_integer(arrow.key_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, Mapping):
            raise _wrong(arrow, value)
        pairs = []
        for key, item in value.items():
            if key is None:
                raise Unfit("has a key that is null", "the keys of a map are never null.")
            # JSON writes every key as a string, a number's too.
            written = NumberText(key) if keys_are_whole and isinstance(key, str) else key
            pairs.append((inside(f"key {key}", convert_key, written), inside(str(key), convert_item, item)))
        return pairs

    return convert


def inside(name: str, convert: Callable[[Any], Any], value: Any) -> Any:
    """A part of a value, converted; what does not fit there says where it is."""
    try:
        return convert(value)
    except Unfit as unfit:
        raise unfit.inside(name) from None


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], Converter]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_integer, _whole),
    (pa.types.is_floating, _floating),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _timestamp),
    (pa.types.is_binary, _binary),
    (pa.types.is_map, _map),
    (pa.types.is_list, _array),
    (pa.types.is_struct, _struct),
)
