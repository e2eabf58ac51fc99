"""What happened to a job, in words for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lockstep.control.status.health import Event

_WORDS = {
    "replica-started": "started ({text})",
    "replica-adopted": "adopted ({text})",
    "replica-not-adopted": "not adopted: {text}",
    "replica-ended": "ended ({text})",
    "replica-moved": "moves: {text}",
    "replica-killed": "killed: {text}",
    "replica-failed": "failed: {text}",
    "replica-given-up": "given up: {text}",
    "replica-phases": "computed its first epoch ({text})",
    "spare-ready": "a spare is ready ({text})",
    "spare-ended": "a spare ended by itself ({text})",
    "executor-lost": "lost executor {text}",
    "executor-came": "has a new executor: {text}",
    "seeded": "seeded {text}",
    "seed-again": "takes another seed ({text})",
    "quarantined": "quarantined: {text}",
    "divergence": "disagrees: {text}",
    "state-not-compared": "did not compare its state: {text}",
}
_BAD = frozenset(
    {
        "replica-failed",
        "replica-killed",
        "replica-given-up",
        "agent-lost",
        "executor-lost",
        "divergence",
        "quarantined",
        "sealing-failed",
        "checkpoint-damaged",
        "checkpoint-contradicts-ledger",
    }
)
_EXPECTED_ENDS = ("exit code 0",)


def event_text(event: Event) -> str:
    """One event in words; further lines of a longer one are indented.

    >>> event_text((7, 0, "seeded", "r1", "from r0 at epoch 120"))
    'r1 seeded from r0 at epoch 120'
    >>> event_text((8, 0, "checkpoint-set-aside", "r1", "kept as checkpoint.set-aside-3"))
    'r1 checkpoint set aside: kept as checkpoint.set-aside-3'
    """
    _, _, kind, replica, text = event
    said = _WORDS.get(kind, kind.replace("-", " ") + ": {text}").replace("{text}", text.replace("\n", "\n  "))
    return f"{replica} {said}" if replica else said


def is_bad(event: Event) -> bool:
    """Whether somebody should know of it.

    >>> is_bad((7, 0, "replica-ended", "r1", "exit code -9")), is_bad((8, 0, "replica-ended", "r1", "exit code 0"))
    (True, False)
    """
    _, _, kind, _, text = event
    return kind in _BAD or (kind == "replica-ended" and text not in _EXPECTED_ENDS)


def event_style(event: Event) -> str:
    """How an event looks on a terminal."""
    if is_bad(event):
        return "bold red"
    return "green" if event[2] == "seeded" else ""


def is_divergence(event: Event) -> bool:
    """Whether replicas disagreed: to be shown as loudly as possible."""
    return event[2] == "divergence"
