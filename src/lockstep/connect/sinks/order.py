"""The promises that every sink keeps: epochs in order, and one owner."""

from __future__ import annotations

from lockstep.errors import ConnectError


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
