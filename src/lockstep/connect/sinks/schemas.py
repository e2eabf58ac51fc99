"""Comparing what a job writes with what a sink was made for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from lockstep.errors import ConnectError


def without_nullability(schema: pa.Schema) -> pa.Schema:
    """The schema with every field nullable and no metadata: two replicas' optimizers may differ in what they know.

    >>> without_nullability(pa.schema([pa.field("n", pa.int64(), nullable=False)])).field("n").nullable
    True
    """
    return pa.schema([(field.name, _plain(field.type)) for field in schema])


def check_same(place: str, made_for: pa.Schema, wanted: pa.Schema) -> None:
    """LS0512 unless ``wanted`` has the columns that the sink was made for."""
    if made_for.equals(wanted):
        return
    had = {field.name: field.type for field in made_for}
    have = {field.name: field.type for field in wanted}
    changes = [f"{name} is gone" for name in had if name not in have]
    changes += [f"{name} is new" for name in have if name not in had]
    changes += [f"{name} was {had[name]} and is {have[name]}" for name in had if have.get(name, had[name]) != had[name]]
    raise ConnectError(
        "LS0512",
        f"{place} was made for other columns",
        why="; ".join(changes or ["the order of the columns is another"]) + ".",
        hint="write to a new place, or give the job its old columns back.",
    )


def check_unchanged(place: str, there: Mapping[str, str], wanted: Mapping[str, str], change_back: str) -> None:
    """LS0512 if somebody changed a table since it was made: each column has to be there, in its type."""
    wrong = [
        f"{name} should be {type_} and is {there.get(name, 'not there')}"
        for name, type_ in wanted.items()
        if there.get(name) != type_
    ]
    if wrong:
        raise ConnectError(
            "LS0512",
            f"{place} was changed since it was made",
            why="; ".join(wrong) + ".",
            hint=f"{change_back}, or write to a new table.",
        )


def check_key(place: str, key: Sequence[str], schema: pa.Schema) -> None:
    """LS0501 if the key of a sink names a column that the output does not have."""
    unknown = [name for name in key if name not in schema.names]
    if unknown:
        raise ConnectError(
            "LS0501",
            f"the key of {place} names {', '.join(unknown)}",
            why=f"the output has: {', '.join(schema.names)}.",
        )


def check_names(place: str, schema: pa.Schema, reserved: str) -> None:
    """LS0501 if a column has the name that the sink uses itself."""
    if reserved in schema.names:
        raise ConnectError(
            "LS0501",
            f'{place} cannot have a column "{reserved}"',
            why="the sink keeps the epoch's number there.",
            hint='rename it before the sink: .rename({"...": "..."}).',
        )


def _plain(type_: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _plain(field.type)) for field in type_])
    if pa.types.is_map(type_):
        return pa.map_(_plain(type_.key_type), _plain(type_.item_type))
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        return pa.list_(_plain(type_.value_type))
    if pa.types.is_large_string(type_):
        return pa.string()
    if pa.types.is_large_binary(type_):
        return pa.binary()
    return type_
