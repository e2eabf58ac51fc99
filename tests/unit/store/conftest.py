from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.store.protocols import Store
from lockstep.store.sqlite_store import open_store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(tmp_path, "job")
    yield opened
    opened.close()
