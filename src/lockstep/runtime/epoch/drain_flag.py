"""The file by which a driver holds the sources of its queries, and the files by which they answer.

While the flag is empty they answer no epoch any more; with a number in it they answer up to that one.
"""

from __future__ import annotations

from pathlib import Path


def clear(flag: Path) -> None:
    """Remove the flag and what the sources answered."""
    forget_answers(flag)
    flag.unlink(missing_ok=True)


def forget_answers(flag: Path) -> None:
    """Remove what the sources answered; those that still wait answer again."""
    for path in flag.parent.glob(f"{flag.name}.seen-*"):
        path.unlink(missing_ok=True)


def held(flag: Path) -> int:
    """How many queries have answered that they wait."""
    return len(list(flag.parent.glob(f"{flag.name}.seen-*")))


def answer(flag: Path, query: str) -> None:
    """Say that a query is between two epochs: sources are asked for the next one only then."""
    flag.with_name(f"{flag.name}.seen-{query}").touch()


def limit(flag: Path) -> int | None:
    """Up to which epoch a source may still answer: None without a flag, -1 for none at all."""
    try:
        text = flag.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    return int(text) if text else -1
