"""What every ledger keeps to: who may seal, what may follow what, and how an entry is written down."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from lockstep.errors import StoreError
from lockstep.observe.promises import completeness
from lockstep.store.protocols import Entry, Holder


def may_not_seal(holder: Holder) -> StoreError:
    """What a ledger answers to somebody who is not the live incarnation of its replica."""
    return StoreError(
        "LS0405",
        f"{holder} may not seal",
        why=f"it is not the live incarnation of {holder.replica}: it was replaced or retired.",
        hint="nothing to do: whoever replaced it goes on. This process should end.",
    )


def check_follows(head: Entry | None, proposal: Entry) -> None:
    """Refuse an entry that does not continue the ledger: each epoch begins where the one before it ends."""
    next_epoch = head.epoch + 1 if head else 0
    if proposal.epoch > next_epoch:
        raise StoreError(
            "LS0406",
            f"epoch {proposal.epoch} cannot be sealed before epoch {next_epoch}",
            why="the ledger has no gaps: an epoch begins where the one before it ends.",
            hint=f"seal epoch {next_epoch} first.",
        )
    if proposal.epoch < next_epoch:
        raise StoreError(
            "LS0408",
            f"epoch {proposal.epoch} is no longer in the ledger",
            why="it was sealed, and trimmed when nobody needed it any more.",
            hint="seed this replica from a newer snapshot.",
        )
    if head is not None:
        violations = completeness([(head.epoch, head.cut), (proposal.epoch, proposal.cut)])
        if proposal.epoch_time_us < head.epoch_time_us:
            violations.append(f"epoch time moves back from {head.epoch_time_us} to {proposal.epoch_time_us} us")
        if violations:
            raise not_onward(proposal.epoch, "; ".join(violations))


def check_beginning(head: Entry | None, entries: Sequence[Entry]) -> None:
    """Refuse to begin a ledger that has begun, or with entries that do not follow each other."""
    if head is not None:
        raise StoreError(
            "LS0408",
            f"the ledger has begun: it is at epoch {head.epoch}",
            why="a ledger begins once; what was sealed holds for everybody who has read it.",
            hint="give Job(...) another name: it has a ledger of its own.",
        )
    assert entries, "a ledger begins with an entry"
    for before, after in itertools.pairwise(entries):
        check_follows(before, after)


def not_onward(epoch: int, why: str) -> StoreError:
    """What a ledger answers to an entry that does not go on where the one before it ends."""
    return StoreError(
        "LS0407",
        f"epoch {epoch} does not continue the ledger",
        why=f"{why}.",
        hint="a source that was cut short or replaced cannot go on under the same name: give it a new name.",
    )


def to_json(entry: Entry) -> dict[str, Any]:
    """An entry as it is kept: without what is as it would be anyway, so that a Lockstep without a field reads it too.

    >>> to_json(Entry(7, 100, {"logins": {"0": 5}}))
    {'epoch': 7, 'epoch_time_us': 100, 'cut': {'logins': {'0': 5}}}
    """
    return {name: value for name, value in vars(entry).items() if name in _NEEDED or value != _DEFAULTS[name]}


def from_json(kept: Mapping[str, Any]) -> Entry:
    """What :func:`to_json` gave, here or by a newer Lockstep: what that knows more is about what is not done here."""
    return Entry(**{name: value for name, value in kept.items() if name in _NEEDED or name in _DEFAULTS})


_DEFAULTS = {
    one.name: one.default if one.default_factory is MISSING else one.default_factory()
    for one in fields(Entry)
    if one.default is not MISSING or one.default_factory is not MISSING
}
_NEEDED = {one.name for one in fields(Entry)} - set(_DEFAULTS)


def to_text(entry: Entry) -> str:
    """An entry as text. It may gain fields with a default: nothing searches by them."""
    return json.dumps(to_json(entry), default=dict, sort_keys=True)


def from_text(body: str) -> Entry:
    """What :func:`to_text` was given."""
    return from_json(json.loads(body))
