"""The promises that every sink keeps: epochs in order, and one owner."""

from __future__ import annotations

import base64
import json
import secrets
from dataclasses import dataclass

import pyarrow as pa

from lockstep.connect.sinks.manifests import newer_version
from lockstep.connect.sinks.schemas import check_same
from lockstep.errors import ConnectError
from lockstep.store.protocols import Holder, Store


@dataclass(frozen=True)
class Owner:
    """Whose a place is, and what it was made for."""

    job: str
    sink: str
    columns: str
    """The schema as :func:`schema_text` writes it."""
    key: tuple[str, ...]
    format_version: int
    """As stored; of one who asks: the newest that it knows."""
    run: str = ""
    """A random name in the job's store: another store's job of the same name has epochs of its own. Empty: any."""


def check_order(place: str, epoch: int, last: int | None) -> None:
    """LS0507 unless ``epoch`` follows the newest published one (or is the first of all).

    >>> check_order("out/alerts", 5, 4)
    >>> check_order("out/alerts", 6, 4)
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ConnectError: LS0507 epoch 6 cannot be published in out/alerts
      why:  the newest published epoch there is 4, so the next is 5: a sink's epochs come in order, without gaps.
      try:  if epochs were removed from the sink by hand, put them back or write to a new place.
    """
    if last is None or epoch == last + 1:
        return
    raise ConnectError(
        "LS0507",
        f"epoch {epoch} cannot be published in {place}",
        why=f"the newest published epoch there is {last}, so the next is {last + 1}: "
        "a sink's epochs come in order, without gaps.",
        hint="if epochs were removed from the sink by hand, put them back or write to a new place.",
    )


def owned_by_another(place: str, job: str, sink: str) -> ConnectError:
    """The error for a place that another job or sink writes to."""
    return ConnectError(
        "LS0503",
        f"{place} belongs to another sink",
        why=f'the job "{job}" writes there with its sink "{sink}"; two writers would each break the other\'s order.',
        hint="choose another place; if that sink is no longer wanted, remove the old one's files first.",
    )


def check_owner(place: str, stored: Owner, mine: Owner, anew: str = "") -> None:
    """LS0502, LS0503 or LS0512 unless ``place`` is ``mine``; ``anew`` says how to begin anew there.

    >>> stored = Owner("totals", "out", schema_text(pa.schema([("n", pa.int64())])), ("n",), 1)
    >>> check_owner("table t", stored, stored)
    >>> check_owner("table t", stored, Owner("totals", "out", stored.columns, (), 1))
    Traceback (most recent call last):
    ...
    lockstep.errors.tree.ConnectError: LS0512 table t was made with the key ["n"]
      try:  write to a new place, or give the sink its old key back.
    """
    if stored.format_version > mine.format_version:
        raise newer_version(place, stored.format_version, mine.format_version)
    if (stored.job, stored.sink) != (mine.job, mine.sink):
        raise owned_by_another(place, stored.job, stored.sink)
    if stored.run != mine.run:
        raise ConnectError(
            "LS0503",
            f"{place} belongs to another run of this job",
            why="its epochs were counted in another store (another folder, or one that was removed), so the same "
            "numbers mean other records.",
            hint=f"run the job in its old folder, or choose another place; to begin anew there, {anew}.",
        )
    check_same(place, schema_of(stored.columns), schema_of(mine.columns))
    if stored.key != mine.key:
        key = json.dumps(stored.key)
        hint = "write to a new place, or give the sink its old key back."
        raise ConnectError("LS0512", f"{place} was made with the key {key}", hint=hint)


def made_by_others(place: str, another: str = "choose another name for the table.") -> ConnectError:
    """The error for a table that is there and that no sink made."""
    return ConnectError(
        "LS0503",
        f"{place} was not made by Lockstep",
        why="rows in it would get mixed with those of the job, without a fence.",
        hint=another,
    )


def check_not_retired(place: str, holder: Holder, noted: int) -> None:
    """LS0534 for an incarnation whose replica has started anew since and published there as ``noted``."""
    if noted > holder.incarnation:
        raise ConnectError(
            "LS0534",
            f"{holder} may not publish in {place} any more",
            why=f"incarnation {noted} of {holder.replica} has published there since: this one was retired.",
        )


def schema_text(schema: pa.Schema) -> str:
    """A schema as text, exactly; :func:`schema_of` reads it.

    >>> schema_of(schema_text(pa.schema([("n", pa.int64())]))).names
    ['n']
    """
    return base64.b64encode(schema.serialize()).decode()


def schema_of(text: str) -> pa.Schema:
    """The schema that :func:`schema_text` wrote."""
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text)))


def run_name(store: Store, fact: str) -> str:
    """The random name of a store's runs in one sink, made when it is first asked for."""
    store.put_fact_if_absent(fact, secrets.token_hex(8))
    return store.fact(fact) or ""
