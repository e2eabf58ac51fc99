"""What the tests of connectors share: a place to work in, and a job that seals and reads epochs without Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.connect.protocols import Place
from tests.unit.connect.sealing_for_connect import Sealing


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path, tmp_path / ".lockstep", "job")


@pytest.fixture
def sealing(place: Place) -> Iterator[Callable[[Any], Sealing]]:
    made: list[Sealing] = []

    def make(spec: Any) -> Sealing:
        made.append(Sealing(place, spec, f"r{len(made)}"))
        return made[-1]

    yield make
    for each in made:
        each.close()
