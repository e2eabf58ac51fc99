"""Spark's ``xxhash64`` in Python: which bucket and page of a keyed step's state a key is in, found without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

from lockstep.keyed.codec import time_us

_MASK = (1 << 64) - 1
_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_SEED = 42
_DAY_ZERO = date(1970, 1, 1)


def key_hash(values: Sequence[Any], types: Sequence[str]) -> int | None:
    """The hash that :mod:`lockstep.compile.keyed` gives a key of these types; None for a type that is not known here.

    >>> key_hash(["ann"], ["string"]) == key_hash(["ann"], ["string"]), key_hash([1.5], ["double"])
    (True, None)
    """
    seed = _of_int(0, _SEED)
    for value, kind in zip(values, types, strict=True):
        if value is None:
            continue
        match kind:
            case "string":
                seed = _of_bytes(value.encode(), seed)
            case "binary":
                seed = _of_bytes(bytes(value), seed)
            case "boolean":
                seed = _of_int(int(value), seed)
            case "tinyint" | "smallint" | "int":
                seed = _of_int(value, seed)
            case "date":
                seed = _of_int((value - _DAY_ZERO).days, seed)
            case "bigint":
                seed = _of_long(value, seed)
            case "timestamp" if isinstance(value, datetime):
                seed = _of_long(time_us(value), seed)
            case _:
                return None
    return seed - (1 << 64) if seed >> 63 else seed


def _of_int(value: int, seed: int) -> int:
    hashed = (seed + _P5 + 4) & _MASK
    hashed ^= (value & 0xFFFFFFFF) * _P1 & _MASK
    hashed = (_rotated(hashed, 23) * _P2 + _P3) & _MASK
    return _mixed(hashed)


def _of_long(value: int, seed: int) -> int:
    hashed = (seed + _P5 + 8) & _MASK
    hashed ^= _rotated((value & _MASK) * _P2 & _MASK, 31) * _P1 & _MASK
    hashed = (_rotated(hashed, 27) * _P1 + _P4) & _MASK
    return _mixed(hashed)


def _of_bytes(data: bytes, seed: int) -> int:
    size, at = len(data), 0
    if size >= 32:
        lanes = [(seed + _P1 + _P2) & _MASK, (seed + _P2) & _MASK, seed, (seed - _P1) & _MASK]
        while at <= size - 32:
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = _rotated((lanes[lane] + word * _P2) & _MASK, 31) * _P1 & _MASK
            at += 32
        turns = (1, 7, 12, 18)
        hashed = sum(_rotated(lane, turn) for lane, turn in zip(lanes, turns, strict=True)) & _MASK
        for lane in lanes:
            hashed ^= _rotated(lane * _P2 & _MASK, 31) * _P1 & _MASK
            hashed = (hashed * _P1 + _P4) & _MASK
    else:
        hashed = (seed + _P5) & _MASK
    return _rest(data, at, (hashed + size) & _MASK)


def _rest(data: bytes, at: int, hashed: int) -> int:
    while at + 8 <= len(data):
        word = int.from_bytes(data[at : at + 8], "little")
        hashed ^= _rotated(word * _P2 & _MASK, 31) * _P1 & _MASK
        hashed = (_rotated(hashed, 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= len(data):
        hashed ^= int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK
        hashed = (_rotated(hashed, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        hashed ^= byte * _P5 & _MASK
        hashed = _rotated(hashed, 11) * _P1 & _MASK
    return _mixed(hashed)


def _mixed(hashed: int) -> int:
    hashed = (hashed ^ hashed >> 33) * _P2 & _MASK
    hashed = (hashed ^ hashed >> 29) * _P3 & _MASK
    return hashed ^ hashed >> 32


def _rotated(value: int, turn: int) -> int:
    return (value << turn | value >> (64 - turn)) & _MASK
