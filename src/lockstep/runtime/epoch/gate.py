"""The file by which a driver keeps its queries from reading their checkpoints, and those by which they answer.

Spark starts a Python process for each source of a query, one after the other, before it reads the query's logs; the
last of them waits there while the gate is closed. So all that takes long is over when the seed is taken
(``runtime/spark/waiting.py``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def close(gate: Path, sources: Mapping[int, Sequence[str]]) -> None:
    """From now on queries wait, and nobody has answered yet; these are the sources of each."""
    gate.parent.mkdir(parents=True, exist_ok=True)
    clear(gate)
    gate.write_text(json.dumps({str(query): sorted(set(names)) for query, names in sources.items()}), encoding="utf-8")


def clear(gate: Path) -> None:
    """Let all queries go on."""
    gate.unlink(missing_ok=True)
    for path in gate.parent.glob(f"{gate.name}.at-*"):
        path.unlink(missing_ok=True)


def come(gate: Path, query: int, source: str) -> bool:
    """Say that a source of a query has come to the gate; whether it has to wait: all the others are there too."""
    try:
        expected = json.loads(gate.read_text(encoding="utf-8"))[str(query)]
    except FileNotFoundError:
        return False
    if source in expected:
        gate.with_name(f"{gate.name}.at-{query}-{expected.index(source)}").touch()
    return len(list(gate.parent.glob(f"{gate.name}.at-{query}-*"))) >= len(expected)


def missing(gate: Path) -> int:
    """How many sources have not come yet."""
    expected = json.loads(gate.read_text(encoding="utf-8"))
    return sum(map(len, expected.values())) - len(list(gate.parent.glob(f"{gate.name}.at-*")))
