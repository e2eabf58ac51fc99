"""The file by which a driver keeps its queries from reading their checkpoints, and those by which they answer.

Spark starts a Python process for each source of a query before it reads the query's logs; ours waits there while the
gate is closed. So all that takes long is over when the seed is taken (``runtime/spark/waiting.py``).
"""

from __future__ import annotations

from pathlib import Path


def close(gate: Path) -> None:
    """From now on queries wait, and nobody has answered yet."""
    gate.parent.mkdir(parents=True, exist_ok=True)
    clear(gate)
    gate.touch()


def clear(gate: Path) -> None:
    """Let all queries go on."""
    gate.unlink(missing_ok=True)
    for path in gate.parent.glob(f"{gate.name}.at-*"):
        path.unlink(missing_ok=True)


def is_closed(gate: Path) -> bool:
    """Whether to wait."""
    return gate.exists()


def answer(gate: Path, query: str) -> None:
    """Say that a query has come to the gate."""
    gate.with_name(f"{gate.name}.at-{query}").touch()


def waiting(gate: Path) -> int:
    """How many queries have come to it."""
    return len(list(gate.parent.glob(f"{gate.name}.at-*")))
